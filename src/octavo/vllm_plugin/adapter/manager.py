"""The scheduler's side: vLLM's questions to Octavo's manager.

A step of vLLM's scheduler:    lookup ... prepare_load ...   prepare_store ...   on_schedule_end
What may give up a chunk:                                    stores              promotions

(Up to 0.32, `on_schedule_end` comes before `prepare_store`.) A chunk that was answered HIT stays until `prepare_load`
pins it, because nothing that takes room comes between the two. HIT means that verified bytes are in memory. A chunk
below memory is HIT_PENDING: vLLM counts it when it searches for a window, and the request waits until the chunk is in
memory, or until the deadline; then it is a MISS. A chunk in memory is HIT_PENDING while the device has no room for
another request that loads before it runs (`LoadsAhead`), and in the step after a preemption.
"""

import atexit
import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType
from typing import Any
from weakref import WeakSet

import msgspec
from vllm.distributed.kv_events import AllBlocksCleared
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingManager,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)

from octavo.chunks import (
    LookupResult as Found,
    OffloadKey as Key,
    get_offload_group_idx,
)
from octavo.offload import MEMORY, OffloadConfig, OffloadingManager as Manager, Outlook
from octavo.vllm_plugin.adapter.choosing import Choosing
from octavo.vllm_plugin.adapter.chunk_slots import ChunkSlots
from octavo.vllm_plugin.adapter.hints import Hinter
from octavo.vllm_plugin.adapter.metrics import MetricsOfTiers
from octavo.vllm_plugin.adapter.questions import Questions
from octavo.vllm_plugin.adapter.recording import RecorderOfRequests
from octavo.vllm_plugin.adapter.request import RequestState, request_of, state_of
from octavo.vllm_plugin.adapter.transfers import Transfers, as_keys
from octavo.vllm_plugin.adapter.waits import Waits
from octavo.vllm_plugin.adapter.weights import LoadedWeights
from octavo.vllm_plugin.groups import SharedGroup, draft_tokens
from octavo.vllm_plugin.loads_ahead import LoadsAhead
from octavo.vllm_plugin.promised import PromisedChunks
from octavo.vllm_plugin.ranks import Loaded, RankReport
from octavo.vllm_plugin.shared_arena import SharedArena
from octavo.why import MARK, MissLog

logger = logging.getLogger(__name__)
shown_logger = logging.getLogger("vllm.octavo")
"""vLLM writes the lines of its own loggers from level INFO on, and only warnings of others."""

_TELLS_OF_FLUSH = hasattr(OffloadingManager, "on_reset_flushed")
_STATS_EVERY_S = 0.5
_FLUSH_S = 10.0
_RESET_S = 5.0
_EMPTY_STEP_S = 0.001
_PAUSE_S = 0.0005
"""vLLM goes round without a pause while a request waits for tiers, and takes the interpreter from their threads. Steps
that come faster than any model computes are slowed down by this much."""


