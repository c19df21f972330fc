"""A step's reads and writes in one group of recurrent layers.

A recurrent mixer computes the packed row segment by segment: sequences with equally many tokens as one batch, and a
sequence with drafts token by token, since any of them may be the last that is accepted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from octavo.engine.cache.packing import PackedRow, PackedSequence
from octavo.ids import GroupIdx


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSegment:
    """Tokens that a mixer computes in one call, equally many per sequence."""

    tokens: slice
    num_sequences: int
    read_rows: torch.Tensor
    """Per sequence, the page with the state before its tokens."""
    write_rows: torch.Tensor
    """Per sequence, the page for the state after its tokens."""
    in_place_row: int | None
    """The page of a single sequence that reads and writes the same one; otherwise None."""

    def by_sequence(self, value: torch.Tensor) -> torch.Tensor:
        """(tokens of the packed row, ...) to (sequences, tokens of each, ...)."""
        return value[self.tokens].reshape(self.num_sequences, -1, *value.shape[1:])

    def first_of_each(self, value: torch.Tensor) -> torch.Tensor:
        """(tokens of the packed row, ...) to (sequences, ...): that of the first token."""
        return self.by_sequence(value)[:, 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStep:
    """One group's part of a step."""

    new_rows: tuple[int, ...]
    """Pages of sequences that begin. They must be cleared: the state before the first token is zero."""
    segments: tuple[StateSegment, ...]


class StateStepPlanner:
    """Makes the steps of one group."""

    def __init__(self, group_idx: GroupIdx, device: torch.device) -> None:
        self._group_idx = group_idx
        self._device = device

    def plan(self, row: PackedRow) -> StateStep:
        return StateStep(
            new_rows=tuple(self._running(packed)[0] for packed in row.sequences if packed.position == 0),
            segments=tuple(self._segments(row)),
        )

    def _segments(self, row: PackedRow) -> Iterator[StateSegment]:
        for (_, has_drafts), neighbours in groupby(row.sequences, key=lambda p: (p.num_tokens, p.num_draft_tokens > 0)):
            if has_drafts:
                for packed in neighbours:
                    yield from self._with_drafts(packed)
            else:
                together = list(neighbours)
                pages = [self._running(packed)[0] for packed in together]
                yield self._segment(slice(together[0].start, together[-1].end), pages, pages)

    def _with_drafts(self, packed: PackedSequence) -> Iterator[StateSegment]:
        pages = self._running(packed)
        first_draft = packed.end - packed.num_draft_tokens
        yield self._segment(slice(packed.start, first_draft), pages[:1], pages[:1])
        for index in range(packed.num_draft_tokens):
            token = first_draft + index
            yield self._segment(slice(token, token + 1), [pages[index]], [pages[index + 1]])

    def _segment(self, tokens: slice, read: Sequence[int], write: Sequence[int]) -> StateSegment:
        return StateSegment(
            tokens=tokens,
            num_sequences=len(read),
            read_rows=torch.tensor(read, device=self._device),
            write_rows=torch.tensor(write, device=self._device),
            in_place_row=read[0] if len(read) == 1 and read == write else None,
        )

    def _running(self, packed: PackedSequence) -> Sequence[int]:
        return packed.sequence.block_tables[self._group_idx]
