"""`Loader`: loads of waiting requests, each from "what is there?" to "go on, with what came".

    NEW --nothing beyond the device, or not worth it--> READY
    NEW --a tier is still to say what it has--> NEW, for a part of the time that computing takes
    NEW --chunks below memory, or on their way--> NEW, until the deadline; then with what is in memory
    NEW --all in memory, and room for the whole request--> LOADING --the job ends--> LOADED --it starts--> READY
    NEW --more than memory holds at once--> LOADING --this part is on the device--> NEW
    LOADING, LOADED --called in--> NEW
    READY with what the device had --that is evicted before it starts--> NEW

Nothing here can fail a request: what does not come in time, or comes damaged, is computed. A load whose request has
gone, or waits no longer, runs to its end and gives its pages back then: until then something may write to them.

The pages of a load are a loan: the request does not run yet. It is called in when a request that runs, or an older
one, finds no room. Its blocks stay findable until they are evicted. It is not lent again before the device has room
for the whole request, so what was called in is not loaded again at once.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from octavo.chunks import GroupOffloadConfig, LookupResult, OffloadKey, TransferResult, WantedChunk
from octavo.ids import GroupIdx
from octavo.offload.device import Device, HeldPages
from octavo.offload.load_choice import LoadRule, Outlook
from octavo.offload.load_plan import LoadPlan, availability, copies_of, device_tokens, plan_load, tiered_blocks
from octavo.offload.load_worth import LoadWorth
from octavo.offload.manager import OffloadingManager
from octavo.offload.offloaded_blocks import ANYWHERE, IN_MEMORY
from octavo.offload.promises import PromiseRule
from octavo.offload.request_state import LoadPhase, RequestOffloadState
from octavo.transfer import OffloadingWorker

_LOOK_AGAIN_S = 0.005
"""How soon a waiting request is looked at again if no load has ended meanwhile."""


class Readiness(Enum):
    """Whether a waiting request can start now."""

    READY = "ready"
    WAIT = "wait"
    """Something is on its way to this request. Others go on."""
    NO_ROOM = "no_room"
    """The device has no room for it. Younger requests must not take what comes free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    state: RequestOffloadState
    pages: HeldPages
    is_whole: bool
    """False: memory could not hold all chunks at once, and this load brings the part that it held."""
    brings: Sequence[tuple[GroupIdx, OffloadKey, list[int]]]
    """For each chunk of the job: its group, its key, and the blocks that it brings."""
    num_bytes: int


