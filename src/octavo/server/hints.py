"""How long clients say that prompts will be wanted: OpenAI's field, Anthropic's mark on a part, and a header.

"prompt_cache_retention": "24h"                           the prompt's end, and the request's
X-Octavo-Retain: 300s                                     the same
{"type": "text", "text": ..., "cache_control": {...}}     where this part ends
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from octavo.chunks import Hint, HintKind, read_lifetime
from octavo.errors import InputError
from octavo.http import RETAIN, bad_request
from octavo.server.requests import CacheRetention, ChatMessage, ContentPart
from octavo.settings import shown

_LIFETIMES_S: Mapping[CacheRetention, float] = {"in_memory": 600.0, "in-memory": 600.0, "24h": 86400.0}
_TTLS_S = {None: 300.0, "5m": 300.0, "1h": 3600.0}
_MOST_PARTS = 4
_MOST_CHARS_LOOKED_THROUGH = 1 << 26
"""For the parts of one conversation; it takes some 0.3 s at most."""


def hints_on_prompts(retention: CacheRetention | None, headers: Mapping[bytes, bytes]) -> tuple[Hint, ...]:
    """The hints of body and header on whole prompts; the header counts if both name one."""
    header = headers.get(RETAIN.encode())
    if header is not None:
        return (_retain(_read_lifetime(header.decode("latin-1"))),)
    return () if retention is None else (_retain(_LIFETIMES_S[retention]),)


def hints_on_parts(messages: Sequence[ChatMessage], text: str, tokens_before: Callable[[int], int]) -> tuple[Hint, ...]:
    """The hints that marks on parts give. The parts' texts stand in `text` in their order; `tokens_before` counts the
    tokens before a place in it. A part that the template has changed is not found, and its mark has no effect."""
    if not any(part.cache_control for message in messages for part in _parts_of(message)):
        return ()
    hints: list[Hint] = []
    finder = _Finder(text)
    for index, message in enumerate(messages):
        for part in _parts_of(message):
            end = finder.end_of(part.text or "")
            if part.cache_control is not None:
                if len(hints) == _MOST_PARTS:
                    raise bad_request(
                        f"at most {_MOST_PARTS} parts may have cache_control", param=f"messages[{index}].content"
                    )
                hints.append(_retain(_TTLS_S[part.cache_control.ttl], 0 if end is None else tokens_before(end)))
        if isinstance(message.content, str):
            finder.end_of(message.content)
    return tuple(hints)


def _parts_of(message: ChatMessage) -> Sequence[ContentPart]:
    return message.content if isinstance(message.content, list) else ()


class _Finder:
    """Finds parts in a text, in their order. One that is not there is looked for up to the text's end, so it gives up
    after many of them: a conversation may have hundreds of thousands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._chars_left = _MOST_CHARS_LOOKED_THROUGH

    def end_of(self, part: str) -> int | None:
        """Where the next part ends; None if it is not found."""
        if self._chars_left <= 0:
            return None
        part = part.strip()
        found = self._text.find(part, self._at)
        self._chars_left -= (found if found >= 0 else len(self._text)) - self._at
        if found < 0:
            return None
        self._at = found + len(part)
        return self._at


def common_tokens(whole: Sequence[int], prefix: Sequence[int]) -> int:
    """The tokens that a text and its beginning have in common; the last of the beginning may end otherwise."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, prefix, strict=False)))


def _retain(lifetime_s: float, end_tokens: int | None = None) -> Hint:
    return Hint(kind=HintKind.RETAIN, lifetime_s=lifetime_s, end_tokens=end_tokens)


def _read_lifetime(header: str) -> float:
    try:
        return read_lifetime(header)
    except InputError as error:
        raise bad_request(f"X-Octavo-Retain {error}, not {shown(header)}", param="X-Octavo-Retain") from error
