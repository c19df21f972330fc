"""`SlowToAnswer`: a tier that must be asked ahead."""

from collections.abc import Sequence

from octavo.chunks import OffloadKey, SequenceNames
from rigs.naive_tier import NaiveTier


class SlowToAnswer(NaiveTier):
    """Knows nothing of what it has before it has answered."""

    asks_ahead = True

    def __init__(self, budget_bytes: int = 1 << 20) -> None:
        super().__init__(budget_bytes)
        self.has_answered = True
        self.told: list[tuple[SequenceNames, bool]] = []
        """Sequences, and whether an answer was wanted."""

    def ask(self, sequence: SequenceNames, *, wants_answer: bool = True) -> bool:
        self.told.append((sequence, wants_answer))
        return wants_answer and not self.has_answered

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return super().lookup(keys) if self.has_answered else [0] * len(keys)
