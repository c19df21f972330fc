"""One simulated engine: the real scheduler, block manager, offloading and policies over models of time and bytes.

    submit      a request arrives
    run_until   steps are computed, one after the other, until the clock has come to a moment

If all requests decode, several steps are taken at once: until a request fills a block or ends, another arrives, or a
transfer ends. No waiting request can be admitted before that, and manager and media see no difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from octavo.blocks import DeviceCache, KVCacheManager
from octavo.chunks import GroupOffloadConfig
from octavo.engine import Choice, Chunk, EngineCounters, Request, SamplingParams, Scheduler, SchedulerLimits
from octavo.errors import InputError
from octavo.events import MEDIUM_GPU, AnyEvent, EventSource
from octavo.hashing import BlockHasher
from octavo.host import plan_slots
from octavo.offload import (
    LoadRule,
    OffloadEventSource,
    OffloadingManager,
    OffloadScheduler,
    OffloadSchedulerLimits,
)
from octavo.planning import KVCacheConfig
from octavo.policies import make_policy
from octavo.sim.losses import LossJudge
from octavo.sim.media import SimulatedDisk, SimulatedWorker, empty_arena
from octavo.sim.outcomes import Outcome
from octavo.sim.speeds import Speeds
from octavo.sim.traces import TraceRequest

_HASHES = "xxh3_128"
_MOST_STEPS = 1 << 30
_LEAST_S = 1e-6
_DEADLINES_EVERY_S = 0.25
"""Seconds of the clock between two looks at a request whose load has a deadline."""
_ONCE_MORE_S = 0.01
"""Seconds of the clock to the next look, if a request waits and no transfer tells its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConfig:
    """The configuration of one engine: its plan, its media, and how fast they are. Steps are as long as the plan has
    room for."""

    plan: KVCacheConfig
    memory_bytes: int = 0
    """0 turns offloading off."""
    disk_bytes: int = 0
    policy: str = "resume_points"
    speeds: Speeds = field(default_factory=Speeds)
    loads: LoadRule = LoadRule.MEASURED
    max_num_seqs: int = 256
    tells_tokens: bool = False
    """Whether the events of stored blocks have their tokens, for routers that hash them in another way."""


class Watcher(Protocol):
    """Is told what an engine does at the time when it does it, as a router is."""

    def changed(self, now: float, events: Sequence[AnyEvent]) -> None:
        """Blocks were stored or removed, on the device or below it."""

    def begun(self, now: float, outcome: Outcome) -> None:
        """A request has its first token."""

    def ended(self, now: float, outcome: Outcome) -> None:
        """A request has its last token."""


