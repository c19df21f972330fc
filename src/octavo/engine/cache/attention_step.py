"""A step's reads and writes in one group of attention layers, found once for all layers of the group.

A sequence with one token reads all blocks that it may see. Neighbours are read together, padded to the longest of them.
The row of them is cut where the padding would cost more than another call. A chunk is read alone, in tiles: one for the
tokens that see nothing before the chunk, and others of bounded size.

    positions     first visible ........ queries ........ end
    blocks        [ first block | ...       | last block ]      a mask hides what is outside
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
import torch

from octavo.engine.cache.packing import PackedRow, PackedSequence
from octavo.engine.cache.visibility import Positions, first_visible, visibility_mask
from octavo.ids import GroupIdx
from octavo.specs import KVCacheSpec, ceil_div

_MAX_PADDING_TOKENS = 1024
"""Reading this many costs about as much as another call. In tokens, so that the groups of an attention and of its
indexer cut a row in the same places, whatever their blocks."""
_MAX_SCORES = 1 << 22
"""The most scores, queries times keys, of one tile: a mask has at most 16 MiB of fp32."""
_MIN_TILE_TOKENS = 64
_MIN_WINDOW_TILE_TOKENS = 128
"""The least tokens of a tile whose queries see different pasts. Longer tiles compute more scores for nothing; shorter
ones than this save less than a call costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleReads:
    """Neighbours with one token each, read together."""

    tokens: slice
    num_sequences: int
    rows: torch.Tensor
    """The pages to read, equally many per sequence, one sequence after the other."""
    mask: torch.Tensor
    """(sequences, 1, 1, tokens read), to be added to scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileReads:
    """A run of a chunk's tokens, and the context that they see."""

    tokens: slice
    num_context_tokens: int
    rows: torch.Tensor | None = None
    """The pages to read. None: the tile's own keys and values are its whole context."""
    mask: torch.Tensor | None = None
    """(1, 1, tile, context), to be added to scores. None, if `rows` is None too: plain causal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStep:
    """One group's part of a step."""

    write_rows: torch.Tensor
    """Per token of the packed row, the page that its keys and values go to."""
    write_slots: torch.Tensor
    """Per token, its slot in that page."""
    new_rows: tuple[int, ...]
    """Pages that the step begins and does not fill. Their rest must be cleared."""
    singles: tuple[SingleReads, ...]
    tiles: tuple[TileReads, ...]


