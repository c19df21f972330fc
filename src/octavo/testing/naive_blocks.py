"""A naive engine with a naive memory, to hold a `KVCacheManager` against: sets, lists and dicts, nothing clever.

The trick is a model of the bytes. `NaiveDevice` says for every page what was written to each of its slots: which
prefix of which request, in which group, under which weights. `NaiveEngine` does what an engine does: it makes the
moves and copies that it is told to, in order, then each request of the step reads all that its layers read and
writes what it computes. So every way to hand out a page twice, too early or too late ends in a slot with
somebody else's prefix, and is found where it is read, or where the prefix index promises it.

Everything that the manager answers is compared with what the naive side knows: the resume point with the largest one
that a scan finds, events with the index, counts with a recount, and the pool after a refusal with the pool before.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.blocks import NULL_BLOCK, Allocation, KVCacheManager, RequestBlocks, ResumePlan
from octavo.blocks.compaction import rows_held
from octavo.hashing import PLAIN, RequestIdentity
from octavo.ids import BlockHash
from octavo.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from octavo.specs.base import ResumePoint

STATE_SLOT = -1
"""A page of recurrent state has one slot, which no token has."""

_WRONG_TOKEN = 1 << 20
"""A rejected draft, which no prompt has."""


class Slot(NamedTuple):
    """What stands in one slot of a page."""

    group: int
    prefix: int
    weights: int


class Prefixes:
    """Numbers every prefix of every kind of request. A prefix's number stands for all that its KV depends on."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Hashable], int] = {}
        self._parents: list[int] = []

    def root(self, what_it_depends_on: Hashable) -> int:
        return self.child(-1, what_it_depends_on)

    def child(self, parent: int, token: Hashable) -> int:
        number = self._numbers.setdefault((parent, token), len(self._parents))
        if number == len(self._parents):
            self._parents.append(parent)
        return number

    def last(self, prefix: int, count: int) -> list[int]:
        """The last `count` prefixes on the way to this one, the shortest first."""
        path = []
        for _ in range(count):
            path.append(prefix)
            prefix = self._parents[prefix]
        return path[::-1]


class NaiveDevice:
    """The bytes of all pages. A page that was never written has no slots."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, int], dict[int, Slot]] = {}

    def copy(self, page_class: int, source: int, destination: int) -> None:
        self.pages[page_class, destination] = dict(self.pages.get((page_class, source), {}))

    def write(self, page_class: int, row: int, slot: int, content: Slot) -> None:
        self.pages.setdefault((page_class, row), {})[slot] = content

    def read(self, page_class: int, row: int, slot: int) -> Slot | None:
        return self.pages.get((page_class, row), {}).get(slot)


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of one request: tokens `[start, end)` are computed, the last `num_rejected` of them in vain."""

    start: int
    end: int
    num_rejected: int
    sampled: list[int]
    """What the commit will append to the known tokens."""


@dataclass(slots=True, kw_only=True, eq=False)
class NaiveRequest:
    """A request as the engine sees it."""

    blocks: RequestBlocks
    root: int
    encoder_root: int
    tokens: list[int]
    """The known ones, and those that steps in flight will sample."""
    prefixes: list[int] = field(default_factory=list)
    in_flight: deque[Step] = field(default_factory=deque)
    num_hashed: int = -1
    """Hash blocks whose hashes are known to us."""
    first_weights: int = 0
    """Under which it started; what it reads is no older."""
    plan: ResumePlan | None = None
    within_plan: bool = True
    """Whether its steps stay within what the memory plan reckons with."""

    @property
    def num_known(self) -> int:
        return self.blocks.num_tokens

    @property
    def scheduled(self) -> int:
        return self.in_flight[-1].end - self.in_flight[-1].num_rejected if self.in_flight else self.computed

    @property
    def computed(self) -> int:
        return self.blocks.num_computed_tokens


