"""`OffloadScheduler`: what an engine calls to load what the device lacks and to store what others will want.

A request's life, beside the calls of `KVCacheManager`:

    arrived     it is in the queue: slow tiers are asked what they have of it
    prepare     may it be started now? READY: find_resume and allocate as ever. WAIT: something is on its way.
                NO_ROOM: other requests have the pages it needs
    started     after its first `allocate`
    call_in     another request needs the pages that it was lent; it will be prepared again
    computed    after `commit`
    finished    with `free`; or `aborted`, if it was cancelled
    preempted   before `preempt`: it will be prepared again
    poll        once per step: ends of transfers, and what is next

Transfers never lie: what fails, or comes late, is computed again. One thread calls; `now` is in seconds, monotonic.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import sleep

from octavo.chunks import GroupOffloadConfig, Hint, HintKind, HintOutcome, OffloadKey, name_tenant
from octavo.events import AnyEvent
from octavo.host import MEMORY
from octavo.ids import GroupIdx, enumerate_groups
from octavo.offload.device import Device, OffloadedRequest
from octavo.offload.event_source import OffloadEventSource
from octavo.offload.hints import Hinter
from octavo.offload.load_choice import LoadRule
from octavo.offload.load_speeds import LoadSpeed, load_speeds
from octavo.offload.load_story import LoadStory
from octavo.offload.loader import Loader, Readiness
from octavo.offload.manager import OffloadingManager
from octavo.offload.manager_values import OffloadStatus
from octavo.offload.offloaded_blocks import ANYWHERE, OffloadedBlocks
from octavo.offload.request_state import RequestGroupState, RequestOffloadState
from octavo.offload.storer import StorePolicy, Storer
from octavo.transfer import OffloadingWorker

_LONGEST_WAIT_S = 0.05
_PAUSE_FOR_TIERS_S = 0.001
"""The pause between two polls of the tiers, shorter than their reads take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSchedulerLimits:
    """Bounds of what is under way, and of a request's wait."""

    patience_s: float = 5.0
    """A request that has waited for its load for this time goes on without it."""
    most_load_bytes: int = 1 << 30
    """The most bytes of loads that are being copied to the device. A single load may exceed it."""
    most_store_bytes: int = 256 << 20
    """The most bytes of stores whose device pages are held. A single job may exceed it."""
    loads: LoadRule = LoadRule.MEASURED
    """Which loads are begun; the others are for comparison."""
    store_policy: StorePolicy = StorePolicy.AT_BOUNDARIES
    free_share_wanted: float = 0.1
    """With ON_EVICTION: stores begin when less of the device's pool than this is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStats:
    """Counts since the start."""

    loaded_tokens: int
    loaded_bytes: int
    loaded_blocks: Mapping[tuple[GroupIdx, str], int]
    """(Group, medium) -> blocks."""
    loads_too_slow: int
    loads_cut_short: int
    loads_late: int
    failed_load_chunks: int
    stored_chunks: int
    stored_bytes: int
    failed_store_chunks: int
    dropped_stores: int
    hints: Mapping[tuple[HintKind, HintOutcome], int]
    """(Hint, outcome) -> points."""
    load_speeds: Mapping[str, LoadSpeed] = field(default_factory=dict)
    """By medium, as far as loads were measured."""


class OffloadScheduler:
    """Loads and stores of one engine's requests, over all groups."""

    def __init__(
        self,
        device: Device,
        manager: OffloadingManager,
        worker: OffloadingWorker,
        groups: Sequence[GroupOffloadConfig],
        *,
        may_persist: Callable[[OffloadedRequest], bool] = lambda _: True,
        limits: OffloadSchedulerLimits | None = None,
    ) -> None:
        limits = limits or OffloadSchedulerLimits()
        self._groups = groups
        self._device = device
        self._manager = manager
        self._worker = worker
        self._may_persist = may_persist
        self._patience_s = limits.patience_s
        self._requests: dict[str, RequestOffloadState] = {}
        self._loader = Loader(
            device,
            manager,
            worker,
            groups,
            requests=self._requests,
            patience_s=limits.patience_s,
            most_bytes_in_flight=limits.most_load_bytes,
            rule=limits.loads,
        )
        self._storer = Storer(
            device,
            manager,
            worker,
            groups,
            policy=limits.store_policy,
            most_bytes_in_flight=limits.most_store_bytes,
            free_share_wanted=limits.free_share_wanted,
        )
        self._hinter = Hinter(device, manager, groups)
        self._events = OffloadEventSource(groups)
        self._name_chunk = self._events.name if manager.logs_changes else None

    def arrived(self, request: OffloadedRequest, now: float) -> None:
        """The request waits for its turn. Meanwhile tiers on a network look up what they hold of it. This call is
        optional."""
        if self._manager.asks_ahead:
            self._device.blocks_of(request)  # which names its blocks
            self._manager.ask(self._state_of(request, now).names)

    def hint(self, request_id: str, hints: Sequence[Hint]) -> None:
        """Tells what a client knows of the request's resume points, before it is prepared. This call is optional."""
        self._hinter.add(request_id, hints)

    def prepare(
        self, request: OffloadedRequest, now: float, *, may_borrow: bool = True, may_start: bool = True
    ) -> Readiness:
        """Whether a waiting request can start now. It waits at most `patience_s` after the last of its chunks came,
        except while other requests hold the pages that it needs. Without `may_borrow` it gets no pages yet, since an
        older request waits for pages; only memory is filled. Without `may_start` it would not start now if it could:
        READY is then not looked at again, which takes time in proportion to the prompt."""
        return self._loader.prepare(self._state_of(request, now), now, may_borrow=may_borrow, may_start=may_start)

    def started(self, request: OffloadedRequest) -> None:
        """The request now holds its pages itself, or will not wait for a load any more."""
        if state := self._requests.get(request.request_id):
            self._loader.started(state)
            state.resumed_tokens = request.num_computed_tokens
            state.num_loaded_tokens = min(state.num_loaded_tokens, state.resumed_tokens)  # the rest is evicted again
            if state.resumed_tokens and not state.was_counted:
                state.was_counted = True
                self._manager.touch(self._keys_of_resume(state))

    def call_in(self, request: OffloadedRequest) -> bool:
        """Takes back the pages that a waiting request was lent, for a request that runs or is older. False if it has
        none. Loaded blocks stay findable until they are evicted."""
        state = self._requests.get(request.request_id)
        return state is not None and self._loader.call_in(state)

    def computed(self, request: OffloadedRequest, now: float) -> None:
        """Tokens up to `request.num_computed_tokens` were committed."""
        state, promises = self._state_of(request, now), request.promises
        if points := promises.between(state.promised_tokens, request.num_computed_tokens):
            self._promise(state, points, now, is_milestone=promises.prompt_boundary in points)
        elif request.num_computed_tokens < promises.prompt_boundary and self._may_persist(request):
            self._storer.store_ahead(state, promises.prompt_boundary)
        if request.num_computed_tokens == request.num_prompt_tokens:
            self._manager.write_now()

    def finished(self, request: OffloadedRequest, now: float) -> None:
        """The request ends; others may want to go on from what it has computed. Called before or after `free`."""
        state = self._state_of(request, now)
        if request.num_computed_tokens > state.promised_tokens:
            self._promise(state, [request.num_computed_tokens], now, is_milestone=True)
        self._manager.write_now()
        self._hinter.ended(state, self._hinter.take(request.request_id))
        self.aborted(request)

    def preempted(self, request: OffloadedRequest, now: float) -> None:
        """The request is about to give up its pages (before `preempt`), and will be prepared again."""
        former = self._state_of(request, now)
        hints = self._hinter.take(request.request_id)
        self.finished(request, now)
        state = self._state_of(request, now)
        state.was_counted = True
        granule = self._device.config.resume_granularity
        state.promised_before = max(former.promised_before, former.promised_tokens // granule * granule)
        self._hinter.add(request.request_id, hints)  # only now, since they have begun already

    def aborted(self, request: OffloadedRequest) -> None:
        """The request was cancelled, at any point of its life. A load in flight ends by itself."""
        self._hinter.take(request.request_id)
        if state := self._requests.pop(request.request_id, None):
            self._loader.started(state)

    def resumed_from(self, request: OffloadedRequest) -> dict[str, int]:
        """How many tokens loads have moved the request's resume point, by the slowest medium that they came from."""
        state = self._requests.get(request.request_id)
        if state is None or not state.num_loaded_tokens:
            return {}
        return {self._manager.media.names[max(state.depths.values(), default=0)]: state.num_loaded_tokens}

    @property
    def stores(self) -> Mapping[str, str]:
        """By medium: the name of the store that this engine shares with others."""
        return self._manager.media.stores

    @property
    def stores_off(self) -> list[str]:
        """The media whose stores cannot be used now."""
        return self._manager.media.stores_off

    @property
    def cold_starts(self) -> list[str]:
        """What tiers have kept under other identities, as they said when they were opened."""
        return self._manager.media.cold_starts

    def load_story(self, request: OffloadedRequest) -> LoadStory | None:
        """What became of the request's load; None if it had none."""
        state = self._requests.get(request.request_id)
        return None if state is None else LoadStory(outlook=state.outlook, is_late=state.is_late)

    def missing_below(self, request: OffloadedRequest, group_idx: GroupIdx, run: range) -> list[int]:
        """The blocks of a run that no medium below the device has."""
        state = self._requests.get(request.request_id)
        if state is None:
            return list(run)
        found = OffloadedBlocks(state.groups[group_idx], self._manager, ANYWHERE).missing_in(run)
        return [*found, *range(max(run.start, len(state.groups[group_idx].hashes)), run.stop)]

    def chunks_of(self, request: OffloadedRequest, group_idx: GroupIdx, block: int) -> list[OffloadKey]:
        """The chunks that may have held this block."""
        state = self._requests.get(request.request_id)
        if state is None:
            return []
        own = state.groups[group_idx]
        return [own.keys[end] for end in own.ends_of_chunk(block // own.blocks_per_chunk * own.blocks_per_chunk)]

    def poll(self, now: float) -> None:
        """Handles ended transfers and deadlines of the tiers, and submits the next stores."""
        self._manager.poll(now)
        for result in self._worker.get_finished():
            if not self._loader.finished(result, now):
                self._storer.finished(result)
        self._storer.pump()

    def has_pending_work(self) -> bool:
        """Whether there is a reason to poll."""
        return self.holds_pages() or self._storer.has_more or self._manager.has_pending_work()

    def holds_pages(self) -> bool:
        """Whether transfers under way hold device pages, which come back when the transfers end."""
        return self._loader.is_loading or self._storer.is_storing

    def note_prefill(self, tokens: int, seconds: float) -> None:
        """The engine computed this number of prompt tokens in this time."""
        self._loader.worth.chooser.prefill.note(tokens, seconds)

    def wait(self, timeout_s: float) -> None:
        """Blocks until a transfer may have ended; for an engine that has nothing else to do."""
        if self.holds_pages():
            self._worker.wait_any(timeout_s)
        else:
            sleep(min(timeout_s, _PAUSE_FOR_TIERS_S))

    def stats(self) -> OffloadStats:
        loader, storer = self._loader, self._storer
        media = self._manager.media.names
        loaded_blocks: Counter[tuple[GroupIdx, str]] = Counter()
        for (group_idx, depth), blocks in loader.num_loaded_blocks.items():
            loaded_blocks[group_idx, media[depth]] += blocks  # two tiers may be of one medium
        return OffloadStats(
            loaded_tokens=loader.num_loaded_tokens,
            loaded_bytes=loader.num_loaded_bytes,
            loaded_blocks=loaded_blocks,
            loads_too_slow=loader.worth.chooser.num_too_slow,
            loads_cut_short=loader.worth.chooser.num_cut_short,
            loads_late=loader.num_late,
            failed_load_chunks=loader.num_failed_chunks,
            stored_chunks=storer.num_stored_chunks,
            stored_bytes=storer.num_stored_bytes,
            failed_store_chunks=storer.num_failed_chunks,
            dropped_stores=storer.num_dropped,
            hints=dict(self._manager.retentions.outcomes),
            load_speeds=self.load_speeds(),
        )

    def load_speeds(self) -> Mapping[str, LoadSpeed]:
        """How long loads take, by medium, as far as they were measured."""
        return load_speeds(
            self._groups, self._loader.worth.chooser.from_memory, self._manager.media.read_speeds, MEMORY
        )

    def status(self) -> OffloadStatus:
        """Where the chunks are, and how the tiers do."""
        return self._manager.status()

    def take_events(self) -> list[AnyEvent]:
        """What changed on the media below the device since the last call, if the manager logs changes."""
        return self._events.messages(self._manager.take_changes())

    def tell_all(self) -> None:
        """Tells all that is on these media anew, a portion with each `take_events`."""
        self._manager.tell_all()

    @property
    def is_telling(self) -> bool:
        """Whether the next `take_events` goes on with that."""
        return self._manager.has_more_changes

    @property
    def num_told_blocks(self) -> int:
        """At most this many blocks are told by `tell_all`."""
        status = self._manager.status()
        num_chunks = status.num_chunks + sum(tier.num_chunks for _, tier in status.tiers)
        return num_chunks * max(group.blocks_per_chunk for group in self._groups)

    def reset(self, *, tiers: bool = True) -> None:
        """Forgets what is offloaded, on all tiers or in memory only. Call it together with
        `KVCacheManager.reset_prefix_cache`."""
        self._storer.forget()
        self._manager.reset(tiers=tiers)

    def is_reset_durable(self, now: float) -> bool:
        """Whether no process finds what a `reset` forgot, even if this one is killed now."""
        self._manager.poll(now)
        return self._manager.is_reset_durable()

    def flush(self, timeout_s: float, clock: Callable[[], float]) -> bool:
        """Blocks until everything promised is on the last tier, as durable as that tier makes it. False if time is up
        before."""
        deadline = clock() + timeout_s
        while self._storer.pump(is_flushing=True) or self._storer.is_storing:
            if clock() >= deadline:
                return False
            self.wait(min(_LONGEST_WAIT_S, deadline - clock()))
            self.poll(clock())
        return self._manager.flush(max(0.0, deadline - clock()), clock)

    def close(self) -> None:
        """Gives up what is under way, and closes worker, tiers and arena in bounded time."""
        self._storer.forget()
        self._worker.close()
        self._manager.close()

    def _state_of(self, request: OffloadedRequest, now: float) -> RequestOffloadState:
        state = self._requests.get(request.request_id)
        if state is None:
            tenant = name_tenant(request.identity.cache_salt)
            groups = [
                RequestGroupState(config, group_idx, request.hashes(group_idx), self._name_chunk, tenant)
                for group_idx, config in enumerate_groups(self._groups)
            ]
            state = RequestOffloadState(request=request, groups=groups, deadline=now + self._patience_s)
            self._requests[request.request_id] = state
            self._hinter.begin(state, now)
        return state

    def _keys_of_resume(self, state: RequestOffloadState) -> list[OffloadKey]:
        """The chunks with which the request has resumed, wherever they came from: these are what it uses."""
        needed = self._device.config.blocks_to_resume(state.request.resume_point(state.resumed_tokens))
        return [
            key
            for own, runs in zip(state.groups, needed, strict=True)
            for run in runs
            for key in OffloadedBlocks(own, self._manager, ANYWHERE).keys_in(run)
        ]

    def _promise(self, state: RequestOffloadState, points: Sequence[int], now: float, *, is_milestone: bool) -> None:
        if self._may_persist(state.request):
            resumed_at = 0 if state.promised_tokens else state.resumed_tokens
            state.promised_tokens = points[-1]
            if self._manager.asks_ahead:
                self._manager.ask(state.names, wants_answer=False)
            self._hinter.promised(state, points, now, is_milestone=is_milestone)
            self._storer.promise(state, points, resumed_at=resumed_at, is_milestone=is_milestone)
