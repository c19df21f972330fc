"""The manager of recurrent state: running pages, and checkpoints that are kept at promised boundaries.

A request writes its state to running pages that nobody else reads. At a boundary that is to be kept, the running page
itself is kept, and the next step gets a copy of it to go on with; so a hit, a kept boundary and a fork are one
thing: the page that is about to be written is one that others may read, and the writer gets a fresh copy.

    rows[0]            state after the last scheduled token
    rows[i]            in a speculative step of i + 1 tokens or more, state after its token i + 1
    kept_row           state at kept_tokens: the source of the last copy. While a request decodes it rolls on from
                       boundary to boundary, and is published when the request ends
"""

from collections.abc import Sequence

from octavo.ids import Row
from octavo.specs import (
    NULL_BLOCK,
    BlockTable,
    CachedSequence,
    FoundBlocks,
    PageCopy,
    ResumePoint,
    SingleTypeKVCacheManager,
    UniformTypeKVCacheSpecs,
)


class StateTable(BlockTable):
    """The running pages of one request, and the page that it keeps."""

    __slots__ = ("kept_row", "kept_tokens")

    def __init__(self) -> None:
        super().__init__()
        self.kept_row = NULL_BLOCK
        self.kept_tokens = 0


class CheckpointManager(SingleTypeKVCacheManager):
    """Running states and checkpoints of one group."""

    @property
    def num_running(self) -> int:
        spec = self.spec.first if isinstance(self.spec, UniformTypeKVCacheSpecs) else self.spec
        return 1 + getattr(spec, "num_speculative_tokens", 0)

    def new_table(self) -> StateTable:
        return StateTable()

    def adopt(self, table: BlockTable, found: FoundBlocks, point: ResumePoint) -> None:
        table.rows = [row for _, rows in found for row in rows]

    def num_pages_needed(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> int:
        assert isinstance(table, StateTable)
        if num_tokens <= sequence.num_scheduled_tokens:
            return 0
        if self._must_leave_page(table, sequence):
            one_more = not self._can_reuse_kept(table, sequence)
        else:
            one_more = self._needs_spare(table)
        return self.num_running - len(table.rows) + one_more

    def extend(
        self, table: BlockTable, sequence: CachedSequence, num_tokens: int, pages: list[Row]
    ) -> Sequence[PageCopy]:
        assert isinstance(table, StateTable)
        copies: tuple[PageCopy, ...] = ()
        if num_tokens <= sequence.num_scheduled_tokens:
            return copies
        if self._must_leave_page(table, sequence):
            fresh = table.kept_row if self._can_reuse_kept(table, sequence) else pages.pop()
            if table.kept_row not in (NULL_BLOCK, fresh):
                self.pages.let_go(self.group_idx, [table.kept_row])
            table.kept_row, table.rows[0] = table.rows[0], fresh
            table.kept_tokens = sequence.num_scheduled_tokens
            copies = (PageCopy(group_idx=self.group_idx, source=table.kept_row, destination=fresh),)
        elif self._needs_spare(table):
            table.kept_row = pages.pop()
        table.rows += pages
        return copies

    def commit(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> None:
        assert isinstance(table, StateTable)
        if self._is_speculative_step(sequence, num_tokens):
            self._pick_accepted_state(table, sequence, num_tokens)
        boundary = num_tokens // self.block_size * self.block_size
        if boundary > sequence.num_computed_tokens and sequence.is_worth_a_checkpoint(boundary):
            self._publish_state_at(table, sequence, boundary)
        self._let_go_of_what_was_offered(table, sequence, num_tokens)

    def release(self, table: BlockTable, sequence: CachedSequence) -> None:
        assert isinstance(table, StateTable)
        computed = sequence.num_computed_tokens
        if sequence.num_scheduled_tokens == computed:
            self._publish_state_at(table, sequence, computed)
        if table.kept_row != NULL_BLOCK:
            if table.kept_tokens <= computed:
                self._publish_state_at(table, sequence, table.kept_tokens)
            self.pages.let_go(self.group_idx, [table.kept_row])
        self.pages.let_go(self.group_idx, table.rows)
        table.rows, table.kept_row, table.kept_tokens = [], NULL_BLOCK, 0

    def tokens_until_extend(self, table: BlockTable, sequence: CachedSequence) -> int:
        scheduled = sequence.num_scheduled_tokens
        if self.num_pages_needed(table, sequence, scheduled + 1) or self._must_leave_page(table, sequence):
            return scheduled
        return (scheduled // self.block_size + 1) * self.block_size

    def tokens_until_commit(self, table: BlockTable, sequence: CachedSequence) -> int:
        if self.num_running > 1:
            return sequence.num_computed_tokens
        return (sequence.num_computed_tokens // self.block_size + 1) * self.block_size

    def fork(self, table: BlockTable, sequence: CachedSequence) -> BlockTable:
        twin = self.new_table()
        twin.rows = table.rows[:1]
        self.pages.hold(self.group_idx, twin.rows)
        return twin

    def _must_leave_page(self, table: BlockTable, sequence: CachedSequence) -> bool:
        """Whether the page with the current state is to stay as it is."""
        if not table.rows:
            return False
        if not self.pages.is_writable(self.group_idx, table.rows[0]):
            return True
        scheduled = sequence.num_scheduled_tokens
        is_decoding = scheduled >= sequence.num_prompt_tokens
        return scheduled % self.block_size == 0 and (is_decoding or sequence.is_worth_a_checkpoint(scheduled))

    def _can_reuse_kept(self, table: StateTable, sequence: CachedSequence) -> bool:
        """Whether the kept page is the request's own, and a later one takes its place."""
        return (
            table.kept_row != NULL_BLOCK
            and self.pages.is_writable(self.group_idx, table.kept_row)
            and not (sequence.is_worth_a_checkpoint(table.kept_tokens) and table.kept_tokens > 0)
        )

    def _let_go_of_what_was_offered(self, table: StateTable, sequence: CachedSequence, num_tokens: int) -> None:
        """A kept page that the index has, or had no use for, need not be held: the next boundary wants its place."""
        if table.kept_row == NULL_BLOCK or table.kept_tokens > num_tokens:
            return
        was_offered = table.kept_tokens > 0 and sequence.is_worth_a_checkpoint(table.kept_tokens)
        if was_offered or not self.pages.is_writable(self.group_idx, table.kept_row):
            self.pages.let_go(self.group_idx, [table.kept_row])
            table.kept_row, table.kept_tokens = NULL_BLOCK, 0

    def _needs_spare(self, table: StateTable) -> bool:
        """Whether a page must be at hand for a boundary inside a speculative step."""
        return self.num_running > 1 and table.kept_row == NULL_BLOCK

    def _publish_state_at(self, table: StateTable, sequence: CachedSequence, num_tokens: int) -> None:
        """Offers the page that holds the state at this point, where there is one and it is a boundary's."""
        block = num_tokens // self.block_size - 1
        if num_tokens % self.block_size or not 0 <= block < len(sequence.hashes(self.group_idx)):
            return
        if table.rows and sequence.num_scheduled_tokens == num_tokens:
            row = table.rows[0]
        elif table.kept_row != NULL_BLOCK and table.kept_tokens == num_tokens:
            row = table.kept_row
        else:
            return
        if self.pages.is_writable(self.group_idx, row):
            self.pages.publish(self.group_idx, sequence, [block], [row])

    def _is_speculative_step(self, sequence: CachedSequence, num_tokens: int) -> bool:
        advanced = num_tokens - sequence.num_computed_tokens
        is_decoding = sequence.num_computed_tokens >= sequence.num_prompt_tokens
        return self.num_running > 1 and is_decoding and 1 <= advanced <= self.num_running

    def _pick_accepted_state(self, table: StateTable, sequence: CachedSequence, num_tokens: int) -> None:
        """The state after the last accepted token becomes the current one; one that stands at a boundary is kept."""
        computed = sequence.num_computed_tokens
        boundary = num_tokens // self.block_size * self.block_size
        if computed < boundary < num_tokens and self._can_reuse_kept(table, sequence):
            at_boundary = boundary - computed - 1
            table.kept_row, table.rows[at_boundary] = table.rows[at_boundary], table.kept_row
            table.kept_tokens = boundary
        accepted = num_tokens - computed - 1
        table.rows[0], table.rows[accepted] = table.rows[accepted], table.rows[0]
