"""The records that a step's queries see beside the tokens of their window, found once for all layers that keep them.

A query sees the records of all pools that ended up to itself. They are read as the window is: for sequences with one
token together, and tile by tile.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from octavo.engine.cache.attention_step import SingleReads, TileReads
from octavo.engine.cache.packing import PackedRow, PackedSequence
from octavo.ids import GroupIdx
from octavo.specs import MLAAttentionSpec, ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReads:
    """The records that a read of the window sees too, if there are any."""

    tokens: slice
    num_sequences: int
    rows: torch.Tensor
    """The pages to read, equally many per sequence, one sequence after the other."""
    mask: torch.Tensor
    """(sequences, 1, queries, records read), to be added to scores."""


class RecordReadsPlanner:
    """Makes the reads of one kind of records."""

    def __init__(self, group_idx: GroupIdx, spec: MLAAttentionSpec, dtype: torch.dtype, device: torch.device) -> None:
        self._group_idx, self._block_size, self._pool = group_idx, spec.block_size, spec.tokens_per_state
        self._dtype, self._device = dtype, device

    def of_singles(self, row: PackedRow, singles: Iterable[SingleReads]) -> tuple[RecordReads | None, ...]:
        """For each read of the window: None where no query sees a record."""
        together = [(single.tokens, row.sequences[single.tokens]) for single in singles]
        return tuple(self._read(sequences, [p.position for p in sequences], tokens) for tokens, sequences in together)

    def of_tiles(self, row: PackedRow, tiles: Iterable[TileReads]) -> tuple[RecordReads | None, ...]:
        """The same of tiles."""
        return tuple(self._of_tiles(row, tiles))

    def _of_tiles(self, row: PackedRow, tiles: Iterable[TileReads]) -> Iterator[RecordReads | None]:
        chunks = iter(row.chunks)
        packed: PackedSequence | None = None
        for tile in tiles:
            while packed is None or packed.end <= tile.tokens.start:
                packed = next(chunks)
            yield self._read([packed], [packed.position + tile.tokens.start - packed.start], tile.tokens)

    def _read(self, sequences: Sequence[PackedSequence], first: Sequence[int], tokens: slice) -> RecordReads | None:
        """`first`: by sequence, the position of its first query."""
        num_queries = (tokens.stop - tokens.start) // len(sequences)
        num_records = (max(first) + num_queries) // self._pool
        if not num_records:
            return None
        num_blocks = ceil_div(num_records * self._pool, self._block_size)
        queries = torch.tensor(first)[:, None] + torch.arange(num_queries)
        places = torch.arange(num_blocks * self._block_size // self._pool)
        is_hidden = places >= (queries[..., None] + 1) // self._pool
        mask = torch.zeros(is_hidden.shape, dtype=self._dtype).masked_fill_(is_hidden, -torch.inf)
        return RecordReads(
            tokens=tokens,
            num_sequences=len(sequences),
            rows=torch.tensor([page for p in sequences for page in self._pages(p, num_blocks)], device=self._device),
            mask=mask[:, None].to(self._device),
        )

    def _pages(self, packed: PackedSequence, num_blocks: int) -> Sequence[int]:
        """Padded with the sequence's own first page, which holds numbers for sure; a mask hides the padding."""
        table = packed.sequence.block_tables[self._group_idx]
        own = table[: min(num_blocks, ceil_div(packed.end_position, self._block_size))]
        return [*own, *[table[0]] * (num_blocks - len(own))]
