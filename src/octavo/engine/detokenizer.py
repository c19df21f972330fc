"""`Detokenizer`: one choice's tokens as text, piece by piece, in whole characters.

Tokens do not decode one by one: a character may need several, and the first token of a text may decode differently. So
a window of tokens is decoded again with each new token, and the text that it gains is new:

    tokens    [ ...done... ][ context ][ recent ]      window = context + recent
    text                    [ emitted       ][new]     replacement characters at the end may still become others

When the window is long enough and ends in a whole character, it moves on, and its recent tokens become the context.
"""

from collections.abc import Sequence
from typing import Protocol

from octavo.engine.stop_strings import StopStrings

_WINDOW_TOKENS = 8
"""Recent tokens that gather before the window moves: each move costs one more decoding."""
_MOST_WINDOW_TOKENS = 64
"""Bytes that made no character in this many tokens never will."""
_INCOMPLETE = "\ufffd"
"""The replacement character."""


class TokenDecoder(Protocol):
    """Turns tokens into text. The `tokenizers.Tokenizer` behind Hugging Face's fast tokenizers is one."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """The text of one choice, as it grows."""

    def __init__(
        self,
        decoder: TokenDecoder,
        *,
        before: Sequence[int] = (),
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        """`before`: what the text goes on from, so that its first token keeps its space. Not of use is what ends in
        half a character: nobody knows how many replacement characters will have stood for it."""
        self._decoder = decoder
        self._stop = StopStrings(stop) if stop else None
        self._min_tokens = min_tokens
        self._skip_special_tokens = skip_special_tokens
        text_before = self._decode(before) if before else ""
        if text_before.endswith(_INCOMPLETE):
            before, text_before = (), ""
        self._window = list(before)
        self._num_context = len(before)
        """Tokens of the window that were emitted before the window moved here."""
        self._num_emitted = len(text_before)
        """Characters of the window's text that were emitted or are held back by stop strings."""
        self._num_tokens = 0

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text, or None."""
        return None if self._stop is None else self._stop.found

    def push(self, token_id: int) -> str:
        """Adds a token, and returns the new text that may be emitted."""
        self._num_tokens += 1
        self._window.append(token_id)
        text = self._decode(self._window)
        num_recent = len(self._window) - self._num_context
        whole = text if num_recent >= _MOST_WINDOW_TOKENS else text.rstrip(_INCOMPLETE)
        piece = self._take(whole)
        if num_recent >= _WINDOW_TOKENS and whole == text:
            self._move_window()
        return self._check_stop(piece)

    def flush(self) -> str:
        """The rest of the text after the last token. Half a character is emitted as its bytes decode."""
        piece = self._check_stop(self._take(self._decode(self._window)))
        return piece if self._stop is None else piece + self._stop.flush()

    def _check_stop(self, piece: str) -> str:
        if self._stop is None or self._num_tokens < self._min_tokens:
            return piece
        return self._stop.push(piece)

    def _take(self, text: str) -> str:
        piece = text[self._num_emitted :]
        self._num_emitted = max(self._num_emitted, len(text))
        return piece

    def _move_window(self) -> None:
        del self._window[: self._num_context]
        self._num_context = len(self._window)
        self._num_emitted = len(self._decode(self._window))

    def _decode(self, ids: Sequence[int]) -> str:
        return self._decoder.decode(ids, skip_special_tokens=self._skip_special_tokens)
