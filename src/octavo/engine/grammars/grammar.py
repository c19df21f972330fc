"""`Grammar`: a compiled grammar; `GrammarState`: how far one choice has come in it.

Only its choice's own tokens move a state. So a preempted choice goes on where it was, and resuming from a cache changes
nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class Grammar:
    """The form of a text. It is immutable, and any number of choices may follow it at once."""

    __slots__ = ("_start", "end_ids", "tokens", "vocab_size")

    def __init__(self, start: "LLMatcher", *, tokens: "LLTokenizer", vocab_size: int, end_ids: Collection[int]) -> None:
        self._start = start
        self.tokens = tokens
        self.vocab_size = vocab_size
        self.end_ids = frozenset(end_ids)
        """Tokens that end a text where it is whole, and are then no part of it. Elsewhere they may be text."""

    @property
    def before(self) -> Sequence[int]:
        """A token with a letter. Decoded behind it, a text is what the grammar takes it for; at the beginning,
        decoders of SentencePiece's kind drop a space."""
        return self.tokens.greedy_tokenize("a")[:1]

    def begin(self) -> "GrammarState":
        """The state of a choice without tokens."""
        return GrammarState(self._start.deep_copy(), self)


class GrammarState:
    """One choice's position in its grammar. Nothing here raises: an error of the library breaks the state, and then no
    token is allowed."""

    __slots__ = ("_failure", "_matcher", "allowed", "grammar", "took_end")

    def __init__(self, matcher: "LLMatcher", grammar: Grammar) -> None:
        self._matcher = matcher
        self._failure = ""
        """The error of the library that broke the state; empty if none did."""
        self.grammar = grammar
        self.allowed: npt.NDArray[np.bool_] | None = None
        """Per token, whether it may come next; None until `compute_allowed` was called."""
        self.took_end = False
        """Whether the last token ended the text, and is no part of it."""

    @property
    def is_complete(self) -> bool:
        """Whether the text is complete and nothing may follow."""
        return not self.why_broken and self._matcher.is_stopped()

    def compute_allowed(self) -> bool:
        """Computes which tokens may come next. False if there is none, or the grammar is too ambiguous here."""
        self.allowed = None
        with self._breaking():
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            allowed = np.unpackbits(bits, bitorder="little", count=self.grammar.vocab_size).view(np.bool_)
            if np.count_nonzero(allowed) == 1:
                self._spell_out(allowed)
            self.allowed = allowed
        return not self.why_broken and self.allowed is not None and bool(self.allowed.any())

    def _spell_out(self, allowed: npt.NDArray[np.bool_]) -> None:
        """If the forced text is also a special token's, llguidance allows that token alone, and then rejects it. Allows
        instead the longest plain token that the text begins with."""
        forced = int(allowed.argmax())
        if self._matcher.validate_tokens([forced]):
            return
        allowed[forced] = False
        text = self._matcher.compute_ff_bytes().decode(errors="ignore")
        for token_id in self.grammar.tokens.greedy_tokenize(text)[:1]:
            allowed[token_id] = True

    def accept(self, token_id: int) -> None:
        """Moves on by the chosen token. A token that the grammar cannot take breaks the state."""
        self.allowed = None
        with self._breaking():
            self.took_end = token_id in self.grammar.end_ids and self._matcher.is_accepting()
            self._matcher.consume_token(token_id)

    def try_accept(self, token_ids: Sequence[int]) -> bool:
        """Moves on by these tokens if the grammar allows them all; returns whether it did."""
        with self._breaking():
            return self._matcher.try_consume_tokens(list(token_ids)) == len(token_ids)
        return False

    @property
    def why_broken(self) -> str:
        """Why the state is broken; empty if it is not."""
        return self._failure or self._matcher.get_error().partition("\n")[0]

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """Catches every error of the library: a panic is no Exception, and must not end the engine's thread."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001
            self._failure = f"{type(error).__name__}: {error}".partition("\n")[0]
