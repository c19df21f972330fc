"""The packed row: all tokens of a step's sequences, one sequence after the other.

    tokens    d d d d d | chunk chunk | chunk chunk chunk | ...
              one each  | the others, the shorter first

Sequences with equally many tokens are sorted by context, the longest first. So those that are computed together are
neighbours: recurrent layers batch equally many tokens, and single tokens attend to contexts of nearly equal length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from octavo.engine.batch import ScheduledSequence, StepBatch
from octavo.ids import GroupIdx


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSequence:
    """A sequence in the packed row. Its tokens [start, end) of the row are at `position` and after in the sequence."""

    sequence: ScheduledSequence
    batch_index: int
    start: int
    position: int

    @property
    def num_tokens(self) -> int:
        return len(self.sequence.token_ids)

    @property
    def num_draft_tokens(self) -> int:
        return self.sequence.num_draft_tokens

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def end_position(self) -> int:
        return self.position + self.num_tokens

    def pages_begun(self, group_idx: GroupIdx, block_size: int) -> Sequence[int]:
        """The page of a block that begins among these tokens and ends after them, if there is one."""
        last_block, num_used = divmod(self.end_position, block_size)
        is_begun = num_used and last_block * block_size >= self.position
        return (self.sequence.block_tables[group_idx][last_block],) if is_begun else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """The packed sequences of a step; the first `num_single` have one token each."""

    sequences: tuple[PackedSequence, ...]
    num_single: int
    token_ids: torch.Tensor
    positions: torch.Tensor

    @property
    def singles(self) -> tuple[PackedSequence, ...]:
        return self.sequences[: self.num_single]

    @property
    def chunks(self) -> tuple[PackedSequence, ...]:
        return self.sequences[self.num_single :]

    def only_pages(self, group_idx: GroupIdx) -> list[int]:
        """By token: the page of its sequence in a group that gives each sequence one."""
        return [p.sequence.block_tables[group_idx][0] for p in self.sequences for _ in range(p.num_tokens)]

    def earlier_tokens(self, number: int, filler: int) -> torch.Tensor:
        """(tokens, number): those right before each token in its sequence; `filler` stands before the first."""
        return torch.cat([_earlier_tokens(packed, number, filler) for packed in self.sequences])

    def tokens_with_logits(self) -> tuple[list[int], list[slice]]:
        """The tokens of the row whose logits are wanted, and by index in the batch each sequence's part of them."""
        tokens: list[int] = []
        parts = [slice(0)] * len(self.sequences)
        for packed in self.sequences:
            wanted = range(packed.start if packed.sequence.wants_all_logits else packed.end - 1, packed.end)
            parts[packed.batch_index] = slice(len(tokens), len(tokens) + len(wanted))
            tokens += wanted
        return tokens, parts


def _earlier_tokens(packed: PackedSequence, number: int, filler: int) -> torch.Tensor:
    sequence, first = packed.sequence, max(0, packed.position - number)
    known = sequence.known_token_ids[first : packed.position]
    assert len(known) == packed.position - first, "the model looks at tokens that nobody told"
    missing = [filler] * (number - len(known))
    row = torch.tensor([*missing, *known, *sequence.token_ids[:-1]], device="cpu")
    return row.unfold(0, number, 1)


def pack(batch: StepBatch) -> PackedRow:
    """Packs a batch of at least one sequence, each with at least one token."""
    assert batch.sequences, "a step needs a sequence"
    assert all(sequence.token_ids for sequence in batch.sequences), "a scheduled sequence needs tokens"
    packed: list[PackedSequence] = []
    start = 0
    for batch_index, sequence in sorted(enumerate(batch.sequences), key=_order):
        position = sequence.num_computed_tokens
        packed.append(PackedSequence(sequence=sequence, batch_index=batch_index, start=start, position=position))
        start = packed[-1].end
    return PackedRow(
        sequences=tuple(packed),
        num_single=sum(p.num_tokens == 1 for p in packed),
        token_ids=torch.tensor(list(chain.from_iterable(p.sequence.token_ids for p in packed)), device="cpu"),
        positions=torch.tensor(
            list(chain.from_iterable(range(p.position, p.end_position) for p in packed)), device="cpu"
        ),
    )


def _order(indexed: tuple[int, ScheduledSequence]) -> tuple[int, int, int]:
    _, sequence = indexed
    return len(sequence.token_ids), sequence.num_draft_tokens, -sequence.num_computed_tokens
