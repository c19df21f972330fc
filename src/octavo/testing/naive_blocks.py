"""A naive engine with a naive memory, to compare a `KVCacheManager` with: sets, lists and dicts, nothing clever.

The trick is a model of the bytes. `NaiveDevice` knows what was last written to each slot of every page: which prefix of
which request, in which group, under which weights. `NaiveEngine` does what an engine does: it makes the moves and
copies that it is told to, in order, then each request of the step reads all that its layers read and writes what it
computes. So if a page is handed out twice, too early or too late, a slot holds another request's prefix, which is
noticed when it is read, or when the prefix index promises it.

Everything that the manager answers is compared with what the naive side knows: the resume point with the largest one
that `NaiveIndex` finds by a scan, events with the index, counts with a recount, and the pool after a refusal with the
pool before.
"""

from collections.abc import Iterable, Sequence

from octavo.blocks import NULL_BLOCK, Allocation, KVCacheManager, ResumePlan, rows_held
from octavo.hashing import PLAIN, RequestIdentity
from octavo.ids import BlockHash, enumerate_groups
from octavo.testing.naive_device import NaiveDevice, Prefixes, Slot
from octavo.testing.naive_index import NaiveIndex
from octavo.testing.naive_layers import is_circular, num_running_states, slots_read, slots_written
from octavo.testing.naive_request import NaiveRequest, Step, StepPlan


