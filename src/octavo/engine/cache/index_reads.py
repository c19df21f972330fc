"""`IndexReads`: what one layer's indexer keeps and reads in one step.

An indexer scores all tokens that a query sees, each with several heads, and names the best. It is called for one part
of the packed row after the other: the sequences with one token that are read together, and runs of a tile's tokens that
are short enough for their scores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from octavo.engine.cache.attention_step import AttentionStep, TileReads
from octavo.engine.cache.layer_pages import IndexPages

_MAX_SCORES = 1 << 24
"""The most scores of one call, heads times queries times keys: 64 MiB of fp32."""


def most_queries(num_heads: int, num_keys: int) -> int:
    """How many queries of one sequence an indexer may score in one call."""
    return max(1, _MAX_SCORES // (num_heads * num_keys))


def cut_row(value: Any, tokens: slice, num_sequences: int) -> Any:
    """An argument (1, tokens of the packed row, ...) for some of the tokens: (sequences, queries, ...). Of a tuple each
    item; what is no tensor stays as it is."""
    if isinstance(value, tuple):
        return tuple([cut_row(one, tokens, num_sequences) for one in value])
    if not isinstance(value, torch.Tensor):
        return value
    return value[:, tokens].reshape(num_sequences, -1, *value.shape[2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPart:
    """The tokens of one call."""

    tokens: slice
    num_sequences: int
    mask: torch.Tensor
    """(sequences, queries, keys), to be added to scores."""
    rows: torch.Tensor | None
    """The pages to read. None: the keys are those of this step, from `first` on."""
    first: int = 0

    def cut(self, value: Any) -> Any:
        """An argument for this part, as `cut_row`."""
        return cut_row(value, self.tokens, self.num_sequences)


class IndexReads:
    """The keys of one layer's indexer. A call hands in those of its part, and gets all that the part sees."""

    def __init__(self, pages: IndexPages, step: AttentionStep) -> None:
        self._pages, self._step = pages, step
        self._keys: torch.Tensor | None = None
        """(tokens of the packed row, size): those of the calls so far."""
        self._part: IndexPart | None = None

    def singles(self) -> Iterator[IndexPart]:
        """The sequences with one token, read by read."""
        for single in self._step.singles:
            mask = single.mask[:, 0]
            yield IndexPart(tokens=single.tokens, num_sequences=single.num_sequences, mask=mask, rows=single.rows)

    def tiles(self, num_heads: int) -> Iterator[Sequence[IndexPart]]:
        """The parts of each tile. Each sees what was handed in for those before it."""
        for tile in self._step.tiles:
            yield [*self._parts(tile, most_queries(num_heads, tile.num_context_tokens))]

    def _parts(self, tile: TileReads, most: int) -> Iterator[IndexPart]:
        first, end = tile.tokens.start, tile.tokens.stop
        for start in range(first, end, most):
            stop = min(start + most, end)
            num_keys = tile.num_context_tokens - (end - stop)  # pages of later tokens may hold anything yet
            if tile.mask is None:
                mask = torch.full((1, stop - start, num_keys), -torch.inf, device=self._step.write_rows.device)
                mask = mask.triu_(num_keys - (stop - start) + 1)
            else:
                mask = tile.mask[0, :, start - first : stop - first, :num_keys]
            yield IndexPart(tokens=slice(start, stop), num_sequences=1, mask=mask, rows=tile.rows, first=first)

    def begin(self, part: IndexPart) -> None:
        """The next call is for this part."""
        self._part = part

    @property
    def _current(self) -> IndexPart:
        assert self._part is not None, "an indexer runs outside of any part"
        return self._part

    def exchange(self, keys: torch.Tensor) -> torch.Tensor:
        """Keeps the keys (sequences, queries, size) of the part, and returns (sequences, keys, size)."""
        part, step = self._current, self._step
        own = keys.flatten(0, 1)
        self._pages.write_keys(step.write_rows[part.tokens], step.write_slots[part.tokens], own)
        if part.rows is not None:
            return self._pages.gather_joined(part.rows, part.num_sequences)[:, : part.mask.shape[-1]]
        if self._keys is None:
            self._keys = own.new_empty(len(step.write_rows), own.shape[-1])
        self._keys[part.tokens] = own
        return self._keys[None, part.first : part.tokens.stop]
