"""`Grammar`: a compiled grammar; `GrammarState`: how far one choice has come in it.

A state moves with every token of its choice and with nothing else. So a preempted choice goes on where it was, and a
choice that resumes from a cache has the same state as one that does not.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class Grammar:
    """What a text must be. It never changes, and any number of choices may follow it at once."""

    __slots__ = ("_start", "end_ids", "tokens", "vocab_size")

    def __init__(self, start: "LLMatcher", *, tokens: "LLTokenizer", vocab_size: int, end_ids: Collection[int]) -> None:
        self._start = start
        self.tokens = tokens
        self.vocab_size = vocab_size
        self.end_ids = frozenset(end_ids)
        """Tokens that end a text, and are no part of it."""

    def begin(self) -> "GrammarState":
        """For a choice without tokens."""
        return GrammarState(self._start.deep_copy(), self)


class GrammarState:
    """One choice's place in its grammar. Nothing here raises: what the library cannot do breaks the state, and then
    nothing may follow."""

    __slots__ = ("_failure", "_matcher", "allowed", "grammar")

    def __init__(self, matcher: "LLMatcher", grammar: Grammar) -> None:
        self._matcher = matcher
        self._failure = ""
        """What the library raised."""
        self.grammar = grammar
        self.allowed: npt.NDArray[np.bool_] | None = None
        """By token, whether it may come next, once `find_allowed` has found out."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return not self.why_broken and self._matcher.is_stopped()

    def find_allowed(self) -> bool:
        """Finds what may come next. False: nothing can, or the grammar is too ambiguous here to say."""
        self.allowed = None
        with self._breaking():
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            allowed = np.unpackbits(bits, bitorder="little", count=self.grammar.vocab_size).view(np.bool_)
            if np.count_nonzero(allowed) == 1:
                self._spell_out(allowed)
            self.allowed = allowed
        return not self.why_broken and self.allowed is not None and bool(self.allowed.any())

    def _spell_out(self, allowed: npt.NDArray[np.bool_]) -> None:
        """Where text is forced that is also a special token's, llguidance allows that token alone, and would not take
        it. Allows instead the longest plain token that the text begins with."""
        forced = int(allowed.argmax())
        if self._matcher.validate_tokens([forced]):
            return
        allowed[forced] = False
        text = self._matcher.compute_ff_bytes().decode(errors="ignore")
        for token_id in self.grammar.tokens.greedy_tokenize(text)[:1]:
            allowed[token_id] = True

    def accept(self, token_id: int) -> None:
        """The token was chosen. One that the grammar cannot take breaks it: then `find_allowed` finds nothing."""
        self.allowed = None
        with self._breaking():
            self._matcher.consume_token(token_id)

    def try_accept(self, token_ids: Sequence[int]) -> bool:
        """Whether these tokens may come next; if so, they have."""
        with self._breaking():
            return self._matcher.try_consume_tokens(list(token_ids)) == len(token_ids)
        return False

    @property
    def why_broken(self) -> str:
        """What the grammar stumbled over; empty if it did not."""
        return self._failure or self._matcher.get_error().partition("\n")[0]

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """A panic of the library is no Exception, and must not end the engine's thread either."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001
            self._failure = f"{type(error).__name__}: {error}".partition("\n")[0]
