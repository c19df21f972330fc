"""`Rendered`: a prompt's tokens and images as a vLLM with `--enable-scale-out` reads them.

Its `.../render` is asked with the client's own request and answers from the code that reads the request to generate.
"""

from itertools import chain
from typing import Annotated, Any

import msgspec

from octavo.hashing import MultiModalItem

RENDER_CHAT = "/v1/chat/completions/render"
_AS_RENDERED = {"mm_payload": "none", "use_beam_search": False}
"""Without the images' tensors; of beams, which it does not render, the prompt is the same."""


class Rendered(msgspec.Struct, frozen=True):
    """A prompt's tokens, and the images in them, sorted by offset."""

    tokens: list[int]
    items: tuple[MultiModalItem, ...] = ()


def render_path(request: dict[str, Any]) -> str:
    """Where a request of generation is rendered: its fields say which kind it is."""
    if "messages" in request:
        return RENDER_CHAT
    return "/v1/responses/render" if "input" in request else "/v1/completions/render"


def to_render(request: dict[str, Any]) -> bytes:
    """The body of the question."""
    return msgspec.json.encode({**request, **_AS_RENDERED})


def read_rendered(answer: bytes) -> Rendered:
    """The prompt in an answer, or the first of several. Raises one of MALFORMED, or InputError."""
    told = _ANSWERS.decode(answer)
    first = told if isinstance(told, _Answer) else told[0]
    features = first.features or _Features()
    hashes, places = features.mm_hashes, features.mm_placeholders
    pairs = chain.from_iterable(zip(hashes[kind], places.get(kind, ()), strict=True) for kind in hashes)
    items = [MultiModalItem(identifier=digest, offset=at.offset, length=at.length) for digest, at in pairs]
    return Rendered(first.token_ids, tuple(sorted(items, key=lambda item: item.offset)))


class _Place(msgspec.Struct):
    offset: int
    length: int


class _Features(msgspec.Struct):
    """By kind, such as `image`."""

    mm_hashes: dict[str, list[str]] = {}
    mm_placeholders: dict[str, list[_Place]] = {}


class _Answer(msgspec.Struct):
    token_ids: list[int]
    features: _Features | None = None


_ANSWERS = msgspec.json.Decoder(_Answer | Annotated[list[_Answer], msgspec.Meta(min_length=1)])
