"""`KVCacheManager`: the facade that an engine calls.

A request's life:

    begin_request   hash the prompt
    find_resume     how much of it can be resumed: advice, nothing changes
    allocate        room for tokens up to n; the first call takes up the resume. None: nothing has changed
    commit          tokens up to n are computed and final: publish full blocks, let go what is no longer needed
    append_tokens   sampled tokens
    free / preempt  let everything go; it stays findable until it is evicted

The manager moves no bytes. What must be copied is returned as data, to be done before the step's kernels run.
"""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from octavo.blocks.compaction import PageMove
from octavo.blocks.holders import check_holders
from octavo.blocks.pool import BlockPool, ClassUsage, UndoHold
from octavo.blocks.request import RequestBlocks, as_token_array
from octavo.blocks.request_hashes import RequestHasher
from octavo.blocks.resume_plan import ResumePlan, find_resume
from octavo.blocks.room import NOTHING_TO_COPY, Allocation, ManagedGroup, Room
from octavo.blocks.stats import PrefixCacheStats
from octavo.errors import InputError, RequestTooLargeError
from octavo.events import CacheChanges
from octavo.hashing import PLAIN, BlockHasher, RequestIdentity
from octavo.ids import enumerate_groups
from octavo.planning import KVCacheConfig
from octavo.specs import BlockTable, KVCacheSpecRegistry, PageCopy, PromisePlan

_NEVER = 1 << 62


