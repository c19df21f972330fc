"""`AnswerReader`: one choice's text as it comes, parted into what is said, what is thought and what is called."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A call, or more of its arguments."""

    index: int
    call_id: str | None = None
    """With the first piece, as the name."""
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True, kw_only=True)
class ReadText:
    """What a piece of text brings."""

    said: str = ""
    thought: str = ""
    calls: list[CallPiece] = field(default_factory=list)


class AnswerReader(Protocol):
    """Reads one choice."""

    num_calls: int
    """That have been told."""

    def push(self, text: str) -> ReadText:
        """What is new and certain."""

    def flush(self) -> ReadText:
        """The rest, as nothing more will come."""


def whole_calls(reads: Iterable[ReadText]) -> list[CallPiece]:
    """All calls, each with all of its arguments."""
    whole: dict[int, CallPiece] = {}
    for piece in (piece for read in reads for piece in read.calls):
        known = whole.get(piece.index)
        whole[piece.index] = piece if known is None else replace(known, arguments=known.arguments + piece.arguments)
    return list(whole.values())


def new_call_id() -> str:
    """As OpenAI's look."""
    return f"call_{token_hex(12)}"
