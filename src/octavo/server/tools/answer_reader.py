"""`AnswerReader`: one choice's text as it comes, parted into what is said, what is thought and what is called."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from secrets import token_hex
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A call, or more of its arguments."""

    index: int
    call_id: str | None = None
    """Comes with the first piece, as the name does."""
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Words of an answer, said or thought."""

    text: str
    is_thought: bool = False


@dataclass(slots=True)
class ReadText:
    """The content of a piece of text, in order."""

    parts: list[Words | CallPiece] = field(default_factory=list)

    def add(self, text: str, *, is_thought: bool = False) -> None:
        """More words."""
        if text:
            self.parts.append(Words(text=text, is_thought=is_thought))

    @property
    def said(self) -> str:
        return self._words(is_thought=False)

    @property
    def thought(self) -> str:
        return self._words(is_thought=True)

    @property
    def calls(self) -> list[CallPiece]:
        return [part for part in self.parts if isinstance(part, CallPiece)]

    def _words(self, *, is_thought: bool) -> str:
        return "".join(p.text for p in self.parts if isinstance(p, Words) and p.is_thought is is_thought)


class End(Enum):
    """How an answer ended."""

    OWN = auto()
    """The model ended it."""
    STOPPED = auto()
    """At a stop string of the client's."""
    CUT = auto()
    """There was no room for more, or it failed."""


class AnswerReader(Protocol):
    """Reads one choice. One that waits for whole calls tells each of them at once."""

    num_calls: int
    """The calls that have been told."""
    ends_within_call: bool
    """Whether the answer is over, and its last call is not whole."""

    def push(self, text: str) -> ReadText:
        """The new content that is certain."""

    def flush(self, end: End = End.OWN) -> ReadText:
        """The rest, as nothing more will come. A call that is not whole can be made by nobody: what has not been told
        of it is said, unless the answer was cut, whose reader sees so from its end."""


def whole_calls(reads: Iterable[ReadText]) -> list[CallPiece]:
    """All calls, each with all of its arguments."""
    whole: dict[int, CallPiece] = {}
    for piece in (piece for read in reads for piece in read.calls):
        known = whole.get(piece.index)
        whole[piece.index] = piece if known is None else replace(known, arguments=known.arguments + piece.arguments)
    return list(whole.values())


def new_call_id() -> str:
    """A random id of the form of OpenAI's."""
    return f"call_{token_hex(12)}"