class AttentionStepPlanner:
    """Makes the steps of one group."""

    def __init__(self, group_idx: GroupIdx, spec: KVCacheSpec, dtype: torch.dtype, device: torch.device) -> None:
        self._group_idx = group_idx
        self._spec = spec
        self._block_size = spec.block_size
        self._dtype = dtype
        self._device = device

    def plan(self, row: PackedRow) -> AttentionStep:
        return AttentionStep(
            write_rows=self._tensor([page for packed in row.sequences for page in self._pages_written(packed)]),
            write_slots=(row.positions % self._block_size).to(self._device),
            new_rows=tuple(page for p in row.sequences for page in p.pages_begun(self._group_idx, self._block_size)),
            singles=tuple(self._single_reads(row.singles)),
            tiles=tuple(tile for packed in row.chunks for tile in self._tiles(packed)),
        )

    def _pages_written(self, packed: PackedSequence) -> Sequence[int]:
        """The page of each token's block."""
        if packed.num_tokens == 1:
            return (self._table(packed)[packed.position // self._block_size],)
        pages = [page for page in self._pages(packed, packed.position, packed.end_position) for _ in self._slots]
        skipped = packed.position % self._block_size
        return pages[skipped : skipped + packed.num_tokens]

    # ---- sequences with one token --------------------------------------------------------------------------------

    def _single_reads(self, singles: Sequence[PackedSequence]) -> Iterator[SingleReads]:
        queries = np.array([packed.position for packed in singles], dtype=np.int64)
        first = first_visible(self._spec, queries)
        pages = [self._pages(p, int(f), p.end_position) for p, f in zip(singles, first, strict=True)]
        for start, end in cut_by_length((queries + 1 - first).tolist()):
            num_blocks = max(len(of_one) for of_one in pages[start:end])
            padded = [page for of_one in pages[start:end] for page in _padded(of_one, num_blocks)]
            first_read = first[start:end] // self._block_size * self._block_size
            keys = first_read[:, None] + np.arange(num_blocks * self._block_size)
            yield SingleReads(
                tokens=slice(start, end),
                num_sequences=end - start,
                rows=self._tensor(padded),
                mask=self._mask(queries[start:end], keys)[:, None, None],
            )

    # ---- chunks --------------------------------------------------------------------------------------------------

    def _tiles(self, packed: PackedSequence) -> Iterator[TileReads]:
        first = first_visible(self._spec, np.arange(packed.position, packed.end_position))
        start = packed.position
        while start < packed.end_position:
            num_past, end = _cut_tile(first[start - packed.position :], start)
            tokens = slice(packed.start + start - packed.position, packed.start + end - packed.position)
            yield self._tile(packed, tokens, range(start, end), num_past)
            start = end

    def _tile(self, packed: PackedSequence, tokens: slice, queries: range, num_past: int) -> TileReads:
        if not num_past:
            return TileReads(tokens=tokens, num_context_tokens=len(queries))
        first_read = (queries.start - num_past) // self._block_size * self._block_size
        return TileReads(
            tokens=tokens,
            num_context_tokens=queries.stop - first_read,
            rows=self._tensor(self._pages(packed, first_read, queries.stop)),
            mask=self._mask(np.array(queries), np.arange(first_read, queries.stop))[None, None],
        )

    # ---- helpers -------------------------------------------------------------------------------------------------

    @property
    def _slots(self) -> range:
        return range(self._block_size)

    def _pages(self, packed: PackedSequence, start: int, end: int) -> Sequence[int]:
        """The pages that hold positions [start, end)."""
        return self._table(packed)[start // self._block_size : ceil_div(end, self._block_size)]

    def _table(self, packed: PackedSequence) -> Sequence[int]:
        return packed.sequence.block_tables[self._group_idx]

    def _tensor(self, numbers: Sequence[int]) -> torch.Tensor:
        return torch.tensor(numbers, device=self._device)

    def _mask(self, queries: np.ndarray, keys: np.ndarray) -> torch.Tensor:
        return visibility_mask(self._spec, queries, keys, self._dtype).to(self._device)


def cut_by_length(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cuts neighbours with so many tokens to read into runs that are read together; one ends where padding all others
    to its longest costs too much."""
    start, longest = 0, 0
    for index, length in enumerate(lengths):
        if index > start and (longest - length) * (len(lengths) - index) > _MAX_PADDING_TOKENS:
            yield start, index
            start, longest = index, 0
        longest = max(longest, length)
    if lengths:
        yield start, len(lengths)


def _padded(pages: Sequence[int], num_blocks: int) -> Sequence[int]:
    """The rows, padded with one of the sequence's own pages, which holds numbers for sure; a mask hides the padding."""
    return [*pages, *[pages[-1]] * (num_blocks - len(pages))]


def _cut_tile(first: Positions, start: int) -> tuple[int, int]:
    """For a tile that begins at `start`: the tokens before it that it sees, and its end. `first` is the first position
    that each query sees, from `start` on."""
    num_past = start - int(first[0])
    if not num_past:  # plain causal, as far as all queries see the same first token
        return 0, start + int(np.searchsorted(first, start, side="right"))
    # The most tokens t for which t * (past + t) scores fit the bound.
    most = (isqrt(num_past**2 + 4 * _MAX_SCORES) - num_past) // 2
    num_tokens = min(len(first), max(_MIN_TILE_TOKENS, most))
    if first[num_tokens - 1] > first[0]:
        num_tokens = min(num_tokens, max(_MIN_WINDOW_TILE_TOKENS, num_past // 4))
    return num_past, start + num_tokens