class NaiveEngine:
    """Drives a manager as an engine does, and checks every answer."""

    def __init__(self, manager: KVCacheManager, *, watches_events: bool = False) -> None:
        self.manager = manager
        self.config = manager.config
        self.device = NaiveDevice()
        self.prefixes = Prefixes()
        self.index = NaiveIndex(manager, self.prefixes)
        self.requests: dict[str, NaiveRequest] = {}
        self.weights = 0
        self.watches_events = watches_events
        self.consumers: list[set[BlockHash]] = [set() for _ in self.config.groups]
        self._num_begun = 0
        self.num_moves = 0
        """The number of pages that were moved so far."""

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
            numbering=self.prefixes,
            root=self.prefixes.root(what_it_depends_on),
            encoder_root=self.prefixes.root(("encoder", what_it_depends_on)),
            tokens=[],
        )
        request.grow(tokens)
        return self._add(request)

    def begin_again(self, request: NaiveRequest) -> NaiveRequest:
        """Begins another request with the same prompt."""
        self._num_begun += 1
        blocks = self.manager.begin_again(request.blocks, f"r{self._num_begun}")
        twin = NaiveRequest(
            blocks=blocks,
            numbering=self.prefixes,
            root=request.root,
            encoder_root=request.encoder_root,
            tokens=[],
        )
        twin.grow(request.tokens[: blocks.num_prompt_tokens])
        return self._add(twin)

    def fork(self, request: NaiveRequest) -> NaiveRequest:
        """Begins a second request that continues the first one's computed tokens."""
        self._num_begun += 1
        assert not request.in_flight
        twin = NaiveRequest(
            blocks=self.manager.fork(request.blocks, f"r{self._num_begun}"),
            numbering=self.prefixes,
            root=request.root,
            encoder_root=request.encoder_root,
            tokens=list(request.tokens),
            prefixes=list(request.prefixes),
            first_weights=request.first_weights,
            within_plan=request.within_plan,
        )
        return self._add(twin)

    def look_up(self, request: NaiveRequest) -> ResumePlan:
        """Looks up the resume point, and checks that it is the largest, and the reason that is given."""
        plan = request.plan = self.manager.find_resume(request.blocks)
        self.index.check_plan(request, plan)
        return plan

    def schedule(self, step_plans: Iterable[StepPlan]) -> list[bool]:
        """Makes room for some requests and runs one step with those that got it, which it returns."""
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
        """The device's part of a step: moves and copies in their order, then reads, then writes."""
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
        """Commits the oldest step in flight."""
        step = request.in_flight.popleft()
        self.manager.append_tokens(request.blocks, step.sampled)
        self.index.learn_hashes(request)
        self.manager.commit(request.blocks, step.end - step.num_rejected, num_rejected_tokens=step.num_rejected)
        assert request.computed == step.end - step.num_rejected

    def decode_step(self, requests: Sequence[NaiveRequest], sampled: Sequence[int]) -> list[NaiveRequest]:
        """Commits a step of each and schedules the next. Returns the requests without room for it."""
        tokens = []
        for request in requests:
            step = request.in_flight.popleft()
            assert not request.in_flight
            tokens.append(step.sampled[0])
        answers = self.manager.decode_step([request.blocks for request in requests], tokens)
        by_id = {blocks.request_id: allocation for blocks, allocation in answers}
        refused, allocated = [], []
        for request, token in zip(requests, sampled, strict=True):
            self.index.learn_hashes(request)
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
        """Resumes a request that has not started and computes all its known tokens, alone and in the fewest steps.
        Returns where it resumed."""
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
        """Decodes in steps of one token each."""
        for token in sampled:
            step = StepPlan(request=request, num_tokens=request.num_known, sampled=(token,))
            assert self.schedule([step]) == [True]
            self.commit(request)
            self.check()

    def serve(self, tokens: Sequence[int], identity: RequestIdentity = PLAIN, *, num_encoder_tokens: int = 0) -> int:
        """Runs one request from beginning to end, with one token of output. Returns where it resumed."""
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
        request.truncate(request.num_known)

    def reset(self) -> None:
        """Forgets all, as for new weights."""
        self.manager.reset_prefix_cache()
        self.weights += 1

    def take_changes(self) -> None:
        """Takes the events, as a consumer does, and checks that they lead to the index."""
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
        for group, index in enumerate_groups(self.manager.pool.indexes):
            assert self.consumers[group] == set(index)

    # ---- checks ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks that the manager agrees with itself and with the bytes. Called after every step."""
        self.manager.check_invariants(self.held_by_transfers())
        self._check_usage()
        self.index.check_pages(self.device, self.weights)
        for request in self.requests.values():
            self._check_tables(request)

    def held_by_transfers(self) -> Iterable[tuple[int, int]]:
        """The (group, row) that transfers hold, once for each time."""
        return ()

    def check_nothing_leaks(self) -> None:
        """Checks, after all requests have ended, that only reserved rows are held."""
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

    def snapshot(self) -> object:
        """All that a refused allocation must leave unchanged.

        It may give back empty sheets: that cannot be seen.
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
            numbers = (request.num_computed_tokens, request.num_scheduled_tokens, request.promises)
            requests.append((request.request_id, request.is_started, numbers, tables))
        return classes, [dict(index) for index in pool.indexes], pool.generation, requests

    def _check_usage(self) -> None:
        """Checks that free, held and cached pages are all pages."""
        pool = self.manager.pool
        leased = 0
        for cls, usage, pages in zip(self.config.page_classes, self.manager.usage(), pool.classes, strict=True):
            leased += usage.leased_sheets
            rows = usage.held_pages + usage.cached_pages + usage.free_pages
            assert rows == usage.leased_sheets * cls.pages_per_sheet
            assert usage.held_pages == sum(state > 0 for state in pages.state)
        assert leased + len(pool.free_sheets) == self.config.num_sheets

    def _check_tables(self, request: NaiveRequest) -> None:
        blocks = request.blocks
        for group_idx, (group, table) in enumerate_groups(zip(self.config.groups, blocks.tables, strict=True)):
            held = list(rows_held(table))
            assert len(held) == len(set(held)), "a table has a row twice"
            if request.within_plan and not request.in_flight:
                assert len(held) <= group.spec.max_blocks_per_request(self.config.limits)
            if not (group.spec.indexes_decoder_tokens and blocks.is_started and not request.in_flight):
                continue
            if is_circular(group):
                assert len(table.rows) == 1
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
        """Checks that all that a step reads is there, and is the request's own."""
        for group_idx, group in enumerate_groups(self.config.groups):
            if group.page_class is None:
                continue
            for row, slot, prefix in slots_read(request, group_idx, group, start):
                assert row != NULL_BLOCK, f"group {group_idx} let go what it reads at {start}"
                content = self.device.read(group.page_class, row, slot)
                assert content is not None, f"group {group_idx} reads at {start} what nobody wrote"
                assert content[:2] == (group_idx, prefix), f"group {group_idx} reads at {start} what is another's"
                assert request.first_weights <= content.weights <= self.weights

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _add(self, request: NaiveRequest) -> NaiveRequest:
        self.index.learn_hashes(request)
        self.requests[request.blocks.request_id] = request
        return request

    def _note_start(self, step: StepPlan) -> int:
        """Notes that a request got its first pages. Returns where it starts."""
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
        """Notes a step under way. Only this side knows the token that it will sample."""
        request = step.request
        num_rejected = step.num_drafts - step.num_accepted
        is_sampling = step.num_tokens - step.num_drafts >= len(request.tokens)
        sampled = list(step.sampled[: step.num_accepted + 1]) if is_sampling else []
        request.grow(sampled)
        request.in_flight.append(
            Step(start=start, end=step.num_tokens, num_rejected=num_rejected, sampled=sampled),
        )
        size = step.num_tokens + step.num_lookahead_tokens - start
        request.within_plan &= size <= self.config.limits.max_step_tokens and len(request.in_flight) == 1

    def _write(self, request: NaiveRequest, start: int, end: int) -> None:
        written = request.prefixes_written(end)
        for group_idx, group in enumerate_groups(self.config.groups):
            if group.page_class is None:
                continue
            for row, slot, prefix in slots_written(request, group_idx, group, start=start, end=end, written=written):
                assert row != NULL_BLOCK
                assert self.manager.pool.is_writable(group_idx, row), f"group {group_idx} writes what others read"
                self.device.write(group.page_class, row, slot, Slot(group_idx, prefix, self.weights))
