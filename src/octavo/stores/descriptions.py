"""Whose a namespace is, in words: one small value beside its chunks, of object stores, Redis and Valkey.

It is an envelope like a chunk's, under a key that no chunk has, so that it is encrypted where chunks are, and damage
shows. Its content is JSON. People read it; no engine does.
"""

import math
import time
from collections.abc import Callable, Mapping

from octavo.chunks import ALL_BLOCKS, OffloadKey
from octavo.namespace import pack_description, parse_description
from octavo.stores.envelope import Envelopes, open_found
from octavo.tiers.disk import RecordCipher

_KEY = OffloadKey(b"octavo description")
_EVERY_S = 3600.0
MOST_DESCRIPTION_BYTES = 8 << 10
"""The most bytes of one that are read."""


class Description:
    """An engine's own. It goes to the store with the first chunks, and once an hour, as it may be gone by then: unless
    one is there already. Nothing depends on it."""

    def __init__(self, packed: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        self._packed = packed
        self._clock = clock
        self._due_at = -math.inf

    def take_due(self) -> bytes:
        """What is to be stored now; nothing for the next hour."""
        now = self._clock()
        if now < self._due_at:
            return b""
        self._due_at = now + _EVERY_S
        return self._packed

    def renew(self) -> None:
        """Makes it due at once: the store has lost all that it held."""
        self._due_at = -math.inf


def seal_description(parts: Mapping[str, str], envelopes: Envelopes) -> bytes:
    text = pack_description(parts)
    draft = envelopes.draft(len(text))
    draft.payload[:] = text
    return bytes(envelopes.seal(draft, _KEY, ALL_BLOCKS))


def open_description(data: bytes, namespace: str, cipher: RecordCipher | None) -> dict[str, str]:
    """The parts as printable text; empty for anything else, and without its key."""
    text = open_found(memoryview(data), _KEY, bytes.fromhex(namespace), cipher)
    return {} if text is None else parse_description(text)
