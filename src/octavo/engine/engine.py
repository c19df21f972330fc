"""`Engine`: requests in, tokens out, one step at a time, in one thread.

    add_request   the prompt is hashed and waits
    step          schedule -> run the model -> settle: commit, fork and sample; each choice goes on or ends
    abort         between two steps

If a step's forward pass fails, the requests in it end with an error. Their pages are freed unpublished, as they may
hold anything; all other requests go on.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from octavo.blocks import Allocation, KVCacheManager
from octavo.chunks import Hint
from octavo.engine.asked import check_params, check_prompt
from octavo.engine.config import EngineConfig
from octavo.engine.event_feed import EventFeed
from octavo.engine.forward import Forward, StepRunner
from octavo.engine.grammars import GrammarCompiler
from octavo.engine.live_requests import LiveRequests
from octavo.engine.offload_hooks import OffloadHooks, OffloadStats
from octavo.engine.outputs import FinishReason, RequestOutput
from octavo.engine.progress import ProgressWatch
from octavo.engine.request import Choice, Request, find_text_before
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import Chunk, Scheduler, SchedulerLimits
from octavo.engine.settling import Settling
from octavo.engine.statistics import EngineCounters, EngineSnapshot, take_snapshot
from octavo.engine.tokenizer import FastTokenizer
from octavo.engine.why_hooks import make_why_log, start_noter
from octavo.errors import InputError
from octavo.events import ZmqPublisher
from octavo.hashing import PLAIN, RequestIdentity
from octavo.recording import RequestRecorder
from octavo.units import counted

if TYPE_CHECKING:
    from octavo.engine.runner import ModelRunner

_logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.02
"""The longest wait for a transfer when nothing can be computed; then new requests are looked at."""
_HOUSEKEEPING_S = 0.5
"""The interval at which tiers are polled without transfers, so that they sync accepted chunks in time."""


class Engine:
    """One model on one device, with all its requests. Not thread-safe: see `AsyncEngine`."""

    def __init__(
        self,
        runner: StepRunner,
        manager: KVCacheManager,
        limits: SchedulerLimits,
        *,
        vocab_size: int,
        tokenizer: FastTokenizer | None = None,
        eos_token_ids: Iterable[int] = (),
        offload: OffloadHooks | None = None,
        event_feed: EventFeed | None = None,
        recorder: RequestRecorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self.manager = manager
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(token for token in eos_token_ids if 0 <= token < vocab_size)
        self.grammars = None if tokenizer is None else GrammarCompiler(tokenizer, vocab_size, self.eos_token_ids)
        self.counters = EngineCounters()
        self.why = make_why_log(manager, offload)
        """Why requests resumed where they did; None where nothing is cached."""
        note = start_noter(self.why, lambda: self._clock() - self._began_at)
        self.scheduler = Scheduler(
            manager, limits, execute=self._make_copies, counters=self.counters, offload=offload, note_start=note
        )
        self._forward = Forward(
            runner, self.counters, clock=clock, note_prefill=[s.note_prefill for s in (offload, self.why) if s]
        )
        self._progress = ProgressWatch(self.max_model_len)
        self._offload = offload
        self.stores = {} if offload is None else offload.stores
        """By medium: the name of the store that it shares with others."""
        self._event_feed = event_feed
        self._recorder = recorder
        self._began_at = clock()
        if event_feed is not None and offload is not None:
            event_feed.follow(offload)
        self._clock = clock
        self._requests = LiveRequests(self.scheduler, self.counters, why=self.why, recorder=recorder)
        self._settling = Settling(self.scheduler, self._requests, self.counters, new_blocks_id=self._new_blocks_id)
        self._num_blocks_ids = 0
        self._failed_copy: Exception | None = None

    @classmethod
    def from_config(
        cls,
        config: EngineConfig,
        *,
        make_offload: "Callable[[KVCacheManager, ModelRunner], OffloadHooks] | None" = None,
    ) -> Self:
        """Loads the model, plans its cache and allocates the pool. The publisher of events starts first, so that a port
        in use is noticed before anything slow begins."""
        from octavo.engine.building import build_parts  # it imports transformers, which takes seconds

        with ExitStack() as opened:
            publisher = None if config.kv_events is None else opened.enter_context(ZmqPublisher(config.kv_events))
            parts = build_parts(config)
            offload = None if make_offload is None else make_offload(parts.manager, parts.runner)
            opened.pop_all()
        return cls(
            parts.runner,
            parts.manager,
            parts.limits,
            vocab_size=parts.vocab_size,
            tokenizer=parts.tokenizer,
            eos_token_ids=parts.eos_token_ids,
            offload=offload,
            event_feed=None if publisher is None else EventFeed(parts.manager, publisher),
            recorder=parts.recorder,
        )

    @property
    def event_endpoints(self) -> Sequence[str]:
        """The endpoints of live events and of their replay, with the real ports."""
        return () if self._event_feed is None else self._event_feed.endpoints

    @property
    def max_model_len(self) -> int:
        """The longest context: prompt and output together."""
        return self.manager.config.limits.max_model_len

    @property
    def has_unfinished(self) -> bool:
        return bool(self._requests)

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        tenant: str | None = None,
        hints: Sequence[Hint] = (),
    ) -> None:
        """Puts a request into the queue, or raises and keeps nothing of it.

        Requests share what is cached only under the same `cache_salt`. Tenants share the seats. `hints` go to
        offloading.
        """
        params = params or SamplingParams()
        if request_id in self._requests:
            raise InputError(f"request {request_id!r} is there already")
        prompt = check_prompt(prompt_token_ids, self.vocab_size)
        check_params(params, self.vocab_size, has_tokenizer=self.tokenizer is not None)
        self.scheduler.check(len(prompt), params.n)
        identity = PLAIN if cache_salt is None else RequestIdentity(cache_salt=cache_salt)
        blocks = self.manager.begin_request(self._new_blocks_id(), prompt, identity)
        room = self.max_model_len - len(prompt)
        request = Request(
            request_id=request_id,
            params=params,
            arrival=self.counters.requests,
            tenant=tenant,
            num_prompt_tokens=len(prompt),
            eos_token_ids=self.eos_token_ids,
            max_output_tokens=room if params.max_tokens is None else min(room, params.max_tokens),
            decoder=None if self.tokenizer is None else self.tokenizer.backend_tokenizer,
            text_before=find_text_before(prompt_token_ids, params),
            arrival_s=self._clock() - self._began_at,
        )
        self._requests.add(request)
        if self._offload is not None and hints:
            self._offload.hint(blocks.request_id, hints)
        self.scheduler.add(Choice.first_of(request, blocks), self._clock())
        self.counters.requests += 1
        self.counters.prompt_tokens += len(prompt)

    def abort(self, request_id: str) -> list[RequestOutput]:
        """Ends a request now, and returns its last outputs; none if it has already ended."""
        request = self._requests.find(request_id)
        if request is None:
            return []
        outputs = self._requests.end(request, FinishReason.ABORT)
        self._publish_events()
        return outputs

    def abort_all(self) -> list[RequestOutput]:
        """Ends all requests."""
        return [output for request_id in self._requests.ids for output in self.abort(request_id)]

    # ---- steps -----------------------------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Computes what can be computed now, and returns the new outputs."""
        began = self._clock()
        if self._offload is not None:
            self._offload.poll(began)
        chunks = self.scheduler.schedule(began)
        outputs = self._fail_if_copies_failed()
        if outputs:
            return outputs
        if not chunks:
            if self._progress.note_idle_step(began):
                self._relieve(began)
            return self._wait_or_give_up()
        outputs = self._compute(chunks, began)
        if self._progress.note_step(chunks):
            self._relieve(began)
        outputs += self._fail_if_copies_failed()
        self._publish_events()
        self.counters.steps += 1
        self.counters.step_s += self._clock() - began
        return outputs

    def rest(self) -> float | None:
        """Works on while there are no requests: transfers end, tiers write. Returns the seconds until the next call;
        None if none is needed."""
        self._progress.note_rest()
        if self._offload is None and self._event_feed is None:
            return None
        if self._offload is not None:
            self._offload.poll(self._clock())
        self._publish_events()
        is_writing = self._offload is not None and self._offload.has_pending_work()
        is_telling = self._event_feed is not None and self._event_feed.is_telling
        return _LONGEST_WAIT_S if is_writing or is_telling else _HOUSEKEEPING_S

    def reset_prefix_cache(self, *, tiers: bool = True) -> None:
        """Forgets all that is cached, on all media or, without `tiers`, on the device and in memory. Running requests
        go on, and publish nothing any more."""
        self.manager.reset_prefix_cache()
        if self._offload is not None:
            self._offload.reset(tiers=tiers)
        if self.why is not None:
            self.why.reset()
        self._publish_events()

    def is_reset_durable(self) -> bool:
        """Whether all that `reset_prefix_cache` forgot stays forgotten, even if this process is killed now."""
        return self._offload is None or self._offload.is_reset_durable(self._clock())

    def offload_stats(self) -> OffloadStats | None:
        """Counts of loads and stores; None without offloading."""
        return None if self._offload is None else self._offload.stats()

    def snapshot(self) -> EngineSnapshot:
        """A snapshot of the engine now."""
        return take_snapshot(
            self.manager,
            self.counters,
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            is_stalled=self._progress.is_stalled,
        )

    def close(self, *, flush_timeout_s: float = 10.0) -> None:
        """Ends all requests, finishes writes to slower media, and closes what was opened."""
        self.abort_all()
        if self._offload is not None:
            self._offload.flush(flush_timeout_s, self._clock)
            self._offload.close()
        if self._event_feed is not None:
            self._event_feed.close()
        if self._recorder is not None:
            self._recorder.close()

    # ---- what fails, and who waits -----------------------------------------------------------------------------------

    def _compute(self, chunks: Sequence[Chunk], now: float) -> list[RequestOutput]:
        try:
            logits = self._forward.run(chunks)
        except Exception as error:
            _logger.exception("a step with %s failed", counted(len(chunks), "sequence"))
            return self._requests.fail((chunk.choice.request for chunk in chunks), error)
        return self._settling.settle(chunks, logits.last, now)

    def _make_copies(self, allocation: Allocation) -> None:
        try:
            self.runner.execute((allocation,))
        except Exception as error:
            _logger.exception("copies between pages failed")
            self._failed_copy = error

    def _fail_if_copies_failed(self) -> list[RequestOutput]:
        """If copies failed, ends all that runs and forgets the cache, as any page may hold anything."""
        if self._failed_copy is None:
            return []
        error, self._failed_copy = self._failed_copy, None
        outputs = self._requests.fail((choice.request for choice in list(self.scheduler.running)), error)
        self.reset_prefix_cache()
        return outputs

    def _wait_or_give_up(self) -> list[RequestOutput]:
        """Handles a step in which nothing could be scheduled: transfers hold pages, or requests wait for them."""
        self._publish_events()
        if self._offload is not None and (self.scheduler.is_waiting_for_loads or self._offload.has_pending_work()):
            self._offload.wait(_LONGEST_WAIT_S)
            return []
        stuck = self.scheduler.find_stuck()
        if stuck is None:
            return []
        return self._requests.fail([stuck.request], RuntimeError("the empty pool has no room for the request"))

    def _relieve(self, now: float) -> None:
        """Logs that no request makes progress, and lets the oldest go on alone."""
        self.counters.stalls += 1
        _logger.warning(
            "no request gets further, with %d running and %d waiting; the oldest goes on alone until it ends",
            len(self.scheduler.running),
            len(self.scheduler.waiting),
        )
        self.scheduler.let_oldest_go_on_alone(now)

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _new_blocks_id(self) -> str:
        self._num_blocks_ids += 1
        return f"r{self._num_blocks_ids}"

    def _publish_events(self) -> None:
        if self._event_feed is not None:
            self._event_feed.publish()
