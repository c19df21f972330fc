"""`Scheduler`: which choices compute which tokens in the next step. Plain bookkeeping: no tensors, no clock.

A step's tokens are given out in this order, up to `max_step_tokens`:

    decodes     one token for each running choice whose known tokens are computed but for the last
    prefills    a chunk of what running choices lack, the oldest first
    admissions  a chunk of waiting choices, in the order of `Turns`, while there are seats and pages

A choice that has started sooner is older. Older choices go first, and the oldest running choice always goes on: the
plan has room for one longest request. If it finds no page, pages come from these, in this order:

    loans       pages that were loaded ahead for waiting choices, first those of the last to start
    transfers   pages that loads and stores hold: a copy to or from host memory gives them back soon
    preemption  the youngest running choice gives up its pages and goes back to the queue

A younger choice that finds no page keeps its own pages and waits for its turn. While some choice waits for a page, no
new one is admitted.

    waiting --admit--> running --finish--> gone
       ^------preempt------'           abort and fail: from anywhere
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from octavo.blocks import MEDIUM_DEVICE, Allocation, KVCacheManager, ResumePlan
from octavo.engine.offload_hooks import OffloadHooks, Readiness
from octavo.engine.prefix_leaders import PrefixLeaders
from octavo.engine.request import Choice
from octavo.engine.statistics import EngineCounters
from octavo.engine.turns import Turns
from octavo.errors import EngineBusyError, InputError, ParameterError, RequestTooLargeError
from octavo.planning import KVCacheConfig
from octavo.units import counted

PREPARED_AHEAD = 16
"""Waiting choices, the next to start first, that are prepared in a step: their loads overlap with others' compute."""
PATIENCE_S = 0.5
"""Seconds that a choice waits for pages that transfers hold, before younger choices are preempted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """The bounds of a step and of the queue."""

    max_step_tokens: int
    max_num_seqs: int
    """The most choices that run at once."""
    max_waiting: int
    """The most choices that wait; more are refused."""

    def check(self, plan: KVCacheConfig) -> None:
        """Raises InputError for steps that the plan has no room for, or that have no token for each choice."""
        room = plan.limits.max_step_tokens
        if self.max_step_tokens > room:
            raise InputError(
                f"max_step_tokens = {self.max_step_tokens:,} is more than the {room:,} that the plan has room for: "
                f"lower it, or plan with RequestLimits(max_step_tokens={self.max_step_tokens})"
            )
        if not 0 < self.max_num_seqs <= self.max_step_tokens:
            raise InputError(
                f"max_num_seqs = {self.max_num_seqs:,} must be from 1 to max_step_tokens = {self.max_step_tokens:,}: a "
                "step must have a token for each sequence"
            )


@dataclass(frozen=True, slots=True)  # one per choice and step: positional, as keywords cost time
class Chunk:
    """Tokens `[start, end)` of a choice, to be computed in this step."""

    choice: Choice
    start: int
    end: int

    @property
    def is_last(self) -> bool:
        """Whether it computes all known tokens, so that the next one is sampled."""
        return self.end == len(self.choice.blocks.tokens)


class Scheduler:
    """The queue, the running choices, and every call to the manager that allocates, commits or frees."""

    def __init__(
        self,
        manager: KVCacheManager,
        limits: SchedulerLimits,
        *,
        execute: Callable[[Allocation], None],
        counters: EngineCounters | None = None,
        offload: OffloadHooks | None = None,
        note_start: Callable[[Choice], None] | None = None,
    ) -> None:
        """`execute` makes an allocation's copies at once, before anything else reads or writes the pages. `note_start`
        is called once per request, when it starts."""
        limits.check(manager.config)
        self.manager = manager
        self.limits = limits
        self.waiting: dict[Choice, None] = {}
        """Oldest first."""
        self.running: dict[Choice, None] = {}
        """Oldest first."""
        self.counters = counters if counters is not None else EngineCounters()
        self._execute = execute
        self._offload = offload
        self._note_start = note_start
        self._leaders = PrefixLeaders(manager)
        self._prepared: set[Choice] = set()
        """Waiting choices that offloading has prepared. No others can have borrowed pages."""
        self._alone: Choice | None = None
        """Until this choice ends, no other is admitted."""
        self._step: dict[Choice, Chunk] = {}
        self._budget = 0
        self._is_short_of_pages = False
        """Whether in this step there was no free page for a running choice."""
        self._num_seats_taken = 0
        self._turns = Turns()
        self._next: dict[Choice, int] = {}
        """The waiting choices that were next to start in the last step, with their places."""
        self.is_waiting_for_loads = False
        """Whether some choice was not admitted in the last step because a load for it is under way."""

    def find_stuck(self) -> Choice | None:
        """The choice for which even the empty pool has no room. Ask it after a step that scheduled nothing, with no
        transfer under way."""
        if self.is_waiting_for_loads:
            return None
        return next(iter(self.running or self.waiting), None)

    # ---- requests come and go --------------------------------------------------------------------------------------

    def check(self, num_prompt_tokens: int, num_choices: int) -> None:
        """Refuses a request that could never run, or for which the queue is full."""
        if num_choices > self.limits.max_num_seqs:
            raise ParameterError(
                f"n = {num_choices} is too many: {counted(self.limits.max_num_seqs, 'sequence')} may run at once"
            )
        longest = self.manager.config.limits.max_model_len
        if num_prompt_tokens >= longest:
            raise RequestTooLargeError(
                f"a prompt of {counted(num_prompt_tokens, 'token')} and one of output do not fit the longest context "
                f"of {counted(longest, 'token')}"
            )
        self.manager.check_size(num_prompt_tokens)
        if len(self.waiting) >= self.limits.max_waiting:
            raise EngineBusyError(
                f"{counted(self.limits.max_waiting, 'request')} may wait, and no more; try again later"
            )

    def add(self, choice: Choice, now: float) -> None:
        """Puts a choice into the queue."""
        self.waiting[choice] = None
        self._turns.arrived(choice)
        if self._offload is not None and not choice.request.wants_prompt_logprobs:
            self._offload.arrived(choice.blocks, now)

    def abort(self, choice: Choice) -> None:
        """Ends the choice now, at any point of its life but within a step."""
        self._remove(choice)
        self.manager.free(choice.blocks)
        if self._offload is not None:
            self._offload.aborted(choice.blocks)

    def let_oldest_go_on_alone(self, now: float) -> None:
        """The oldest running choice, or else the oldest waiting one, has the pool for itself until it ends, and waits
        for no load. Called between two steps."""
        while len(self.running) > 1:
            self._preempt(next(reversed(self.running)), now)
        while self._call_in_loan():
            pass
        self._alone = next(iter(self.running or self.waiting), None)
        if self._offload is not None and self._alone in self.waiting:
            self._offload.started(self._alone.blocks)

    # ---- a step ----------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> list[Chunk]:
        """The chunks to compute now. Their pages are allocated, and the copies are made."""
        self._step, self._budget, self._is_short_of_pages = {}, self.limits.max_step_tokens, False
        self._schedule_decodes(now)
        self._schedule_prefills(now)
        self._admit(now)
        return list(self._step.values())

    def commit(self, chunks: Iterable[Chunk], now: float) -> None:
        """Commits computed chunks that no sampled token follows: parts of prompts, and choices that end."""
        for chunk in chunks:
            blocks = chunk.choice.blocks
            self.manager.commit(blocks, chunk.end)
            if self._offload is not None:
                self._offload.computed(blocks, now)

    def continue_with(self, chunks: Sequence[Chunk], token_ids: Sequence[int], now: float) -> None:
        """Commits choices whose known tokens are all computed, each with the sampled token with which it goes on."""
        eventful = self.manager.decode_step([chunk.choice.blocks for chunk in chunks], token_ids)
        for _, allocation in eventful:
            if allocation is not None:
                self._make_copies(allocation)
        if self._offload is not None:
            prompts = [c.choice.blocks for c in chunks if c.end == c.choice.request.num_prompt_tokens]
            for blocks in dict.fromkeys([*prompts, *(blocks for blocks, _ in eventful)]):
                self._offload.computed(blocks, now)

    def fork(self, choice: Choice, new_id: Callable[[], str]) -> list[Choice]:
        """All choices of a request whose prompt was just committed, the given one first."""
        choices = [choice]
        for index in range(1, choice.num_seats):
            twin = choice.fork(index, self.manager.fork(choice.blocks, new_id()))
            _enqueue(self.running, twin)
            choices.append(twin)
        choice.num_seats = 1
        return choices

    def append(self, choice: Choice, token_id: int) -> None:
        """Appends a sampled token to a committed choice; the next step finds room for it."""
        self.manager.append_tokens(choice.blocks, (token_id,))

    def finish(self, choice: Choice, now: float) -> None:
        """Ends a committed choice."""
        self._remove(choice)
        self.manager.free(choice.blocks)
        if self._offload is not None:
            self._offload.finished(choice.blocks, now)

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _schedule_decodes(self, now: float) -> None:
        for choice in list(self.running):
            blocks = choice.blocks
            num_tokens = len(blocks.tokens)
            if num_tokens - blocks.num_computed_tokens != 1 or choice not in self.running:
                continue
            if blocks.num_scheduled_tokens == num_tokens or self._make_room(choice, num_tokens, now):
                self._put(choice, num_tokens - 1, num_tokens)

    def _schedule_prefills(self, now: float) -> None:
        self._leaders.clear()
        for choice in list(self.running):
            if choice in self._step or choice not in self.running:
                continue
            blocks = choice.blocks
            start = blocks.num_computed_tokens
            if blocks.num_tokens - start == 1:  # a decode that waits for pages
                continue
            if self._budget < 1:
                break
            end = self.manager.cut_prefill(blocks, min(blocks.num_tokens, start + self._budget))
            if self._make_room(choice, end, now):
                self._put(choice, start, end)
                self._leaders.add(choice)

    def _make_room(self, choice: Choice, end: int, now: float) -> bool:
        """Finds pages for a running choice's tokens up to `end`, if need be those of loans and of younger choices."""
        while (allocation := self.manager.allocate(choice.blocks, end)) is None:
            self._is_short_of_pages = True
            if self._call_in_loan():
                continue
            youngest = next(reversed(self.running))
            if youngest is choice or self._are_pages_coming_back(choice, now):
                return False
            self._preempt(youngest, now)
        choice.short_since = None
        self._make_copies(allocation)
        return True

    def _call_in_loan(self, needy: Choice | None = None) -> bool:
        """Takes back the pages of the borrower that is to start last. For a waiting choice only borrowers behind it
        count, and if nothing runs also itself, as pages on loan cannot be moved together."""
        if self._offload is None:
            return False
        place_of = self._place_of
        for borrower in sorted(self._prepared, key=place_of, reverse=True):
            if needy is not None and (place_of(borrower) < place_of(needy) or (borrower is needy and self.running)):
                return False
            if self._offload.call_in(borrower.blocks):
                return True
        return False

    def _place_of(self, choice: Choice) -> tuple[float, tuple[float, int, int]]:
        """When the waiting choice is to start: a smaller place is earlier."""
        return self._next.get(choice, inf), choice.age

    def _are_pages_coming_back(self, choice: Choice, now: float) -> bool:
        """Whether the choice should wait for pages that transfers hold."""
        if self._offload is None or not self._offload.holds_pages():
            return False
        if choice.short_since is None:
            choice.short_since = now
        return now < choice.short_since + PATIENCE_S

    def _preempt(self, choice: Choice, now: float) -> None:
        chunk = self._step.pop(choice, None)
        if chunk is not None:
            self._budget += chunk.end - chunk.start
        self._remove(choice)
        if self._offload is not None:
            self._offload.preempted(choice.blocks, now)
        self.manager.preempt(choice.blocks)
        choice.short_since = None
        _enqueue(self.waiting, choice)
        self.counters.preemptions += 1

    def _admit(self, now: float) -> None:
        """Admits waiting choices, and begins loads for those that cannot be admitted yet."""
        has_seat, has_room = self._alone not in self.running, not self._is_short_of_pages
        self.is_waiting_for_loads = False
        alone = self._alone
        if alone is not None and alone in self.waiting:
            following = [alone]
        else:
            following = self._turns.first(PREPARED_AHEAD, self.waiting, self.running)
        self._next = {choice: place for place, choice in enumerate(following)}
        for choice in self._next:
            if self._leaders.is_following(choice, self.running):
                continue
            has_seat &= self._budget > 0 and self._num_seats_taken + choice.num_seats <= self.limits.max_num_seqs
            readiness = self._prepare(choice, now, may_borrow=has_room, may_start=has_seat and has_room)
            while has_seat and has_room and readiness is not Readiness.WAIT:
                if readiness is Readiness.READY and self._try_to_start(choice):
                    break
                has_room = self._call_in_loan(choice)  # if not, no younger one overtakes it or borrows freed pages
                readiness = self._prepare(choice, now, may_borrow=has_room, may_start=has_room)

    def _prepare(self, choice: Choice, now: float, *, may_borrow: bool, may_start: bool) -> Readiness:
        if self._offload is None or choice.request.wants_prompt_logprobs:
            return Readiness.READY
        self._prepared.add(choice)
        readiness = self._offload.prepare(choice.blocks, now, may_borrow=may_borrow, may_start=may_start)
        self.is_waiting_for_loads |= readiness is not Readiness.READY
        return readiness

    def _try_to_start(self, choice: Choice) -> bool:
        """Resumes a waiting choice and allocates its first chunk, or changes nothing."""
        blocks = choice.blocks
        bypasses_cache = choice.request.wants_prompt_logprobs
        resume: ResumePlan | None = None if bypasses_cache else self.manager.find_resume(blocks)
        start = 0 if resume is None else resume.num_tokens
        end = self.manager.cut_prefill(blocks, min(blocks.num_tokens, start + self._budget), resume)
        allocation = self.manager.allocate(blocks, end, resume=resume, must_fit_tokens=blocks.num_tokens)
        if allocation is None:
            return False
        self._make_copies(allocation)
        if self._offload is not None and not bypasses_cache:
            self._offload.started(blocks)
        del self.waiting[choice]
        self._prepared.discard(choice)
        self._turns.started(choice)
        _enqueue(self.running, choice)
        self._num_seats_taken += choice.num_seats
        self._put(choice, blocks.num_computed_tokens, end)
        self._leaders.add(choice)
        self._count_resumed(choice)
        return True

    def _count_resumed(self, choice: Choice) -> None:
        resumed = choice.blocks.num_computed_tokens
        by_medium = {} if self._offload is None else dict(self._offload.resumed_from(choice.blocks))
        on_device = resumed - sum(by_medium.values())
        by_medium = {medium: tokens for medium, tokens in {MEDIUM_DEVICE: on_device, **by_medium}.items() if tokens > 0}
        self.counters.count_resumed(by_medium)
        if not choice.request.has_started:
            choice.request.has_started = True
            choice.request.cached_tokens = by_medium
            if self._note_start is not None:
                self._note_start(choice)

    def _put(self, choice: Choice, start: int, end: int) -> None:
        self._step[choice] = Chunk(choice, start, end)
        self._budget -= end - start

    def _remove(self, choice: Choice) -> None:
        if choice in self.running:
            del self.running[choice]
            self._num_seats_taken -= choice.num_seats
        else:
            self.waiting.pop(choice, None)
            self._prepared.discard(choice)

    def _make_copies(self, allocation: Allocation) -> None:
        if allocation.moves or allocation.copies:
            self._execute(allocation)


def _enqueue(queue: dict[Choice, None], choice: Choice) -> None:
    """Puts a choice into the queue by its age, nearly always at the end."""
    youngest = next(reversed(queue), choice)
    queue[choice] = None
    if choice.age < youngest.age:
        by_age = sorted(queue, key=lambda choice: choice.age)
        queue.clear()
        queue.update(dict.fromkeys(by_age))
