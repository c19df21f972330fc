"""The bytes of one chunk in a store, version 1: see docs/stores.md.

    [176 bytes: magic, version, held blocks, length, key id, nonce, namespace, key, checksum][payload][tag, 16 bytes]

An envelope names its chunk and namespace, so it can be verified wherever it was found: it shows if a store returns
another chunk, another namespace's, half of one or anything else. The tag is there if the payload is encrypted.
"""

from enum import Enum
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_128_digest

from octavo.chunks import OffloadKey
from octavo.stores.spare import SpareMemory
from octavo.tiers.disk import RecordCipher

_MAGIC = b"OctavoCk"
_VERSION = 1
_HEADER = Struct("<8sHHIqQ8s24s16s80s16s")
_CHECKSUM_BYTES, _TAG_BYTES = 16, 16
_NO_KEY_ID, _NO_NONCE = bytes(8), bytes(24)
_HEADER_BYTES = _HEADER.size
MOST_ENVELOPE_BYTES = _HEADER_BYTES + _TAG_BYTES
"""The most bytes that an envelope adds to a chunk."""

KEY_VARIABLE = "OCTAVO_STORE_KEY"
"""The variable that may hold the key of encryption."""
_SUMMARY = Struct("<8sHHIqQ")
SUMMARY_BYTES = _SUMMARY.size


class Draft(NamedTuple):
    """An envelope in the making."""

    envelope: memoryview
    payload: memoryview
    """The chunk's bytes are written here before the envelope is sealed."""


class Envelopes:
    """Makes and opens the envelopes of one namespace and one key, for one thread."""

    def __init__(self, namespace: bytes, cipher: RecordCipher | None = None) -> None:
        self.namespace = cipher.namespace(namespace) if cipher else namespace
        self._cipher = cipher
        self._tag_bytes = _TAG_BYTES if cipher else 0
        self._memory = SpareMemory()

    @property
    def is_encrypted(self) -> bool:
        return self._cipher is not None

    def size(self, num_bytes: int) -> int:
        """The size of the envelope of a chunk of this many bytes."""
        return _HEADER_BYTES + num_bytes + self._tag_bytes

    def draft(self, num_bytes: int) -> Draft:
        """Begins the envelope of a chunk of this many bytes. Unless it is encrypted, the chunk is stored from there."""
        envelope = self._memory.lend(self.size(num_bytes))
        return Draft(envelope, self._memory.lend(num_bytes) if self._cipher else envelope[_HEADER_BYTES:])

    def seal(self, draft: Draft, key: OffloadKey, held_blocks: int) -> memoryview:
        envelope, payload = draft
        key_id, nonce = _NO_KEY_ID, _NO_NONCE
        if self._cipher:
            key_id = self._cipher.key_id
            nonce = self._cipher.encrypt(payload, envelope[_HEADER_BYTES:], (key, self.namespace, held_blocks))
        fields = (_MAGIC, _VERSION, len(key), 0, held_blocks, len(payload), key_id, nonce, self.namespace, key)
        header = _HEADER.pack(*fields, bytes(_CHECKSUM_BYTES))[:-_CHECKSUM_BYTES]
        envelope[: len(header)] = header
        envelope[len(header) : _HEADER_BYTES] = _checksum(envelope)
        return envelope

    def open(self, envelope: memoryview, key: OffloadKey, held_blocks: int, num_bytes: int) -> memoryview | None:
        """The payload, if the envelope is whole and holds exactly the chunk that was asked for."""
        if len(envelope) != self.size(num_bytes):
            return None
        if not _is_sound(envelope, self.namespace, key, held_blocks, num_bytes):
            return None
        if self._cipher is None:
            return envelope[_HEADER_BYTES:]
        if _key_id(envelope) != self._cipher.key_id:
            return None
        into = self._memory.lend(num_bytes)
        return into if _decrypts(envelope, self._cipher, (key, self.namespace, held_blocks), into) else None

    def is_of_other_blocks(self, start: memoryview, key: OffloadKey, held_blocks: int, num_bytes: int) -> bool:
        """Whether the beginning of an envelope says that it is this chunk with other blocks, or more bytes: another
        engine has stored it since it was looked up. Nothing of it is verified."""
        if len(start) < _HEADER_BYTES:
            return False
        magic, version, key_bytes, _, held, length, _, _, whose, name, _ = _HEADER.unpack_from(start)
        is_same_chunk = (magic, version, whose, name[:key_bytes]) == (_MAGIC, _VERSION, self.namespace, key)
        return is_same_chunk and (held, length) != (held_blocks, num_bytes)