class KVCacheManager:
    """The device cache of one rank, for all groups of a plan."""

    def __init__(
        self,
        config: KVCacheConfig,
        *,
        hasher: BlockHasher | None = None,
        enable_prefix_caching: bool = True,
        enable_events: bool = False,
    ) -> None:
        self.config = config
        self.is_caching = enable_prefix_caching
        self.hasher = hasher or BlockHasher(hash_block_size=config.hash_block_size)
        self._hashes = RequestHasher(config, self.hasher, is_caching=enable_prefix_caching)
        self.pool = BlockPool(config, logs_changes=enable_events)
        self.requests: dict[str, RequestBlocks] = {}
        self._class_of = [group.page_class or 0 for group in config.groups]
        self._managed: list[ManagedGroup] = [
            (index, KVCacheSpecRegistry.get_manager_class(group.spec)(group.spec, index, self.pool), group.page_class)
            for index, group in enumerate_groups(config.groups)
            if group.page_class is not None
        ]
        self._room = Room(config, self.pool, self._managed)
        self.reserved_rows = self._room.take_reserved()
        """By group: rows for sinks, and the null row where a kernel needs one. They are never let go."""
        self._has_short_steps = any(group.block_size > config.limits.max_step_tokens for group in config.groups)
        """Whether a step may be shorter than a block. Then a request is within what the plan reserves for it only if
        windows let go after every step what they no longer need; else it is enough to do so once per block."""
        self._keeps_checkpoints = enable_prefix_caching and any(g.spec.holds_checkpoints for g in config.groups)
        self._stats = PrefixCacheStats()

    # ---- a request's life --------------------------------------------------------------------------------------

    def begin_request(
        self,
        request_id: str,
        tokens: Sequence[int] | np.ndarray,
        identity: RequestIdentity = PLAIN,
        *,
        num_encoder_tokens: int = 0,
    ) -> RequestBlocks:
        """A new request with its prompt hashed. int32 arrays are the fastest."""
        self._check_id(request_id)
        self.check_size(len(tokens), num_encoder_tokens)
        request = self._new_request(request_id, as_token_array(tokens), identity, num_encoder_tokens)
        self._hashes.hash_prompt(request, tokens)
        self.requests[request_id] = request
        return request

    def begin_again(self, request: RequestBlocks, request_id: str) -> RequestBlocks:
        """A new request with the prompt and the identity of another, whose hashes it takes over."""
        self._check_id(request_id)
        prompt = request.tokens[: request.num_prompt_tokens]
        twin = self._new_request(request_id, prompt, request.identity, request.num_encoder_tokens)
        self._hashes.take_over(request, twin)
        self.requests[request_id] = twin
        return twin

    def check_size(self, num_tokens: int, num_encoder_tokens: int = 0) -> None:
        """Raises RequestTooLargeError where no pool state could ever hold such a request."""
        limits = self.config.limits
        if num_tokens < 1:
            raise InputError("a request needs at least one token")
        if num_tokens > limits.max_model_len:
            raise RequestTooLargeError(
                f"{num_tokens:,} tokens are more than the plan's longest context of {limits.max_model_len:,}"
            )
        if num_encoder_tokens > limits.max_encoder_tokens:
            raise RequestTooLargeError(
                f"{num_encoder_tokens:,} encoder tokens are more than the plan's {limits.max_encoder_tokens:,}"
            )

    def append_tokens(self, request: RequestBlocks, tokens: Iterable[int]) -> None:
        """Known tokens grow: sampled ones, or a prompt that arrives in parts. They are hashed when that is needed."""
        more = as_token_array(list(tokens))
        if more and min(more) < 0:
            raise InputError(f"tokens must be whole numbers from 0 to 2**31 - 1, not {min(more)}")
        request.tokens.extend(more)

    def hash_new_tokens(self, request: RequestBlocks) -> None:
        """Names the blocks that have become full since the last time."""
        self._hashes.hash_new_tokens(request)

    def find_resume(self, request: RequestBlocks) -> ResumePlan:
        """The largest boundary at which every group has what it needs. Changes nothing in the cache."""
        self.hash_new_tokens(request)
        return find_resume(self.pool, request, request.num_tokens)

    def allocate(
        self,
        request: RequestBlocks,
        num_tokens: int,
        *,
        resume: ResumePlan | None = None,
        num_lookahead_tokens: int = 0,
        must_fit_tokens: int = 0,
    ) -> Allocation | None:
        """Room for computing tokens up to `num_tokens`, and for drafts after them. None: nothing has changed.

        The first call of a request takes up `resume`: computing goes on at `request.num_computed_tokens`, which may be
        lower than the plan said if the cache has changed since. A request is admitted only if
        `must_fit_tokens` tokens would fit now, so that one whose prompt comes in chunks does not fail half way.
        """
        if num_tokens <= request.num_computed_tokens:
            raise InputError(
                f"request {request.request_id!r} has computed {request.num_computed_tokens:,} tokens; "
                f"a step that ends at {num_tokens:,} computes nothing"
            )
        if num_tokens + num_lookahead_tokens <= request.extend_at:
            request.num_scheduled_tokens = num_tokens
            return NOTHING_TO_COPY
        self._check_live(request)
        self.check_size(num_tokens, request.num_encoder_tokens)
        if request.is_started:
            return self._extend(request, num_tokens, num_lookahead_tokens, must_fit_tokens)
        if resume is not None and resume.epoch != self.pool.epoch:
            resume = self._find_again(request, resume)
        undo = self._start(request, resume)
        allocation = self._extend(request, num_tokens, num_lookahead_tokens, must_fit_tokens)
        if allocation is None:
            self._clear_tables(request)
            self.pool.undo_holds(undo)
        else:
            self._record_start(request, resume)
        return allocation

    def commit(self, request: RequestBlocks, num_tokens: int, *, num_rejected_tokens: int = 0) -> None:
        """Tokens up to `num_tokens` are computed and final; rejected drafts after them will be written again."""
        request.num_scheduled_tokens -= num_rejected_tokens
        is_decoding = len(request.tokens) - num_tokens <= 1
        if num_tokens >= request.commit_at or not is_decoding:  # a long step needs what windows let go by now
            self._commit_groups(request, num_tokens)
            self._set_next_events(request)
        else:
            request.num_computed_tokens = num_tokens

    def decode_step(
        self, requests: Sequence[RequestBlocks], tokens: Sequence[int]
    ) -> list[tuple[RequestBlocks, Allocation | None]]:
        """Each request's step is done and one token sampled: commits the step, and makes room for the next one.

        Returns the requests for which there was something to do, each with what `allocate` says: None is a request
        that has no room and must wait or be preempted. All others may go on as they are. The caller ends requests
        that have reached the plan's longest context; at one that it has not, RequestTooLargeError, and what stands
        behind that request in the batch is as it was.
        """
        if len(requests) != len(tokens):
            raise InputError(f"{len(requests)} requests and {len(tokens)} tokens: each request needs one")
        eventful: list[tuple[RequestBlocks, Allocation | None]] = []
        for request, token in zip(requests, tokens, strict=True):
            known = request.tokens
            known.append(token)
            num_tokens = len(known)
            if num_tokens <= request.quiet_until:
                request.num_computed_tokens = num_tokens - 1
                request.num_scheduled_tokens = num_tokens
            else:
                if num_tokens > self.config.limits.max_model_len:
                    known.pop()
                    self.check_size(num_tokens)
                self._check_live(request)
                self._commit_groups(request, num_tokens - 1)
                eventful.append((request, self._extend(request, num_tokens, 0, 0)))
        return eventful

    def free(self, request: RequestBlocks) -> None:
        """The request ends, at any point of its life. What is published stays findable until it is evicted."""
        self._check_live(request)
        self._release(request)
        del self.requests[request.request_id]

    def preempt(self, request: RequestBlocks) -> None:
        """The request gives up its pages, and can start again with all its tokens known."""
        self._check_live(request)
        self._release(request)
        self._clear_tables(request)

    def fork(self, request: RequestBlocks, request_id: str) -> RequestBlocks:
        """A second request that goes on from the computed tokens of the first, sharing its pages.

        No step of the first is in flight. Whoever writes a shared page first gets a copy.
        """
        self._check_id(request_id)
        self._check_live(request)
        if request.num_scheduled_tokens != request.num_computed_tokens:
            raise InputError(f"request {request.request_id!r} has a step in flight; commit it before it is forked")
        twin = request.copy(request_id)
        twin.tables = [BlockTable() for _ in request.tables]
        for index, manager, _ in self._managed:
            twin.tables[index] = manager.fork(request.tables[index], request)
        self.requests[request_id] = twin
        self._set_next_events(request)
        self._set_next_events(twin)
        return twin

    # ---- what the engine asks besides ----------------------------------------------------------------------------

    def cut_prefill(self, request: RequestBlocks, num_tokens: int, resume: ResumePlan | None = None) -> int:
        """Where a prefill chunk up to `num_tokens` must end: recurrent state is kept only where a step ends.

        `resume` is what the request's first allocation will take up.
        """
        if not self._keeps_checkpoints:
            return num_tokens
        if request.is_started or resume is None:
            boundary = request.promises.next_after(request.num_scheduled_tokens)
        else:
            promises = request.promises.with_branch_point(resume.branch_point)
            boundary = promises.next_after(resume.num_tokens)
        return num_tokens if boundary is None else min(num_tokens, boundary)

    def reset_prefix_cache(self) -> None:
        """Forgets all that is cached, for new weights. Running requests go on, and publish nothing any more."""
        self.pool.forget_everything()

    def take_changes(self) -> CacheChanges:
        """The net effect on the index since the last call; what was stored is what may be offloaded."""
        return self.pool.take_changes()

    def take_stats(self) -> PrefixCacheStats:
        """The hit statistics since the last call."""
        stats, self._stats = self._stats, PrefixCacheStats()
        return stats

    def usage(self) -> tuple[ClassUsage, ...]:
        """How the pages of each class are used now."""
        return self.pool.usage()

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _check_id(self, request_id: str) -> None:
        if request_id in self.requests:
            raise InputError(f"request {request_id!r} is there already")

    def _check_live(self, request: RequestBlocks) -> None:
        if self.requests.get(request.request_id) is not request:
            raise InputError(f"request {request.request_id!r} is not one of this manager's: it ended, or is another's")

    def _new_request(
        self, request_id: str, tokens: "array[int]", identity: RequestIdentity, num_encoder_tokens: int
    ) -> RequestBlocks:
        request = RequestBlocks(
            request_id,
            tokens,
            identity,
            num_encoder_tokens=num_encoder_tokens,
            promises=PromisePlan(
                granularity=self.config.resume_granularity,
                prompt_boundary=self.config.last_boundary(len(tokens)),
                spacing_tokens=self.config.checkpoint_interval_tokens,
            ),
        )
        request.group_hashes = [[] for _ in self.config.groups]
        self._clear_tables(request)
        return request

    def _find_again(self, request: RequestBlocks, stale: ResumePlan) -> ResumePlan:
        """What is left of a plan. Never more: the caller has counted the tokens to compute."""
        lookahead = self.config.resume_granularity if self.config.has_draft else 0
        fresh = find_resume(self.pool, request, min(request.num_tokens, stale.num_tokens + lookahead + 1))
        if fresh.num_tokens == stale.num_tokens:
            return fresh._replace(limited_by=stale.limited_by, branch_point=stale.branch_point)
        return fresh._replace(branch_point=stale.branch_point or fresh.branch_point)

    def _start(self, request: RequestBlocks, resume: ResumePlan | None) -> list[UndoHold]:
        """Takes up a resume; returns what undoes it."""
        request.is_started = True
        request.generation = self.pool.generation
        if resume is None:
            return []
        undo = []
        point = request.resume_point(resume.num_tokens)
        for index, manager, _ in self._managed:
            found = resume.found[index]
            if found or resume.num_tokens:
                undo += [self.pool.hold_undoably(index, rows) for _, rows in found]
                manager.adopt(request.tables[index], found, point)
        request.num_computed_tokens = request.num_scheduled_tokens = resume.num_tokens
        request.promises = request.promises.with_branch_point(resume.branch_point)
        return undo

    def _extend(
        self, request: RequestBlocks, num_tokens: int, num_lookahead_tokens: int, must_fit_tokens: int
    ) -> Allocation | None:
        target = min(num_tokens + num_lookahead_tokens, self.config.limits.max_model_len)
        needed = self._room.pages_needed(request, target)
        moves: tuple[PageMove, ...] = ()
        if must_fit_tokens <= target and self._room.is_free(needed):
            supply = None
        else:
            made = self._room.make(request, needed, must_fit_tokens if must_fit_tokens > target else 0, self.requests)
            if made is None:
                return None
            moves, supply = made
        copies: list[PageCopy] = []
        for (index, manager, page_class), count in zip(self._managed, needed, strict=True):
            if supply is None:
                pages = self.pool.classes[page_class].take_free(count)
            else:
                pages, supply[page_class] = supply[page_class][:count], supply[page_class][count:]
            copies += manager.extend(request.tables[index], request, target, pages)
        request.num_scheduled_tokens = num_tokens
        self._set_next_events(request)
        return Allocation(moves=moves, copies=tuple(copies)) if moves or copies else NOTHING_TO_COPY

    def _commit_groups(self, request: RequestBlocks, num_tokens: int) -> None:
        if num_tokens > request.num_scheduled_tokens:
            raise InputError(
                f"request {request.request_id!r} commits {num_tokens:,} tokens, but has room allocated for "
                f"{request.num_scheduled_tokens:,}"
            )
        self._hashes.hash_new_tokens(request)
        for index, manager, _ in self._managed:
            manager.commit(request.tables[index], request, num_tokens)
        request.num_computed_tokens = num_tokens

    def _set_next_events(self, request: RequestBlocks) -> None:
        extend_at = self.config.limits.max_model_len
        commit_at = request.num_computed_tokens if self._has_short_steps else _NEVER
        for index, manager, _ in self._managed:
            table = request.tables[index]
            if (tokens := manager.tokens_until_extend(table, request)) < extend_at:
                extend_at = tokens
            if (tokens := manager.tokens_until_commit(table, request)) < commit_at:
                commit_at = tokens
        request.extend_at = extend_at
        request.commit_at = commit_at
        request.quiet_until = min(extend_at, commit_at)

    def _release(self, request: RequestBlocks) -> None:
        for index, manager, _ in self._managed:
            manager.release(request.tables[index], request)

    def _clear_tables(self, request: RequestBlocks) -> None:
        """The request as it was before its first allocation; its pages belong to somebody else or to nobody."""
        request.tables = [BlockTable() for _ in self.config.groups]
        for index, manager, _ in self._managed:
            request.tables[index] = manager.new_table()
        request.num_computed_tokens = request.num_scheduled_tokens = 0
        request.extend_at = request.commit_at = request.quiet_until = 0
        request.is_started = False
        request.promises = request.promises.with_branch_point(None)

    def _record_start(self, request: RequestBlocks, resume: ResumePlan | None) -> None:
        self._stats.record(
            asked=request.num_tokens,
            attainable=self.config.last_boundary(request.num_tokens),
            resumed=request.num_computed_tokens if resume is not None else 0,
            limited_by=None if resume is None else resume.limited_by,
        )

    def check_invariants(self, also_held: Iterable[tuple[int, int]] = ()) -> None:
        """For tests: pool and requests agree, row by row. `also_held` are (group, row) of loads and stores."""
        self.pool.check_invariants()
        reserved = [(group, row) for group, rows in enumerate(self.reserved_rows) for row in rows]
        check_holders(self.pool, self._class_of, self.requests.values(), [*reserved, *also_held])
