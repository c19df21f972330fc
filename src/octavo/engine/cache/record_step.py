"""A step's part of one kind of records, found once for all layers that keep it. A record is made of a pool of tokens,
or of two pools if records overlap.

    tokens    0 1 2 3 | 4 5 6 7 | 8 9      pools of four; two tokens are open
    records   r0        r1
    open              | 4 5 6 7 | 8 9      what the next records are made of: two pools at most if records overlap
                                | 8 9      one pool if they do not

A step takes the tokens of all pools that it closes, of one sequence after the other. Where records overlap, the pool
before comes first and is no new record; before a sequence's first pool it is a blank one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from octavo.engine.cache.attention_step import AttentionStep
from octavo.engine.cache.packing import PackedRow, PackedSequence
from octavo.engine.cache.record_reads import RecordReads, RecordReadsPlanner
from octavo.ids import GroupIdx
from octavo.specs import AttentionSpec, CircularBufferSpec, MLAAttentionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Places in pages: for each, the page and the slot of a token in it."""

    rows: torch.Tensor
    slots: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStep:
    """What a step does with one kind of records."""

    new_rows: tuple[int, ...]
    """Pages of records that the step begins and does not fill. Their rest must be cleared."""
    old: Slots
    """The open tokens of before that the new records are made of."""
    made_of: torch.Tensor
    """By token of each pool: its place among the old ones, then the tokens of the packed row, then a blank one."""
    shifts: torch.Tensor
    """By pool: where it begins in its sequence, less where it would begin if there were no other pools than these."""
    new_pools: torch.Tensor
    """The pools of which there are new records, among all."""
    records: Slots
    """By new record."""
    open_tokens: torch.Tensor
    """The tokens of the packed row that later records are made of, and where they go."""
    open: Slots
    singles: tuple[RecordReads | None, ...]
    tiles: tuple[RecordReads | None, ...]


class RecordStepPlanner:
    """Makes the steps of one kind of records."""

    def __init__(
        self,
        records: tuple[GroupIdx, MLAAttentionSpec],
        open_tokens: tuple[GroupIdx, AttentionSpec],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`dtype`: that of masks."""
        (self._group_idx, spec), (self._open_group_idx, open_spec) = records, open_tokens
        self._block_size, self._pool = spec.block_size, spec.tokens_per_state
        self._open_block_size = open_spec.block_size
        self._is_circular = isinstance(open_spec, CircularBufferSpec)
        self._num_before = 0 if self._is_circular else 1
        """Pools before its own that a record is made of."""
        self._device = device
        self._reads = RecordReadsPlanner(self._group_idx, spec, dtype, device)

    def plan(self, row: PackedRow, window: AttentionStep) -> RecordStep:
        """`window`: the step of the tokens that the same attention sees uncompressed."""
        closing = [p for p in row.sequences if self._first_pool(p) < self._end_pool(p)]
        old = [range(max(0, self._lead(p)), p.position) for p in closing]
        num_old = sum(map(len, old))
        pools = [[*range(self._lead(p) // self._pool, self._end_pool(p))] for p in closing]
        is_new = [pool >= self._first_pool(p) for p, of_one in zip(closing, pools, strict=True) for pool in of_one]
        new_pools = [range(self._first_pool(p) * self._pool, self._end_pool(p) * self._pool) for p in closing]
        kept = [range(self._first_kept(p), p.end_position) for p in row.sequences]
        return RecordStep(
            new_rows=tuple(page for p in row.sequences for page in p.pages_begun(self._group_idx, self._block_size)),
            old=self._open_slots(closing, old),
            made_of=self._longs(self._made_of(closing, num_old, blank=num_old + len(row.positions))),
            shifts=self._longs((pool - place) * self._pool for place, pool in enumerate(chain.from_iterable(pools))),
            new_pools=self._longs(place for place, new in enumerate(is_new) if new),
            records=self._slots(self._group_idx, self._block_size, closing, [r[:: self._pool] for r in new_pools]),
            open_tokens=self._longs(
                p.start + position - p.position for p, r in zip(row.sequences, kept, strict=True) for position in r
            ),
            open=self._open_slots(row.sequences, kept),
            singles=self._reads.of_singles(row, window.singles),
            tiles=self._reads.of_tiles(row, window.tiles),
        )

    # ---- what is made of what ------------------------------------------------------------------------------------

    def _first_pool(self, packed: PackedSequence) -> int:
        """The pool of the sequence's first new token."""
        return packed.position // self._pool

    def _end_pool(self, packed: PackedSequence) -> int:
        """The first pool that stays open."""
        return packed.end_position // self._pool

    def _lead(self, packed: PackedSequence) -> int:
        """The position of the first token that a record is made of; negative where that is a blank one."""
        return (self._first_pool(packed) - self._num_before) * self._pool

    def _first_kept(self, packed: PackedSequence) -> int:
        """The first new token that is written. The window's blocks are written whole, as a request may resume at the
        end of any of them; a circular buffer has room for a pool."""
        return max(packed.position, self._end_pool(packed) * self._pool) if self._is_circular else packed.position

    def _made_of(self, closing: Sequence[PackedSequence], num_old: int, *, blank: int) -> Iterator[int]:
        first_old = 0
        for packed in closing:
            lead, end = self._lead(packed), self._end_pool(packed) * self._pool
            after_old = first_old + packed.position - max(0, lead)
            first_new = num_old + packed.start
            yield from [blank] * -min(0, lead)
            yield from range(first_old, after_old)
            yield from range(first_new, first_new + end - packed.position)
            first_old = after_old

    # ---- where it lies -------------------------------------------------------------------------------------------

    def _open_slots(self, sequences: Sequence[PackedSequence], positions: Sequence[range]) -> Slots:
        return self._slots(self._open_group_idx, self._open_block_size, sequences, positions)

    def _slots(
        self, group_idx: GroupIdx, block_size: int, sequences: Sequence[PackedSequence], positions: Sequence[range]
    ) -> Slots:
        is_one_page = self._is_circular and group_idx == self._open_group_idx
        tables = [packed.sequence.block_tables[group_idx] for packed in sequences]
        places = [(table, position) for table, of_one in zip(tables, positions, strict=True) for position in of_one]
        return Slots(
            rows=self._longs(table[0 if is_one_page else position // block_size] for table, position in places),
            slots=self._longs(position % block_size for _, position in places),
        )

    def _longs(self, numbers: Iterable[int]) -> torch.Tensor:
        return torch.tensor([*numbers], dtype=torch.long, device=self._device)