class Finding(Enum):
    """The state of a chunk in a store, as far as it can be seen without an engine."""

    WHOLE = "whole"
    """Its checksum is right; it is not encrypted, or with another key."""
    AUTHENTIC = "authentic"
    """It was written by somebody with the key."""
    FORGED = "forged: it does not open with the key that it names"
    LATER = "of a later format"
    """A later version of Octavo wrote it: this one can neither read it nor say that it is damaged."""
    DAMAGED = "damaged"
    BAD_INDEX = "its index is damaged"

    @property
    def is_bad(self) -> bool:
        return self not in (Finding.WHOLE, Finding.AUTHENTIC, Finding.LATER)


def examine(
    envelope: memoryview, identity: tuple[OffloadKey, bytes, int], num_bytes: int, cipher: RecordCipher | None
) -> Finding:
    """Examines an envelope. `identity`: key, namespace as names in the store have it, and held blocks."""
    key, namespace, held_blocks = identity
    if not _is_sound(envelope, namespace, key, held_blocks, num_bytes):
        return name_unread(envelope)
    key_id = _key_id(envelope)
    if len(envelope) != _HEADER_BYTES + num_bytes + (0 if key_id == _NO_KEY_ID else _TAG_BYTES):
        return Finding.DAMAGED
    if cipher is None or key_id != cipher.key_id:
        return Finding.WHOLE
    is_ours = _decrypts(envelope, cipher, identity, memoryview(bytearray(num_bytes)))
    return Finding.AUTHENTIC if is_ours else Finding.FORGED


def open_found(envelope: memoryview, key: OffloadKey, namespace: bytes, cipher: RecordCipher | None) -> bytes | None:
    """The payload of an envelope of which only the names are known; None for any other, and for one that is encrypted
    with another key."""
    summary = summarize(envelope)
    if summary is None:
        return None
    identity, num_bytes = (key, namespace, summary[0]), summary[1]
    if examine(envelope, identity, num_bytes, None).is_bad:
        return None
    key_id = _key_id(envelope)
    if key_id == _NO_KEY_ID:
        return bytes(envelope[_HEADER_BYTES:])
    into = bytearray(num_bytes)
    if cipher is None or key_id != cipher.key_id or not _decrypts(envelope, cipher, identity, memoryview(into)):
        return None
    return bytes(into)


def _is_sound(envelope: memoryview, namespace: bytes, key: OffloadKey, held_blocks: int, num_bytes: int) -> bool:
    """Whether an envelope is whole and names this chunk. Only a key can tell who made it."""
    if len(envelope) < _HEADER_BYTES:
        return False
    magic, version, key_bytes, zero, held, length, _, _, whose, name, checksum = _HEADER.unpack_from(envelope)
    said = (magic, version, zero, held, length, whose)
    if said != (_MAGIC, _VERSION, 0, held_blocks, num_bytes, namespace):
        return False
    return name[:key_bytes] == key and key_bytes == len(key) and bool(checksum == _checksum(envelope))


def _key_id(envelope: memoryview) -> bytes:
    return bytes(_HEADER.unpack_from(envelope)[6])


def _decrypts(
    envelope: memoryview, cipher: RecordCipher, identity: tuple[OffloadKey, bytes, int], into: memoryview
) -> bool:
    return cipher.decrypt(envelope[_HEADER_BYTES:], into, _HEADER.unpack_from(envelope)[7], identity)


def summarize(start: bytes | memoryview) -> tuple[int, int] | None:
    """Held blocks and bytes of the chunk, from the first SUMMARY_BYTES of its envelope: advice, since nothing of it is
    verified. None for what is no envelope."""
    if len(start) < SUMMARY_BYTES:
        return None
    magic, version, _, _, held_blocks, num_bytes = _SUMMARY.unpack_from(start)
    return (held_blocks, num_bytes) if (magic, version) == (_MAGIC, _VERSION) else None


def name_unread(start: bytes | memoryview) -> Finding:
    """The finding for bytes that are no envelope of this version, from the first of them."""
    return Finding.LATER if says_later(start, _MAGIC, _VERSION) else Finding.DAMAGED


def says_later(start: bytes | memoryview, magic: bytes, version: int) -> bool:
    """Whether something says, in its first bytes, that a later version of Octavo wrote it."""
    return start[: len(magic)] == magic and int.from_bytes(start[len(magic) :][:2], "little") > version


def _checksum(envelope: memoryview) -> bytes:
    """The checksum of all but the checksum itself."""
    start = xxh3_128_digest(envelope[: _HEADER_BYTES - _CHECKSUM_BYTES])
    return xxh3_128_digest(start + xxh3_128_digest(envelope[_HEADER_BYTES:]))