class SimulatedEngine:
    """An engine in which a model of time takes the place of computing."""

    def __init__(self, config: SimConfig) -> None:
        self.now = 0.0
        self.watchers: list[Watcher] = []
        self.outcomes: list[Outcome] = []
        self._speeds = config.speeds
        plan = config.plan
        hasher = BlockHasher(hash_block_size=plan.hash_block_size, algorithm=_HASHES)
        self.manager = KVCacheManager(plan, hasher=hasher, enable_events=True)
        self._events = EventSource(
            [group.spec for group in plan.groups],
            medium=MEDIUM_GPU,
            hash_block_size=plan.hash_block_size,
            with_tokens=config.tells_tokens,
        )
        self.worker: SimulatedWorker | None = None
        self.disk: SimulatedDisk | None = None
        self.offload = self._make_offload(config) if config.memory_bytes else None
        self.counters = EngineCounters()
        self.scheduler = Scheduler(
            self.manager,
            SchedulerLimits(
                max_step_tokens=plan.limits.max_step_tokens,
                max_num_seqs=min(config.max_num_seqs, plan.limits.max_step_tokens),
                max_waiting=1 << 40,
            ),
            execute=lambda _: None,
            counters=self.counters,
            offload=self.offload,
        )
        self._judge = LossJudge(plan)
        self._running: dict[Choice, _Progress] = {}

    def _make_offload(self, config: SimConfig) -> OffloadScheduler:
        plan, speeds = config.plan, config.speeds
        groups = [
            GroupOffloadConfig(spec=group.spec.rule, blocks_per_chunk=1, page_size_bytes=group.page_bytes)
            for group in plan.groups
        ]
        slots = plan_slots(groups, config.memory_bytes)
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        self.worker = SimulatedWorker([group.page_bytes for group in plan.groups], speeds.memory_bytes_per_s, clock)
        if config.disk_bytes:
            self.disk = SimulatedDisk(config.disk_bytes, speeds.disk_bytes_per_s, speeds.disk_latency_s, clock)
        manager = OffloadingManager(
            empty_arena(slots.num_slots, slots.slot_bytes),
            groups,
            make_policy(config.policy, groups, slots.num_slots),
            [self.disk] if self.disk else [],
            logs_changes=True,
        )
        self._offloading_manager = manager
        self._offload_events = OffloadEventSource(groups)
        limits = OffloadSchedulerLimits(loads=config.loads)
        return OffloadScheduler(DeviceCache(self.manager), manager, self.worker, groups, limits=limits)

    @property
    def num_unfinished(self) -> int:
        return len(self._running)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would happen if its clock advanced."""
        return not self._running and not (self.offload is not None and self.offload.has_pending_work())

    @property
    def num_waiting_tokens(self) -> int:
        """Prompt tokens that are not computed yet: a new request waits for them."""
        return sum(
            max(0, choice.request.num_prompt_tokens - choice.blocks.num_computed_tokens) for choice in self._running
        )

    def submit(self, number: int, asked: TraceRequest) -> None:
        """A request arrives now, or arrived while a step was computed."""
        prompt = asked.prompt()
        name = str(number)
        blocks = self.manager.begin_request(name, prompt)
        request = Request(
            request_id=name,
            arrival=number,
            params=SamplingParams(max_tokens=max(1, asked.num_output_tokens), ignore_eos=True, temperature=0),
            num_prompt_tokens=len(prompt),
            eos_token_ids=frozenset(),
            max_output_tokens=asked.num_output_tokens,
            decoder=None,
        )
        choice = Choice.first_of(request, blocks)
        outcome = Outcome(number=number, asked=asked)
        self._running[choice] = _Progress(outcome, asked.output().tolist(), -1 - number)
        self.outcomes.append(outcome)
        self.scheduler.add(choice, self.now)

    def run_until(self, end: float) -> None:
        """Computes until the clock reaches `end`, or nothing is left to compute."""
        while self._running and self.now < end:
            self._step(end)
        self._rest(end)

    def advance(self, end: float) -> None:
        """Computes one step that begins before `end`; with nothing to compute, transfers go on until then."""
        if self._running:
            self._step(end)
        else:
            self._rest(end)

    def bytes_stored(self) -> dict[str, int]:
        """Bytes stored since the start, by medium."""
        links = {"memory": self.worker and self.worker.stores, "disk": self.disk and self.disk.writes}
        return {medium: link.num_bytes for medium, link in links.items() if link}

    def bytes_loaded(self) -> dict[str, int]:
        """Bytes loaded since the start, by the medium that was read."""
        links = {"memory": self.worker and self.worker.loads, "disk": self.disk and self.disk.reads}
        return {medium: link.num_bytes for medium, link in links.items() if link}

    def bytes_used(self) -> dict[str, int]:
        """Bytes on each medium now."""
        if self.offload is None:
            return {}
        status = self.offload.status()
        return {"memory": status.bytes_used} | {medium: tier.bytes_used for medium, tier in status.tiers}

    def finish(self) -> None:
        """Computes all that is left."""
        self.run_until(inf)

    def _rest(self, end: float) -> None:
        """Lets transfers go on, with nothing to compute, until they have ended or the clock reaches `end`."""
        self._note_changes()
        while self.offload is not None and self.now < end and self.offload.has_pending_work():
            self.now = max(min(end, self._next_transfer_end(self.now + _ONCE_MORE_S)), self.now + _LEAST_S)
            self.offload.poll(self.now)
            self._note_changes()
        if self.now < end < inf:
            self.now = end

    # ---- a step ----------------------------------------------------------------------------------------------------

    def _step(self, end: float) -> None:
        if self.offload is not None:
            self.offload.poll(self.now)
        self._note_changes()
        chunks = self.scheduler.schedule(self.now)
        self._judge_new(chunks)
        if not chunks:
            self._wait(end)
            return
        decodes = [chunk for chunk in chunks if self._is_decode(chunk)]
        prefill_s = sum(
            self._speeds.prefill_s(chunk.start, chunk.end) for chunk in chunks if not self._is_decode(chunk)
        )
        step_s = self._speeds.step_s + prefill_s + self._speeds.decode_s_per_request * len(decodes)
        if len(decodes) == len(chunks) == len(self.scheduler.running):
            chunks = self._take_several(chunks, step_s, end)
        self.now += step_s
        self._note_prefill(chunks, step_s)
        self._settle(chunks)

    def _note_prefill(self, chunks: Sequence[Chunk], seconds: float) -> None:
        """Notes the time of steps that mostly compute prompts, as the engine does."""
        computed = sum(chunk.end - chunk.start for chunk in chunks)
        prefilled = sum(chunk.end - chunk.start for chunk in chunks if not self._is_decode(chunk))
        if self.offload is not None and 2 * prefilled > computed:
            self.offload.note_prefill(prefilled, seconds * prefilled / computed)

    def _take_several(self, chunks: list[Chunk], step_s: float, end: float) -> list[Chunk]:
        """One step that stands for several steps of decodes; the time of all but the last has passed."""
        quiet = min(chunk.choice.blocks.quiet_until - chunk.end for chunk in chunks)
        left = min(self._running[chunk.choice].num_left(chunk.choice) for chunk in chunks)
        until = min(end, self._next_transfer_end(inf))
        if self.scheduler.is_waiting_for_loads:
            until = min(until, self.now + _DEADLINES_EVERY_S)
        count = min(quiet, left - 1, int(min((until - self.now) / step_s, _MOST_STEPS)))
        if count <= 0:
            return chunks
        self.now += count * step_s
        several = []
        for chunk in chunks:
            choice, progress = chunk.choice, self._running[chunk.choice]
            self.manager.append_tokens(choice.blocks, progress.next_tokens(choice, count))
            choice.num_output_tokens += count
            self.manager.allocate(choice.blocks, chunk.end + count)
            several.append(Chunk(choice, chunk.start, chunk.end + count))
        return several

    def _wait(self, end: float) -> None:
        """Lets the clock go on until a transfer ends, as nothing can be computed."""
        is_moving = self.offload is not None and self.offload.has_pending_work()
        stuck = None if is_moving else self.scheduler.find_stuck()
        if stuck is not None:
            raise InputError(
                f"a request of {stuck.blocks.num_tokens:,} tokens does not fit the device: give it more memory"
            )
        soonest = min(end, self._next_transfer_end(self.now + _ONCE_MORE_S))
        self.now = max(soonest, self.now + _LEAST_S)

    def _next_transfer_end(self, default: float) -> float:
        ends = [medium.next_end() for medium in (self.worker, self.disk) if medium is not None]
        return min((moment for moment in ends if moment is not None), default=default)

    def _settle(self, chunks: Sequence[Chunk]) -> None:
        scheduler = self.scheduler
        scheduler.commit([chunk for chunk in chunks if not chunk.is_last], self.now)
        going_on: list[Chunk] = []
        tokens: list[int] = []
        for chunk in chunks:
            if not chunk.is_last:
                continue
            choice = chunk.choice
            progress = self._running[choice]
            outcome = progress.outcome
            if not choice.num_output_tokens and outcome.first_token_s is None:
                outcome.first_token_s = self.now
                for watcher in self.watchers:
                    watcher.begun(self.now, outcome)
            if progress.num_left(choice) <= 1:
                scheduler.commit([Chunk(choice, chunk.start, chunk.end)], self.now)
                scheduler.finish(choice, self.now)
                outcome.end_s = self.now
                self._judge.note_end(choice.blocks)
                del self._running[choice]
                for watcher in self.watchers:
                    watcher.ended(self.now, outcome)
            else:
                going_on.append(chunk)
                tokens += progress.next_tokens(choice, 1)
                choice.num_output_tokens += 1
        scheduler.continue_with(going_on, tokens, self.now)

    def _is_decode(self, chunk: Chunk) -> bool:
        return chunk.start >= chunk.choice.request.num_prompt_tokens and chunk.end - chunk.start == 1

    # ---- what became of it -----------------------------------------------------------------------------------------

    def _judge_new(self, chunks: Sequence[Chunk]) -> None:
        """Notes of each request that starts in this step how much it resumed, and why not more."""
        for chunk in chunks:
            choice = chunk.choice
            outcome = self._running[choice].outcome
            if outcome.is_judged:
                continue
            outcome.is_judged = True
            outcome.resumed = dict(choice.request.cached_tokens)
            self._judge.judge(outcome, choice.blocks, chunk.start)

    def _note_changes(self) -> None:
        on_device = self.manager.take_changes()
        self._judge.note_device(on_device)
        events: list[AnyEvent] = []
        if self.offload is not None:
            below = self._offloading_manager.take_changes()
            self._judge.note_media(below)
            events = self._offload_events.messages(below) if self.watchers else []
        if self.watchers:
            events += self._events.messages(on_device)
            for watcher in self.watchers if events else ():
                watcher.changed(self.now, events)


class _Progress:
    """One request while it is served."""

    __slots__ = ("_output", "_own", "outcome")

    def __init__(self, outcome: Outcome, output: list[int], own: int) -> None:
        self.outcome = outcome
        self._output = output
        self._own = own & 0x7FFFFFFF
        """A number for tokens that the trace does not know. No other request has it."""

    def num_left(self, choice: Choice) -> int:
        return choice.request.max_output_tokens - choice.num_output_tokens

    def next_tokens(self, choice: Choice, count: int) -> list[int]:
        known = self._output[choice.num_output_tokens : choice.num_output_tokens + count]
        return known + [self._own] * (count - len(known))
