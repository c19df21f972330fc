"""The bytes of an object, version 1: see docs/stores.md.

    [envelope][envelope]...[index][trailer, 40 bytes]

The index tells the object's chunks and their ranges; the trailer tells the index's length, and verifies it. So the end
of an object tells its chunks, and one range of it is one chunk. Parsers take bytes that anybody may have written, and
return None for damaged ones.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

import msgspec
from xxhash import xxh3_128_digest

from octavo.errors import MALFORMED
from octavo.stores import MOST_ENVELOPE_BYTES, says_later
from octavo.tiers.disk import layout as disk_layout

_MAGIC = b"OctavoOb"
_VERSION = 1
_TRAILER = Struct("<8sH2xIQ16s")
TRAILER_BYTES = _TRAILER.size
MOST_CHUNKS = 256
"""The most chunks of one object."""
TAIL_BYTES = 64 << 10
"""The most bytes of an object's index and trailer."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One chunk of an object."""

    key: bytes
    held_blocks: int
    num_bytes: int
    """The bytes of the chunk."""
    offset: int
    length: int
    """The bytes of its envelope."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an object."""

    namespace: bytes
    written_ns: int
    """Nanoseconds since 1970, by the writer's clock: of two objects with one key, the later one counts."""
    chunks: list[Entry]


_decoder = msgspec.msgpack.Decoder(Index)
_encoder = msgspec.msgpack.Encoder()


def name_object(chunks: Sequence[tuple[bytes, int, int]]) -> str:
    """A name made of the chunks' keys, held blocks and bytes: equal content has equal names."""
    digest = blake2b(digest_size=8, person=b"octavo object")
    digest.update(_encoder.encode(chunks))
    return digest.hexdigest()


def name_description(family: str, namespace: str) -> str:
    """The name of a namespace's description. Both are hexadecimal digits."""
    return f"{family}/names/{namespace}"


def pack_object(
    namespace: bytes, written_ns: int, chunks: Sequence[tuple[bytes, int, int, memoryview]]
) -> list[bytes | memoryview]:
    """Packs key, held blocks, bytes and envelope of each chunk. The pieces, one after the other, are the object."""
    parts: list[bytes | memoryview] = []
    entries, offset = [], 0
    for key, held_blocks, num_bytes, envelope in chunks:
        entries.append(Entry(key, held_blocks, num_bytes, offset, len(envelope)))
        parts.append(envelope)
        offset += len(envelope)
    index = _encoder.encode(Index(namespace=namespace, written_ns=written_ns, chunks=entries))
    trailer = _TRAILER.pack(_MAGIC, _VERSION, len(index), offset, xxh3_128_digest(index))
    return [*parts, index + trailer]


def is_later(tail: memoryview) -> bool:
    """Whether the last bytes of an object say that a later version of Octavo wrote it."""
    return says_later(tail[-TRAILER_BYTES:], _MAGIC, _VERSION)


def parse_tail(tail: memoryview, object_bytes: int, namespace: bytes) -> Index | None:
    """The index in the last bytes of an object of this size."""
    if len(tail) < TRAILER_BYTES:
        return None
    magic, version, index_bytes, body_bytes, checksum = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    packed = tail[-TRAILER_BYTES - index_bytes : -TRAILER_BYTES]
    if (magic, version) != (_MAGIC, _VERSION) or len(packed) != index_bytes or xxh3_128_digest(packed) != checksum:
        return None
    if body_bytes + index_bytes + TRAILER_BYTES != object_bytes:
        return None
    try:
        index = _decoder.decode(packed)
    except MALFORMED:
        return None
    is_sound = index.namespace == namespace and len(index.chunks) <= MOST_CHUNKS
    fits = all(
        chunk.offset >= 0
        and 0 <= chunk.length - chunk.num_bytes <= MOST_ENVELOPE_BYTES
        and 0 < chunk.length <= body_bytes - chunk.offset
        and 0 < len(chunk.key) <= disk_layout.MAX_KEY_BYTES
        for chunk in index.chunks
    )
    return index if is_sound and fits else None