class OctavoManager(OffloadingManager):
    """Octavo's manager, as vLLM's scheduler asks it."""

    def __init__(
        self,
        manager: Manager,
        shared: SharedArena,
        groups: Sequence[SharedGroup],
        report: RankReport,
        offload: OffloadConfig,
        *,
        tokens_per_hash: int,
        keeps_media: bool,
        recorder: RecorderOfRequests | None,
        misses: MissLog | None,
        take_loaded: Callable[[], Collection[Loaded]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`report`: of the first rank. `keeps_media`: whether prompts with images and the like go below memory.
        `take_loaded`: what was loaded into the engine since the last call."""
        timeout_s = offload.load_timeout_s
        self.manager = manager
        self._shared = shared
        self._groups = groups
        self._promised = PromisedChunks(groups, draft_tokens=draft_tokens(groups))
        self._tokens_per_hash = tokens_per_hash
        self._keeps_media = keeps_media
        self._takes_adapters = report.takes_adapters
        """Requests that may come with one stay in memory."""
        self._may_store = report.stores
        self._questions = Questions(manager, groups, tokens_per_hash=tokens_per_hash, timeout_s=timeout_s)
        self._choosing = Choosing(
            manager, groups, self._questions, offload.loads, tokens_per_hash=tokens_per_hash, timeout_s=timeout_s
        )
        self._ahead: LoadsAhead[RequestState] = LoadsAhead(report.device)
        self._hinter = Hinter(manager, groups, self._promised)
        self._recorder = recorder
        self._misses = misses
        self._weights = LoadedWeights(manager, take_loaded)
        self._clock = clock
        self._is_closed = False
        self._is_new_step = True
        self._step_ended_at = 0.0
        self._waits = Waits(manager, groups, timeout_s=timeout_s)
        self._looked_up: dict[RequestState, None] = {}
        """Requests that asked for anything in this step."""
        self._alive: WeakSet[RequestState] = WeakSet()
        self.transfers = Transfers(manager, shared, groups)
        self._metrics = MetricsOfTiers()
        self._stats_due_at = 0.0
        self._was_busy = False
        """Whether there was work since stats were last told, since a transfer may begin and end between two calls of
        vLLM."""
        atexit.register(self.shutdown)  # an engine in the caller's own process is rarely shut down

    # ---- finding ------------------------------------------------------------------------------------------------

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        state = state_of(req_context)
        self._alive.add(state)
        caller = sys._getframe(1)  # noqa: SLF001 - vLLM says it nowhere else
        request = request_of(caller)
        state.begin(request, self._tokens_per_hash)
        state.may_store = self._may_store
        self._questions.begin(req_context, request, state.tenant)
        state.keeps_media = self._keeps_media
        state.is_confined = self._weights.are_others or (self._takes_adapters and state.may_have_adapter)
        self._hinter.begin(req_context, state)
        if self._recorder is not None:
            self._recorder.begin(req_context, caller)
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._waits.let_go(state_of(req_context))
        self._hinter.ended(state_of(req_context), self._clock())
        if self._recorder is not None:
            is_below = bool(state_of(req_context).from_tiers)
            self._recorder.end(req_context, self.manager.media.names[-1 if is_below else 0])
        if self._misses is not None:
            state = state_of(req_context)
            report = self._misses.report(
                req_context.req_id,
                state.looks,
                gave_up_waiting=state.gave_up_waiting,
                gave_up_loading=state.gave_up_loading,
            )
            shown_logger.info("%s%s", MARK, msgspec.json.encode(report).decode())

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        if self._is_new_step:
            self._is_new_step = False
            self._weights.look(self._alive, sys._getframe(1))  # noqa: SLF001 - vLLM says it nowhere else
            self.manager.poll(self._clock())
        state = state_of(req_context)
        state.may_store = self._may_store  # after a reset too: vLLM asks for who begins, without any page
        if not state.may_load:
            return LookupResult.MISS
        outlook = state.outlook or self._choosing.choose(state, req_context, key, self._clock())
        if outlook is None:
            return LookupResult.RETRY
        found = LookupResult.MISS if outlook is Outlook.COMPUTE else self._look(key, req_context, state, outlook)
        state.tell_point(self._promised, state.device_tokens)
        return found

    def _look(self, key: OffloadKey, req_context: ReqContext, state: RequestState, outlook: Outlook) -> LookupResult:
        """Where a chunk is, if it is to be loaded."""
        self._looked_up[state] = None
        (found,) = self.manager.lookup((Key(key),))
        if found is Found.MISS and state.may_promote and self._questions.awaits(req_context, self._clock()):
            return LookupResult.RETRY
        if self._misses is not None:
            end = req_context.get_offload_key_position(key) or 0
            self._misses.looked(state.looks, Key(key), end, is_there=found is not Found.MISS)
        if found is Found.MISS or (outlook is Outlook.LOAD_PART and found is not Found.HIT):
            return LookupResult.MISS
        state.asked[key] = None
        if self._promised.is_prefix[get_offload_group_idx(Key(key))]:
            state.note_found(key)
        if found is Found.HIT:
            may_load = not state.is_just_preempted and self._ahead.may_load(state, state.num_tokens)
            return LookupResult.HIT if may_load else LookupResult.HIT_PENDING
        if self._waits.has_given_up(state, self._clock()) or (found is Found.RETRY and not state.may_promote):
            return LookupResult.MISS
        if found is Found.RETRY:
            self._questions.announce_once(req_context)
        self._waits.add(state)
        return LookupResult.HIT_PENDING

    def get_load_source(self, key: OffloadKey, req_context: ReqContext) -> Any:
        """Called by vLLM 0.32 and later."""
        from vllm.v1.metrics.cache_hit_source import CacheHitSource  # 0.31 does not have it

        return CacheHitSource.DISK if key in state_of(req_context).from_tiers else CacheHitSource.HOST

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        now = self._clock()
        if self._is_new_step:
            self._weights.look(self._alive, sys._getframe(1))  # noqa: SLF001 - vLLM says it nowhere else
            self.manager.poll(now)
        self._waits.end_step(now)
        self._ahead.end_step(_waits_with_pages)
        for state in self._looked_up:
            state.end_step()
        self._looked_up.clear()
        is_waiting = self._questions.are_open or self.manager.has_pending_work()
        if now - self._step_ended_at < _EMPTY_STEP_S and is_waiting:
            time.sleep(_PAUSE_S)
        self._questions.end_step()
        self._choosing.step_scheduled(sys._getframe(1), now)  # noqa: SLF001 - vLLM says it nowhere else
        self._step_ended_at = now
        self._is_new_step = True

    def has_pending_work(self) -> bool:
        """vLLM steps on while this is true, and a pause of the engine waits for it. Who waits in a pause does not take
        what was read for it."""
        return self.manager.is_moving()

    # ---- loads and stores ---------------------------------------------------------------------------------------

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> ChunkSlots:
        slots = self.transfers.begin_load(keys)
        state = state_of(req_context)
        state.looks.is_over = True
        self._serve(state, keys)
        if not state.stays_in_memory:
            self.manager.renew(as_keys(keys))
        self._waits.begin_load(state)
        self._was_busy = True
        self._choosing.load_begins(state, keys, self._clock())
        self._ahead.begins(state, state.num_tokens)
        return slots

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        self.transfers.end_load(keys)
        self._choosing.load_ends(state_of(req_context), self._clock())

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput | None:
        self._weights.look(self._alive, sys._getframe(1))  # noqa: SLF001 - vLLM says it nowhere else
        state = state_of(req_context)
        state.looks.is_over = True
        state.outlook, state.deadline = None, math.inf  # it may be preempted, and wait again
        may_store = state.may_store and not state.is_continued and not self._weights.may_go_on_with_former(state)
        if may_store:
            self._questions.announce(req_context)
        self._serve(state)
        if not may_store:
            return self.transfers.begin_empty_store()
        chunks = state.chunks(state.promised(keys, self._promised), self._groups)
        points = state.promised_points(keys, self._promised)
        begun = self.transfers.begin_store(chunks, points, stays_in_memory=state.stays_in_memory)
        self._was_busy |= begun is not None
        return begun

    def complete_store(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        self.transfers.end_store(keys, success=success)

    def _serve(self, state: RequestState, loaded: Collection[OffloadKey] = ()) -> None:
        """The request is loaded or computed. The first time, the chunks with which it resumes count as used, wherever
        they were, and the next request may resume there too."""
        self._waits.let_go(state)
        if state.is_served:
            return
        num_tokens = state.resume(loaded)
        if loaded:
            state.tell_point(self._promised, num_tokens)
        resumed = self._promised.point_of_resume(num_tokens)
        used = [*state.keys_of_resume(self._promised, resumed), *as_keys(loaded)]  # a load may have a tail besides
        self.manager.touch(list(dict.fromkeys(used)))
        block_hash = state.find_hash(resumed)
        if block_hash is not None:
            self.manager.prepare_store((), (state.promise(resumed, block_hash),))
        self._hinter.served(state, self._clock())

    # ---- the rest -----------------------------------------------------------------------------------------------

    def take_events(self) -> Iterator[OffloadingEvent]:
        """The changes since the last step. What a reset forgot is named chunk by chunk: the device's pool tells of a
        clear only if no request held pages. After such a clear all that is here is told anew, since followers cannot
        know that it was the device's alone."""
        if self.manager.logs_changes and _tells_of_clear(sys._getframe(1)):  # noqa: SLF001 - vLLM says it nowhere else
            self.manager.tell_all()
        for medium in self.manager.take_changes().media:
            for keys, removed in ((medium.removed, True), (medium.stored, False)):
                if keys:
                    yield _event(medium.medium, keys, removed=removed)

    def reset_cache(self) -> None:
        """vLLM ends all transfers before it uses a device page or a slot again, and does not speak of them any more. A
        tier does not wait for that: from 0.33 on, which says when all have ended, it gets their slots only then.

        Requests that go on with their pages store no more: vLLM would begin again at their first chunk, with the
        numbers of device pages that their windows have passed since, and that belong to others now. Those that wait, or
        are preempted by the reset, begin anew, and are looked up first."""
        for state in self._alive:
            state.may_store = False
        self.manager.reset(tells_each=True)
        self.transfers.stop()
        if not _TELLS_OF_FLUSH:
            self.transfers.end_stopped()
        self._choosing.reset()
        self._await_durable_reset()

    def on_reset_flushed(self) -> None:
        self.transfers.end_stopped()

    def _await_durable_reset(self) -> None:
        """vLLM answers its client when this returns, and the answer is to hold after a crash too."""
        deadline = time.monotonic() + _RESET_S
        while not self.manager.is_reset_durable():
            if time.monotonic() >= deadline:
                logger.warning(
                    "a disk has not confirmed the reset of the caches within %g s: a process that starts after a crash "
                    "may find what was forgotten; reset again",
                    _RESET_S,
                )
                return
            time.sleep(_PAUSE_S)
            self.manager.poll(self._clock())

    def get_stats(self) -> OffloadingConnectorStats | None:
        """vLLM asks in every step, which is more often than anybody looks. So this answers now and then, and when work
        has ended."""
        now = self._clock()
        self._choosing.step_ended(now)
        is_busy = bool(self.transfers) or self.manager.has_pending_work()
        has_ended = self._was_busy and not is_busy
        self._was_busy = is_busy
        if now < self._stats_due_at and not has_ended:
            return None
        self._stats_due_at = now + _STATS_EVERY_S
        return self._metrics.stats(
            self.manager.status(),
            {"waits_given_up": self._waits.num_given_up},
            self.manager.retentions.outcomes,
            self._choosing.given_up,
        )

    def shutdown(self) -> None:
        """Writes what waits for the tiers, in bounded time. A second call changes nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.shutdown)
        if not self.manager.flush(_FLUSH_S, self._clock):
            logger.warning(
                "the tiers have not taken all that was stored: one is off, or takes more than %d s", _FLUSH_S
            )
        self.manager.close()
        self._shared.close()
        if self._recorder is not None:
            self._recorder.close()


def _waits_with_pages(state: RequestState) -> bool:
    return state.waits_with_pages


def _tells_of_clear(caller: FrameType | None) -> bool:
    """Whether the device's events of this step have a clear. vLLM's scheduler collects both in its variable `events`.
    False if there is none."""
    while caller is not None:
        events = caller.f_locals.get("events")
        if isinstance(events, list):
            return any(isinstance(event, AllBlocksCleared) for event in events)
        caller = caller.f_back
    return False


def _event(medium: str, keys: Sequence[Key], *, removed: bool) -> OffloadingEvent:
    is_memory = medium == MEMORY
    return OffloadingEvent(
        keys=list(map(OffloadKey, keys)),
        medium=Medium.CPU if is_memory else Medium.STORAGE,
        removed=removed,
        locality=Locality.LOCAL,
        ownership=None if is_memory else medium,
        removal_expected=True,
    )
