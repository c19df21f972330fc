"""The built-in managers. One follows the resume rule and serves most kinds; others exist where behaviour differs."""

from collections.abc import Sequence

from octavo.ids import GroupIdx, Row
from octavo.specs import (
    NULL_BLOCK,
    BlockTable,
    CachedSequence,
    FoundBlocks,
    KVCacheSpec,
    PageCopy,
    PageHolder,
    ResumePoint,
    SingleTypeKVCacheManager,
    blocks_holding,
    ceil_div,
)

_NEVER = 1 << 62
_FAR = 1 << 40


class ResumeRuleManager(SingleTypeKVCacheManager):
    """Keeps what a resume at the computed tokens would need, and room for the tokens being computed.

    blocks   0 ..... | needed_blocks(computed) | computed ..... num_tokens |
             let go                              room
    """

    def __init__(self, spec: KVCacheSpec, group_idx: GroupIdx, pages: PageHolder) -> None:
        super().__init__(spec, group_idx, pages)
        far = ResumePoint(num_tokens=_FAR)
        self.keeps_everything = spec.needed_blocks(far) == blocks_holding(0, _FAR, spec.block_size)
        """What is needed at the end is needed before (the law of resumption), so nothing is ever let go early."""

    def adopt(self, table: BlockTable, found: FoundBlocks, point: ResumePoint) -> None:
        num_blocks = ceil_div(point.num_tokens, self.block_size)
        table.rows = []
        for blocks, rows in found:
            table.rows += [NULL_BLOCK] * (blocks.start - len(table.rows))
            table.rows += rows
        table.rows += [NULL_BLOCK] * (num_blocks - len(table.rows))
        table.num_published = point.num_tokens // self.block_size
        table.num_retired = found[-1][0].start if found else num_blocks

    def num_pages_needed(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> int:
        more = -(-num_tokens // self.block_size) - len(table.rows)
        copy = self._block_to_copy(table, sequence) is not None
        return more + copy if more > 0 else copy

    def extend(
        self, table: BlockTable, sequence: CachedSequence, num_tokens: int, pages: list[Row]
    ) -> Sequence[PageCopy]:
        copies: tuple[PageCopy, ...] = ()
        block = self._block_to_copy(table, sequence)
        if block is not None:
            shared, table.rows[block] = table.rows[block], pages.pop()
            copies = (PageCopy(group_idx=self.group_idx, source=shared, destination=table.rows[block]),)
            self.pages.let_go(self.group_idx, [shared])
        table.rows += pages
        return copies

    def commit(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> None:
        first, end = table.num_published, num_tokens // self.block_size
        if first < end:
            rows: Sequence[Row] = table.rows[first:end]
            blocks: Sequence[int] = range(first, end)
            if NULL_BLOCK in rows:
                blocks = [block for block in blocks if table.rows[block] != NULL_BLOCK]
                rows = [table.rows[block] for block in blocks]
            self.pages.publish(self.group_idx, sequence, blocks, rows)
            table.num_published = end
        if not self.keeps_everything:
            self._retire(table, sequence, num_tokens)

    def release(self, table: BlockTable, sequence: CachedSequence) -> None:
        rows = table.rows
        self.pages.let_go(self.group_idx, [row for row in rows if row != NULL_BLOCK] if NULL_BLOCK in rows else rows)
        table.rows = []
        table.num_retired = table.num_published = 0

    def tokens_until_extend(self, table: BlockTable, sequence: CachedSequence) -> int:
        if self._block_to_copy(table, sequence) is not None:
            return sequence.num_scheduled_tokens
        return len(table.rows) * self.block_size

    def tokens_until_commit(self, table: BlockTable, sequence: CachedSequence) -> int:
        return (table.num_published + 1) * self.block_size

    def fork(self, table: BlockTable, sequence: CachedSequence) -> BlockTable:
        twin = self.new_table()
        twin.rows = table.rows[: ceil_div(sequence.num_computed_tokens, self.block_size)]
        twin.num_retired, twin.num_published = table.num_retired, table.num_published
        self.pages.hold(self.group_idx, [row for row in twin.rows if row != NULL_BLOCK])
        return twin

    def _block_to_copy(self, table: BlockTable, sequence: CachedSequence) -> int | None:
        """The block that the next token goes into, where others read it too."""
        if not sequence.num_scheduled_tokens % self.block_size:
            return None
        block = sequence.num_scheduled_tokens // self.block_size
        if block >= len(table.rows) or self.pages.is_writable(self.group_idx, table.rows[block]):
            return None
        return block

    def _retire(self, table: BlockTable, sequence: CachedSequence, num_computed_tokens: int) -> None:
        """Lets go the blocks that no resume from here on needs: the gaps between those that one needs now, and
        between the last of them and what is being computed."""
        being_computed = num_computed_tokens // self.block_size
        dead: list[Row] = []
        gap_start = last_gap_end = 0
        for kept in (*self.spec.needed_blocks(sequence.resume_point(num_computed_tokens)), range(being_computed, 0)):
            first = max(gap_start, table.num_retired)
            if first < kept.start:
                dead += [row for row in table.rows[first : kept.start] if row != NULL_BLOCK]
                table.rows[first : kept.start] = [NULL_BLOCK] * (kept.start - first)
                last_gap_end = kept.start
            gap_start = kept.stop
        table.num_retired = max(table.num_retired, last_gap_end)
        if dead:
            self.pages.let_go(self.group_idx, dead)


class EncoderBlocksManager(ResumeRuleManager):
    """Blocks of an encoder's output: filled once, by the first step, and kept until the request ends."""

    def adopt(self, table: BlockTable, found: FoundBlocks, point: ResumePoint) -> None:
        table.rows = [row for _, rows in found for row in rows]
        table.num_published = len(table.rows)

    def num_pages_needed(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> int:
        return 0 if table.rows else self._num_blocks(sequence)

    def extend(
        self, table: BlockTable, sequence: CachedSequence, num_tokens: int, pages: list[Row]
    ) -> Sequence[PageCopy]:
        table.rows += pages
        return ()

    def commit(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> None:
        if not table.num_published:
            self.pages.publish(self.group_idx, sequence, range(len(table.rows)), table.rows)
        table.num_published = len(table.rows)

    def tokens_until_extend(self, table: BlockTable, sequence: CachedSequence) -> int:
        return sequence.num_scheduled_tokens if self.num_pages_needed(table, sequence, 0) else _NEVER

    def tokens_until_commit(self, table: BlockTable, sequence: CachedSequence) -> int:
        return sequence.num_computed_tokens if table.num_published < len(table.rows) else _NEVER

    def fork(self, table: BlockTable, sequence: CachedSequence) -> BlockTable:
        twin = self.new_table()
        twin.rows, twin.num_published = list(table.rows), table.num_published
        self.pages.hold(self.group_idx, twin.rows)
        return twin

    def _num_blocks(self, sequence: CachedSequence) -> int:
        return ceil_div(sequence.resume_point(0).num_encoder_tokens, self.block_size)


class CircularBufferManager(SingleTypeKVCacheManager):
    """One block for each request, written again and again until it ends. Nothing of it is published."""

    def adopt(self, table: BlockTable, found: FoundBlocks, point: ResumePoint) -> None:
        """No record is open at a boundary, so a resumed request begins with an empty block as any other."""

    def num_pages_needed(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> int:
        if num_tokens <= sequence.num_scheduled_tokens:
            return 0
        return 0 if table.rows and self.pages.is_writable(self.group_idx, table.rows[0]) else 1

    def extend(
        self, table: BlockTable, sequence: CachedSequence, num_tokens: int, pages: list[Row]
    ) -> Sequence[PageCopy]:
        shared, table.rows = table.rows, pages or table.rows
        if not (shared and pages):
            return ()
        self.pages.let_go(self.group_idx, shared)
        return (PageCopy(group_idx=self.group_idx, source=shared[0], destination=pages[0]),)

    def commit(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> None:
        """What is open changes with every token, and what is closed has gone into a record."""

    def release(self, table: BlockTable, sequence: CachedSequence) -> None:
        self.pages.let_go(self.group_idx, table.rows)
        table.rows = []

    def tokens_until_extend(self, table: BlockTable, sequence: CachedSequence) -> int:
        scheduled = sequence.num_scheduled_tokens
        return scheduled if self.num_pages_needed(table, sequence, scheduled + 1) else _NEVER

    def tokens_until_commit(self, table: BlockTable, sequence: CachedSequence) -> int:
        return _NEVER

    def fork(self, table: BlockTable, sequence: CachedSequence) -> BlockTable:
        twin = self.new_table()
        twin.rows = list(table.rows)
        self.pages.hold(self.group_idx, twin.rows)
        return twin