@dataclass(slots=True, kw_only=True)
class StepPlan:
    """What an engine wants to do with one request in its next step."""

    request: NaiveRequest
    num_tokens: int
    """Compute up to here, drafts included."""
    num_accepted: int = 0
    num_drafts: int = 0
    num_lookahead_tokens: int = 0
    must_fit_tokens: int = 0
    sampled: Sequence[int] = (0,)
    """Accepted drafts, and the token after them; used where the step reaches the end of what is known."""


class NaiveEngine:
    """Drives a manager as an engine does, and checks every answer."""

    def __init__(self, manager: KVCacheManager, *, watches_events: bool = False) -> None:
        self.manager = manager
        self.config = manager.config
        self.device = NaiveDevice()
        self.prefixes = Prefixes()
        self.requests: dict[str, NaiveRequest] = {}
        self.weights = 0
        self.watches_events = watches_events
        self.consumers: list[set[BlockHash]] = [set() for _ in self.config.groups]
        self._prefix_of: list[dict[BlockHash, int]] = [{} for _ in self.config.groups]
        self._lookahead = self.config.resume_granularity if any(g.is_draft for g in self.config.groups) else 0
        self._num_begun = 0
        self.num_moves = 0
        """Pages that were moved so far."""

    # ---- what an engine does -----------------------------------------------------------------------------------

    def begin(
        self, tokens: Sequence[int], identity: RequestIdentity = PLAIN, *, num_encoder_tokens: int = 0
    ) -> NaiveRequest:
        self._num_begun += 1
        blocks = self.manager.begin_request(
            f"r{self._num_begun}", list(tokens), identity, num_encoder_tokens=num_encoder_tokens
        )
        is_named = identity.encoder_digest is not None
        encoder_input = (identity.encoder_digest if is_named else blocks.request_id) if num_encoder_tokens else None
        what_it_depends_on = (identity, encoder_input)
        request = NaiveRequest(
            blocks=blocks,
            root=self.prefixes.root(what_it_depends_on),
            encoder_root=self.prefixes.root(("encoder", what_it_depends_on)),
            tokens=[],
        )
        self._grow(request, tokens)
        return self._add(request)

    def begin_again(self, request: NaiveRequest) -> NaiveRequest:
        """The same prompt once more."""
        self._num_begun += 1
        blocks = self.manager.begin_again(request.blocks, f"r{self._num_begun}")
        twin = NaiveRequest(blocks=blocks, root=request.root, encoder_root=request.encoder_root, tokens=[])
        self._grow(twin, request.tokens[: blocks.num_prompt_tokens])
        return self._add(twin)

    def fork(self, request: NaiveRequest) -> NaiveRequest:
        """A second request that goes on from the first one's computed tokens."""
        self._num_begun += 1
        assert not request.in_flight
        twin = NaiveRequest(
            blocks=self.manager.fork(request.blocks, f"r{self._num_begun}"),
            root=request.root,
            encoder_root=request.encoder_root,
            tokens=list(request.tokens),
            prefixes=list(request.prefixes),
            first_weights=request.first_weights,
            within_plan=request.within_plan,
        )
        return self._add(twin)

    def look_up(self, request: NaiveRequest) -> ResumePlan:
        """Asks for the resume point, and checks that it is the largest one, and why."""
        plan = request.plan = self.manager.find_resume(request.blocks)
        best = self.largest_resume(request, range(len(self.config.groups)))
        assert plan.num_tokens == best, f"resumes at {plan.num_tokens}, could at {best}"
        stateless = [i for i, group in enumerate(self.config.groups) if not group.spec.holds_checkpoints]
        beyond = self.largest_resume(request, stateless)
        if beyond > best and stateless:
            assert plan.branch_point == beyond
        if plan.limited_by is None:
            assert best == self._largest_boundary(request)
        else:
            published = self._published()
            assert not self._has_all(request, plan.limited_by, best + self.config.resume_granularity, published)
        self._check_found_blocks(request, plan)
        return plan

    def schedule(self, step_plans: Iterable[StepPlan]) -> list[bool]:
        """Makes room for some requests and runs one step with those that got it. Returns which did."""
        allocated: list[tuple[StepPlan, Allocation, int]] = []
        answers = []
        for step in step_plans:
            before = self.snapshot()
            start = step.request.scheduled
            was_started = step.request.blocks.is_started
            allocation = self.manager.allocate(
                step.request.blocks,
                step.num_tokens,
                resume=step.request.plan,
                num_lookahead_tokens=step.num_lookahead_tokens,
                must_fit_tokens=step.must_fit_tokens,
            )
            answers.append(allocation is not None)
            if allocation is None:
                assert self.snapshot() == before, "a refused allocation changed something"
                continue
            if not was_started:
                start = self._note_start(step)
            allocated.append((step, allocation, start))
        self.run(allocated)
        return answers

    def run(self, allocated: Sequence[tuple[StepPlan, Allocation, int]]) -> None:
        """The device's part of a step: moves and copies as they came, then reads, then writes."""
        for _, allocation, _ in allocated:
            self.execute(allocation)
        for step, _, start in allocated:
            self._note_step(step, start)
            self._check_reads(step.request, start)
        for step, _, start in allocated:
            self._write(step.request, start, step.num_tokens)

    def execute(self, allocation: Allocation) -> None:
        for move in allocation.moves:
            self.device.copy(move.page_class, move.source, move.destination)
            self.num_moves += 1
        for copy in allocation.copies:
            page_class = self.config.groups[copy.group_idx].page_class
            assert page_class is not None
            self.device.copy(page_class, copy.source, copy.destination)

    def commit(self, request: NaiveRequest) -> None:
        """The oldest step in flight is done."""
        step = request.in_flight.popleft()
        self.manager.append_tokens(request.blocks, step.sampled)
        self._learn_hashes(request)
        self.manager.commit(request.blocks, step.end - step.num_rejected, num_rejected_tokens=step.num_rejected)
        assert request.computed == step.end - step.num_rejected

    def decode_step(self, requests: Sequence[NaiveRequest], sampled: Sequence[int]) -> list[NaiveRequest]:
        """Commits a step of each and schedules the next one. Returns the requests that have no room for it."""
        tokens = []
        for request in requests:
            step = request.in_flight.popleft()
            assert not request.in_flight
            tokens.append(step.sampled[0])
        answers = self.manager.decode_step([request.blocks for request in requests], tokens)
        by_id = {blocks.request_id: allocation for blocks, allocation in answers}
        refused, allocated = [], []
        for request, token in zip(requests, sampled, strict=True):
            self._learn_hashes(request)
            allocation = by_id.get(request.blocks.request_id, Allocation())
            assert request.computed == request.num_known - 1
            if allocation is None:
                refused.append(request)
                continue
            plan = StepPlan(request=request, num_tokens=request.num_known, sampled=(token,))
            allocated.append((plan, allocation, request.num_known - 1))
        self.run(allocated)
        return refused

    def prefill(self, request: NaiveRequest, *, respects_cuts: bool = True, sampled: int = 0) -> int:
        """Resumes a request that has not started and computes all that is known of it, alone and in as few steps as
        may be. Returns where it resumed."""
        resumed = start = self.look_up(request).num_tokens
        num_known = request.num_known
        while start < num_known:
            end = min(num_known, start + self.config.limits.max_step_tokens)
            if respects_cuts:
                end = self.manager.cut_prefill(request.blocks, end, request.plan)
            assert self.schedule([StepPlan(request=request, num_tokens=end, sampled=(sampled,))]) == [True]
            self.commit(request)
            start = request.computed
            self.check()
        return resumed

    def decode(self, request: NaiveRequest, sampled: Iterable[int]) -> None:
        """Steps of one token each."""
        for token in sampled:
            step = StepPlan(request=request, num_tokens=request.num_known, sampled=(token,))
            assert self.schedule([step]) == [True]
            self.commit(request)
            self.check()

    def serve(self, tokens: Sequence[int], identity: RequestIdentity = PLAIN, *, num_encoder_tokens: int = 0) -> int:
        """One request from its beginning to its end, with one token of output. Returns where it resumed."""
        request = self.begin(tokens, identity, num_encoder_tokens=num_encoder_tokens)
        resumed = self.prefill(request)
        self.free(request)
        self.check()
        return resumed

    def free(self, request: NaiveRequest) -> None:
        self.manager.free(request.blocks)
        del self.requests[request.blocks.request_id]

    def preempt(self, request: NaiveRequest) -> None:
        self.manager.preempt(request.blocks)
        request.in_flight.clear()
        request.plan = None
        self._truncate(request, request.num_known)

    def reset(self) -> None:
        """New weights."""
        self.manager.reset_prefix_cache()
        self.weights += 1

    def take_changes(self) -> None:
        """A consumer follows the events; afterwards it knows the index."""
        changes = self.manager.take_changes()
        if changes.was_cleared:
            self.consumers = [set() for _ in self.consumers]
        for group, hashes in changes.removed.items():
            assert len(set(hashes)) == len(hashes)
            assert self.consumers[group].issuperset(hashes), "a removal of what was never stored"
            self.consumers[group].difference_update(hashes)
        for run in changes.stored:
            index = self.manager.pool.indexes[run.group_idx]
            assert run.hashes
            assert len(run.blocks) == len(run.rows) == len(run.hashes)
            assert [run.sequence.hashes(run.group_idx)[block] for block in run.blocks] == list(run.hashes)
            first = run.blocks[0]
            assert run.parent_hash == (run.sequence.hashes(run.group_idx)[first - 1] if first else None)
            assert self.consumers[run.group_idx].isdisjoint(run.hashes), "stored twice"
            self.consumers[run.group_idx].update(run.hashes)
            assert [index.get(block_hash) for block_hash in run.hashes] == list(run.rows), "another row than it says"
        for group, index in enumerate(self.manager.pool.indexes):
            assert self.consumers[group] == set(index)

    # ---- what the naive side knows -----------------------------------------------------------------------------

    def largest_resume(self, request: NaiveRequest, groups: Iterable[int]) -> int:
        """By a scan, from the last boundary down."""
        granularity = self.config.resume_granularity
        groups = list(groups)
        top = self._largest_boundary(request)
        published = self._published()
        for n in range(top, 0, -granularity):
            if all(self._has_all(request, group, n, published) for group in groups):
                return n
        return 0

    def snapshot(self) -> object:
        """All that a refused allocation must leave as it was, which is all that anybody could tell.

        An empty sheet may have been given back: nobody can tell.
        """
        pool = self.manager.pool
        classes = []
        for pages in pool.classes:
            in_use = {row // pages.pages_per_sheet for row, state in enumerate(pages.state) if state}
            classes.append((tuple(pages.state), tuple(pages.hash_of), in_use, pages.num_cached))
        requests = []
        for request in self.manager.requests.values():
            tables = [
                (tuple(table.rows), table.num_retired, table.num_published, getattr(table, "kept_row", None))
                for table in request.tables
            ]
            numbers = (request.num_computed_tokens, request.num_scheduled_tokens, request.branch_point)
            requests.append((request.request_id, request.is_started, numbers, tables))
        return classes, [dict(index) for index in pool.indexes], pool.generation, requests

    # ---- checks ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step: the manager agrees with itself, and with the bytes."""
        self.manager.check_invariants(self.held_by_transfers())
        self._check_usage()
        self._check_index()
        for request in self.requests.values():
            self._check_tables(request)

    def held_by_transfers(self) -> Iterable[tuple[int, int]]:
        """(group, row) that are held beside requests, once for each time."""
        return ()

    def check_nothing_leaks(self) -> None:
        """After all requests have ended: nothing is held but reserved rows."""
        assert not self.manager.requests
        held = sum(usage.held_pages for usage in self.manager.usage())
        class_of = [group.page_class for group in self.config.groups]
        by_transfers = {(class_of[group], row) for group, row in self.held_by_transfers()}
        assert held == sum(len(rows) for rows in self.manager.reserved_rows) + len(by_transfers)

    def check_stats(self) -> None:
        stats = self.manager.take_stats()
        assert stats.tokens_asked >= stats.tokens_attainable >= stats.tokens_resumed >= 0
        missed = sum(stats.tokens_missed_by_group.values())
        assert missed <= stats.tokens_attainable - stats.tokens_resumed
        assert all(tokens > 0 for tokens in stats.tokens_missed_by_group.values())

    def _check_usage(self) -> None:
        """Free + held + cached = all."""
        pool = self.manager.pool
        leased = 0
        for cls, usage, pages in zip(self.config.page_classes, self.manager.usage(), pool.classes, strict=True):
            leased += usage.leased_sheets
            rows = usage.held_pages + usage.cached_pages + usage.free_pages
            assert rows == usage.leased_sheets * cls.pages_per_sheet
            assert usage.held_pages == sum(state > 0 for state in pages.state)
        assert leased + len(pool.free_sheets) == self.config.num_sheets

    def _check_index(self) -> None:
        """Whatever can be found has all its bytes, and they are nobody else's."""
        for group_idx, index in enumerate(self.manager.pool.indexes):
            group = self.config.groups[group_idx]
            for block_hash, row in index.items():
                assert group.page_class is not None
                prefix = self._prefix_of[group_idx][block_hash]
                page = self.device.pages[group.page_class, row]
                if group.spec.holds_checkpoints:
                    expected = {STATE_SLOT: prefix}
                elif group.spec.indexes_decoder_tokens:
                    expected = dict(enumerate(self.prefixes.last(prefix, group.block_size)))
                else:
                    expected = {0: prefix}
                for slot, known in expected.items():
                    assert page.get(slot) == Slot(group_idx, known, self.weights), f"group {group_idx}, slot {slot}"

    def _check_tables(self, request: NaiveRequest) -> None:
        blocks = request.blocks
        for group_idx, (group, table) in enumerate(zip(self.config.groups, blocks.tables, strict=True)):
            held = list(rows_held(table))
            assert len(held) == len(set(held)), "a table has a row twice"
            if request.within_plan and not request.in_flight:
                assert len(held) <= group.spec.max_blocks_per_request(self.config.limits)
            if not (group.spec.indexes_decoder_tokens and blocks.is_started and not request.in_flight):
                continue
            if group.spec.holds_checkpoints:
                assert len(table.rows) in (1, num_running_states(group.spec))
                continue
            complete = request.computed // group.block_size
            at_boundary = blocks.resume_point(complete * group.block_size)
            needed = {block for r in group.spec.needed_blocks(at_boundary) for block in r}
            kept = {block for block, row in enumerate(table.rows[:complete]) if row != NULL_BLOCK}
            assert kept <= needed, f"group {group_idx} keeps {sorted(kept - needed)} in vain"

    def _check_reads(self, request: NaiveRequest, start: int) -> None:
        """What a step that starts here reads is there, and the request's own."""
        for group_idx, group in enumerate(self.config.groups):
            if group.page_class is None:
                continue
            table = request.blocks.tables[group_idx]
            if group.spec.holds_checkpoints:
                reads = [(table.rows[0], STATE_SLOT, request.prefixes[start - 1])] if start else []
            elif group.spec.indexes_decoder_tokens:
                size = group.block_size
                reads = [
                    (table.rows[token // size], token % size, request.prefixes[token])
                    for token in tokens_read(group.spec, request.blocks.resume_point(start))
                ]
            elif table.num_published:
                reads = [(row, 0, self._encoder_block(request, block)) for block, row in enumerate(table.rows)]
            else:
                reads = []  # the encoder runs in this step
            for row, slot, prefix in reads:
                assert row != NULL_BLOCK, f"group {group_idx} let go what it reads at {start}"
                content = self.device.read(group.page_class, row, slot)
                assert content is not None, f"group {group_idx} reads at {start} what nobody wrote"
                assert content[:2] == (group_idx, prefix), f"group {group_idx} reads at {start} what is another's"
                assert request.first_weights <= content.weights <= self.weights

    def _check_found_blocks(self, request: NaiveRequest, plan: ResumePlan) -> None:
        for group_idx, runs in enumerate(plan.found):
            index = self.manager.pool.indexes[group_idx]
            for blocks, rows in runs:
                hashes = request.blocks.hashes(group_idx)[blocks.start : blocks.stop]
                assert [index[block_hash] for block_hash in hashes] == rows

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _add(self, request: NaiveRequest) -> NaiveRequest:
        self._learn_hashes(request)
        self.requests[request.blocks.request_id] = request
        return request

    def _grow(self, request: NaiveRequest, tokens: Iterable[int]) -> None:
        for token in tokens:
            parent = request.prefixes[-1] if request.prefixes else request.root
            request.tokens.append(token)
            request.prefixes.append(self.prefixes.child(parent, token))

    def _truncate(self, request: NaiveRequest, num_tokens: int) -> None:
        del request.tokens[num_tokens:], request.prefixes[num_tokens:]

    def _note_start(self, step: StepPlan) -> int:
        """A request got its first room. Returns where it starts."""
        request = step.request
        start = request.computed
        limit = request.plan.num_tokens if request.plan else 0
        assert start <= limit, f"starts at {start}, later than the {limit} tokens that the engine reckons with"
        assert start < step.num_tokens
        num_tokens = step.num_tokens + step.num_lookahead_tokens - start
        request.within_plan = num_tokens <= self.config.limits.max_step_tokens
        request.first_weights = self.weights
        request.plan = None
        return start

    def _note_step(self, step: StepPlan, start: int) -> None:
        """A step is under way: what it will sample is known to nobody but us."""
        request = step.request
        num_rejected = step.num_drafts - step.num_accepted
        is_sampling = step.num_tokens - step.num_drafts >= len(request.tokens)
        sampled = list(step.sampled[: step.num_accepted + 1]) if is_sampling else []
        self._grow(request, sampled)
        request.in_flight.append(
            Step(start=start, end=step.num_tokens, num_rejected=num_rejected, sampled=sampled),
        )
        size = step.num_tokens + step.num_lookahead_tokens - start
        request.within_plan &= size <= self.config.limits.max_step_tokens and len(request.in_flight) == 1

    def _write(self, request: NaiveRequest, start: int, end: int) -> None:
        is_right = end - request.in_flight[-1].num_rejected
        written = list(request.prefixes[:is_right])
        for _ in range(is_right, end):
            written.append(self.prefixes.child(written[-1], _WRONG_TOKEN))
        for group_idx, group in enumerate(self.config.groups):
            table = request.blocks.tables[group_idx]
            if group.page_class is None:
                continue
            if group.spec.holds_checkpoints:
                slots = _states_written(request, group.spec, start, end)
                writes = [(table.rows[i], STATE_SLOT, written[token]) for i, token in slots]
            elif group.spec.indexes_decoder_tokens:
                size = group.block_size
                writes = [(table.rows[t // size], t % size, written[t]) for t in range(start, end)]
            elif table.num_published:
                writes = []
            else:
                writes = [(row, 0, self._encoder_block(request, block)) for block, row in enumerate(table.rows)]
            for row, slot, prefix in writes:
                assert row != NULL_BLOCK
                assert self.manager.pool.is_writable(group_idx, row), f"group {group_idx} writes what others read"
                self.device.write(group.page_class, row, slot, Slot(group_idx, prefix, self.weights))

    def _encoder_block(self, request: NaiveRequest, block: int) -> int:
        return self.prefixes.child(request.encoder_root, block)

    def _learn_hashes(self, request: NaiveRequest) -> None:
        """Notes which prefix each hash stands for. A request whose encoder input has no name is not in the cache."""
        if request.blocks.num_encoder_tokens and request.blocks.identity.encoder_digest is None:
            return
        num_hashed = request.num_known // self.config.hash_block_size
        if not self.manager.is_caching or num_hashed == request.num_hashed:
            return
        request.num_hashed = num_hashed
        for group_idx, group in enumerate(self.config.groups):
            prefix_of = self._prefix_of[group_idx]
            ratio = group.block_size // self.config.hash_block_size
            if group.spec.indexes_decoder_tokens:
                hashes = self.manager.hasher.hash_tokens(request.blocks.tokens, request.blocks.identity)
                known = list(enumerate(hashes[ratio - 1 :: ratio]))
                prefixes = [request.prefixes[(block + 1) * group.block_size - 1] for block, _ in known]
            else:
                known = list(enumerate(request.blocks.hashes(group_idx)))
                prefixes = [self._encoder_block(request, block) for block, _ in known]
            for (_, block_hash), prefix in zip(known, prefixes, strict=True):
                prefix_of.setdefault(block_hash, prefix)

    def _largest_boundary(self, request: NaiveRequest) -> int:
        granularity = self.config.resume_granularity
        known = request.num_known
        return max(
            0, min((known - 1) // granularity * granularity, known // granularity * granularity - self._lookahead)
        )

    def _published(self) -> list[set[int]]:
        """By group, the prefixes that its index promises."""
        return [
            {prefix_of[block_hash] for block_hash in index}
            for prefix_of, index in zip(self._prefix_of, self.manager.pool.indexes, strict=True)
        ]

    def _has_all(self, request: NaiveRequest, group_idx: int, n: int, published_by_group: Sequence[set[int]]) -> bool:
        """Whether the group's index holds all that is needed at n."""
        group = self.config.groups[group_idx]
        published = published_by_group[group_idx]
        size = group.block_size
        point = request.blocks.resume_point(n)
        if not group.spec.indexes_decoder_tokens:
            blocks = {block for r in group.spec.needed_blocks(point) for block in r}
            return all(self._encoder_block(request, block) in published for block in blocks)
        if group.spec.holds_checkpoints:
            return n % size == 0 and request.prefixes[n - 1] in published
        tokens = tokens_read(group.spec, point)
        if group.is_draft:
            tokens |= set(range(n, n + self.config.resume_granularity))
        ends = {(token // size + 1) * size for token in tokens}
        return all(end <= request.num_known and request.prefixes[end - 1] in published for end in ends)


def tokens_read(spec: KVCacheSpec, point: ResumePoint) -> set[int]:
    """The past tokens that computing token n reads, as the model is defined."""
    n = point.num_tokens
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return {token for layer in spec.distinct for token in tokens_read(layer, point)}
    if isinstance(spec, FullAttentionSpec):
        return set(range(n))
    if isinstance(spec, SlidingWindowSpec):
        return set(range(max(0, n - spec.sliding_window + 1), n))
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return {token for token in range(n) if token // spec.attention_chunk_size == n // spec.attention_chunk_size}
    size = spec.block_size  # another's kind: all that it says it needs
    needed = [range(r.start * size, min(n, r.stop * size)) for r in spec.needed_blocks(point)]
    return {token for tokens in needed for token in tokens}


def num_running_states(spec: KVCacheSpec) -> int:
    """Pages that hold the states after the last tokens."""
    layer = spec.first if isinstance(spec, UniformTypeKVCacheSpecs) else spec
    return 1 + getattr(layer, "num_speculative_tokens", 0)


def _states_written(request: NaiveRequest, spec: KVCacheSpec, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(place in the table, last token) of the states that a step leaves behind."""
    is_decoding = start >= request.blocks.num_prompt_tokens
    if is_decoding and num_running_states(spec) > 1 and end - start <= num_running_states(spec):
        return ((i, start + i) for i in range(end - start))
    return iter([(0, end - 1)])