class Loader:
    """Runs the loads of all waiting requests."""

    def __init__(
        self,
        device: Device,
        manager: OffloadingManager,
        worker: OffloadingWorker,
        groups: Sequence[GroupOffloadConfig],
        *,
        requests: Mapping[str, RequestOffloadState],
        patience_s: float,
        most_bytes_in_flight: int,
        rule: LoadRule,
    ) -> None:
        """`requests`: all requests that run or were looked at; what a load is worth depends on them."""
        self._promises = PromiseRule(
            groups,
            device.config.resume_granularity,
            device.config.limits,
            most_spacing=device.config.asked_interval_tokens,
        )
        self._device = device
        self._manager = manager
        self._worker = worker
        self._page_sizes = [group.page_size_bytes for group in groups]
        self._patience_s = patience_s
        self._most_bytes_in_flight = most_bytes_in_flight
        self._loads: dict[int, _Load] = {}
        """Job -> load."""
        self._keys_in_flight: set[OffloadKey] = set()
        self._bytes_in_flight = 0
        self.worth = LoadWorth(manager, self._page_sizes, rule, requests=requests)
        self.epoch = 0
        """Grows whenever something happens that a waiting request may wait for."""
        self.num_loaded_tokens = 0
        """The sum of how far loads have moved resume points, loads that failed included."""
        self.num_loaded_bytes = 0
        self.num_loaded_blocks: Counter[tuple[GroupIdx, int]] = Counter()
        """(Group, depth of the chunk's medium below memory when its request first asked for it) -> blocks."""
        self.num_late = 0
        """Requests that started without what they had waited for."""
        self.num_failed_chunks = 0

    @property
    def is_loading(self) -> bool:
        return bool(self._loads)

    def prepare(self, state: RequestOffloadState, now: float, *, may_borrow: bool, may_start: bool) -> Readiness:
        """Moves the load of a waiting request forward. Without `may_borrow` the request gets no device pages. Without
        `may_start` READY may be told of what the device has lost since."""
        if may_start and self._has_lost(state, now):
            self._begin_anew(state, now)
        match state.phase:
            case LoadPhase.READY | LoadPhase.LOADED:
                return Readiness.READY
            case LoadPhase.LOADING:
                return self._wait_or_go_on(state, now)
            case LoadPhase.NEW:
                if state.seen_epoch == self.epoch and now < state.look_again_at:
                    return Readiness.WAIT if state.has_room else Readiness.NO_ROOM
                if self._awaits_answers(state, now):
                    state.seen_epoch, state.look_again_at, state.has_room = self.epoch, now + _LOOK_AGAIN_S, True
                    return Readiness.WAIT
                return self._look(state, now, may_borrow=may_borrow)
            case _ as unreachable:
                assert_never(unreachable)

    def started(self, state: RequestOffloadState) -> None:
        """The request now holds its pages itself, or has ended."""
        self._end_loan(state)
        state.phase, state.tokens_there = LoadPhase.READY, 0
        if state.awaited:
            self._manager.stop_waiting(list(state.awaited))
            state.awaited.clear()

    def call_in(self, state: RequestOffloadState) -> bool:
        """Takes back the pages that a waiting request was lent. False if it has none. The pages of a load that is under
        way come back when the load ends."""
        if state.phase not in (LoadPhase.LOADING, LoadPhase.LOADED):
            return False
        self._end_loan(state)
        state.phase = LoadPhase.NEW
        self.epoch += 1
        return True

    def _has_lost(self, state: RequestOffloadState, now: float) -> bool:
        """Whether the request needed no load, and the device has lost some of what it had of it then."""
        if state.phase is not LoadPhase.READY or not state.tokens_there or state.looked_at == now:
            return False
        state.looked_at = now
        return self._device_tokens(state) < state.tokens_there

    def _begin_anew(self, state: RequestOffloadState, now: float) -> None:
        """What the request does not find on the device any more may come from memory or a tier."""
        state.phase, state.seen_epoch, state.tokens_there, state.outlook = LoadPhase.NEW, -1, 0, None
        if state.num_device_tokens is not None:
            state.num_device_tokens = min(state.num_device_tokens, self._device_tokens(state))
        if state.renewals_left is None:
            state.deadline = now + self._patience_s  # it has waited for its turn, and for nothing else
        else:
            self._renew(state, now)

    def _end_loan(self, state: RequestOffloadState) -> None:
        if state.pages is not None:
            self._device.give_back(state.pages)
            state.pages = None

    def finished(self, result: TransferResult, now: float) -> bool:
        """Handles the end of a worker's job. False if the job is no load."""
        load = self._loads.pop(result.job_id, None)
        if load is None:
            return False
        self.epoch += 1
        self._bytes_in_flight -= load.num_bytes
        self.num_loaded_bytes += load.num_bytes
        self._keys_in_flight.difference_update(key for _, key, _ in load.brings)
        self._manager.complete_load(result.job_id, result.failed)
        self._publish(load, result.failed)
        if result.failed:
            self.num_failed_chunks += len(result.failed)
        elif result.seconds is not None:
            self.worth.chooser.from_memory.note(load.num_bytes, result.seconds)
        state = load.state
        if state.phase is LoadPhase.LOADING and load.is_whole:
            state.phase, state.pages = LoadPhase.LOADED, load.pages
            return True
        if state.phase is LoadPhase.LOADING:
            state.phase, state.num_in_memory = LoadPhase.NEW, 0
            if not result.failed:
                self._renew(state, now)
        self._device.give_back(load.pages)
        return True

    def _publish(self, load: _Load, failed: Collection[int]) -> None:
        arrived: dict[GroupIdx, list[int]] = {}
        for index, (group_idx, key, blocks) in enumerate(load.brings):
            if index not in failed:
                arrived.setdefault(group_idx, []).extend(blocks)
                self.num_loaded_blocks[group_idx, load.state.depths.get(key, 0)] += len(blocks)
        for group_idx, blocks in arrived.items():
            self._device.fill(load.pages, group_idx, sorted(blocks))

    def _awaits_answers(self, state: RequestOffloadState, now: float) -> bool:
        """Whether a tier has not yet said what it holds of the request, and its answer is worth waiting for."""
        if not self._manager.asks_ahead:
            return False
        if state.answers_until is None:
            worth_s = self.worth.of_an_answer_s(state, device_tokens=self._device_tokens(state))
            state.deadline = now + self._patience_s  # the time in the queue does not count
            state.answers_until = state.deadline if worth_s is None else now + min(worth_s, self._patience_s)
        return now < state.answers_until and self._manager.ask(state.names)

    def _look(self, state: RequestOffloadState, now: float, *, may_borrow: bool) -> Readiness:
        plan = self._what_to_load(state, now)
        if plan is None:
            state.phase, state.looked_at, state.tokens_there = LoadPhase.READY, now, self._device_tokens(state)
            return Readiness.READY
        state.seen_epoch, state.look_again_at, state.has_room = self.epoch, now + _LOOK_AGAIN_S, True
        if state.renewals_left is None:
            state.renewals_left = 2 * len(plan.chunks)
        if state.num_device_tokens is None:
            state.num_device_tokens = plan.num_device_tokens
        if not self._keys_in_flight.isdisjoint(chunk.key for chunk in plan.chunks):
            return self._wait_or_go_on(state, now)  # another request brings them to the device
        is_whole = True
        if elsewhere := plan.chunks_not_in_memory(state.groups):
            num_in_memory = len(plan.chunks) - len(elsewhere)
            if num_in_memory > state.num_in_memory:
                self._renew(state, now)
            state.num_in_memory = num_in_memory
            state.depths = self._manager.depths_of([chunk.key for chunk in elsewhere]) | state.depths
            state.awaited |= dict.fromkeys(chunk.key for chunk in elsewhere)
            self._manager.make_room_for(state.request.request_id)
            stands = self._manager.promote(elsewhere, now, state.deadline, beside=plan.keys_in_memory)
            is_whole = all(stand is LookupResult.HIT for stand in stands)
            if not is_whole and (not num_in_memory or LookupResult.RETRY not in stands):
                return self._wait_or_go_on(state, now)
        state.has_room = may_borrow
        if not may_borrow or not self._begin(state, plan if is_whole else plan.part_in_memory(), is_whole=is_whole):
            if self._loads or self._device.is_busy():
                state.deadline = max(state.deadline, now + self._patience_s)  # it would not have room to start either
            return self._wait_or_go_on(state, now)
        return Readiness.WAIT

    def _device_tokens(self, state: RequestOffloadState) -> int:
        return device_tokens(state.request, self._device.blocks_of(state.request), self._device.config)

    def _plan(self, state: RequestOffloadState, accepts: Collection[LookupResult]) -> LoadPlan | None:
        """At the first call it also plans the request's promises, since the tiers are asked anyway."""
        config = self._device.config
        tiered = tiered_blocks(state.groups, self._device.blocks_of(state.request), self._manager, accepts)
        if not state.is_planned:
            state.is_planned = True
            room = self._manager.room(state.tenant)
            self._promises.plan(state.request, availability(config, tiered), room.free_share)
        return plan_load(state.request, tiered, config)

    def _renew(self, state: RequestOffloadState, now: float) -> None:
        """Renews the deadline because something has come for the request. This happens at most twice for each chunk,
        since a chunk can come to memory and then to the device. A chunk that comes again after an eviction does not
        renew it, so no request waits for ever."""
        if state.renewals_left:
            state.renewals_left -= 1
            state.deadline = now + self._patience_s

    def _wait_or_go_on(self, state: RequestOffloadState, now: float) -> Readiness:
        if now < state.deadline:
            return Readiness.WAIT if state.has_room else Readiness.NO_ROOM
        self.num_late += 1
        state.is_late = True
        state.phase = LoadPhase.READY
        return Readiness.READY

    def _what_to_load(self, state: RequestOffloadState, now: float) -> LoadPlan | None:
        """None: there is nothing to load, or nothing that is worth it. A request that has begun to wait keeps its
        choice: what others queue later does not delay it, and its deadline bounds the wait."""
        accepts = ANYWHERE if now < state.deadline and state.outlook is not Outlook.LOAD_PART else IN_MEMORY
        plan = self._plan(state, accepts)
        if plan is None or state.outlook is not None:
            return plan
        is_in_memory = plan.is_in_memory
        part = None if is_in_memory else self._plan(state, IN_MEMORY)
        chosen = self.worth.choose(state, plan, part, now, bytes_in_flight=self._bytes_in_flight)
        if chosen is not plan and not is_in_memory:
            self._probe(self.worth.chunks_to_probe(state, plan), plan, now)
        return chosen

    def _probe(self, chunks: Sequence[WantedChunk], plan: LoadPlan, now: float) -> None:
        """Reads some chunks of a refused load, to measure the tier. Nobody waits for them."""
        self._manager.promote(chunks, now, now + self._patience_s, beside=plan.keys_in_memory)
        self._manager.stop_waiting([wanted.key for wanted in chunks])

    def _begin(self, state: RequestOffloadState, plan: LoadPlan, *, is_whole: bool) -> bool:
        """Pins chunks and pages and submits the copy, or changes nothing."""
        if self._bytes_in_flight >= self._most_bytes_in_flight:
            return False
        prepared = self._manager.prepare_load([chunk.key for chunk in plan.chunks])
        if prepared is None:
            return False
        there = [part.rows_there for part in plan.groups]
        pages = self._device.reserve(state.request, there, [part.missing_blocks for part in plan.groups])
        if pages is None:
            self._manager.complete_load(prepared.job_id)
            state.has_room = False
            return False
        copies, brings, num_bytes = copies_of(plan, prepared, pages, self._page_sizes)
        self._loads[prepared.job_id] = _Load(
            state=state, pages=pages, brings=brings, is_whole=is_whole, num_bytes=num_bytes
        )
        if is_whole:
            state.num_loaded_tokens = plan.num_tokens - (state.num_device_tokens or 0)
            self.num_loaded_tokens += state.num_loaded_tokens
        self._keys_in_flight.update(key for _, key, _ in brings)
        self._bytes_in_flight += num_bytes
        state.phase = LoadPhase.LOADING
        self._worker.submit_load(prepared.job_id, copies)
        return True
