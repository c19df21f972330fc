"""Whose a namespace is, in words: one small object beside its chunks, `FAMILY/names/NAMESPACE`.

It is an envelope like a chunk's, under a key that no chunk has, so that it is encrypted where chunks are, and damage
shows. Its content is JSON. People read it; no engine does.
"""

from collections.abc import Mapping

from octavo.chunks import ALL_BLOCKS, OffloadKey
from octavo.namespace import pack_description, parse_description
from octavo.stores import Envelopes, open_found
from octavo.tiers.disk import RecordCipher

_KEY = OffloadKey(b"octavo description")
MOST_DESCRIPTION_BYTES = 8 << 10
"""The most bytes of one that are read."""


def describe_path(family: str, namespace: str) -> str:
    """Both are hexadecimal digits."""
    return f"{family}/names/{namespace}"


def seal_description(parts: Mapping[str, str], envelopes: Envelopes) -> bytes:
    text = pack_description(parts)
    draft = envelopes.draft(len(text))
    draft.payload[:] = text
    return bytes(envelopes.seal(draft, _KEY, ALL_BLOCKS))


def open_description(data: bytes, namespace: str, cipher: RecordCipher | None) -> dict[str, str]:
    """The parts as printable text; empty for anything else, and without its key."""
    text = open_found(memoryview(data), _KEY, bytes.fromhex(namespace), cipher)
    return {} if text is None else parse_description(text)
