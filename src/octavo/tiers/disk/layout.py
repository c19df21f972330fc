"""The bytes of a segment, version 3: see docs/disk-format.md.

    segment   [header][record][record]...[table][trailer]        all aligned to 4096
    record    [200 bytes: checksum, magic, identity, key, key id, nonce, tenant][payload][tag, 16 bytes][zeros]

Every parser takes bytes that anybody may have written, and answers None for what is not whole.
"""

from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

from octavo.chunks import NO_TENANT, TENANT_BYTES, ChunkBytes, OffloadKey

VERSION = 3
ALIGNMENT = 4096
"""The alignment of records and of direct I/O: a multiple of the logical block of any disk in use."""
MAX_KEY_BYTES = 64
_MIN_HELD, _MAX_HELD = -(1 << 63), (1 << 63) - 1

_CHECKSUM_BYTES = 16
_HEADER_CHECKSUM_BYTES = 8
_RECORD = Struct("<16s8sHHIQqQQQ16s64s8s24s8s8s")
_SEGMENT = Struct("<16s8sH6xQQ16sQ8s16s")
_RECORD_MAGIC = b"OctavoRc"
_SEGMENT_MAGIC = b"OctavoSg"
RECORD_MAGIC_AT = 16
RECORD_MAGIC_WORD = int.from_bytes(_RECORD_MAGIC, "little")
RECORD_HEADER_BYTES = _RECORD.size
SEGMENT_HEADER_BYTES = ALIGNMENT
NAMESPACE_BYTES = 16
NO_FAMILY = bytes(NAMESPACE_BYTES)
"""The family of a segment that names none."""
_NOBODY = bytes(TENANT_BYTES)
"""The tenant on disk of a chunk without one."""
KEY_ID_BYTES, NONCE_BYTES, TAG_BYTES = 8, 24, 16
NO_KEY_ID, NO_NONCE = bytes(KEY_ID_BYTES), bytes(NONCE_BYTES)
"""Key id and nonce of bytes that are not encrypted; their tag is zero too."""


class RecordHeader(NamedTuple):
    """What a record says of itself. Segment and offset tell it from a stale copy in another place."""

    key: OffloadKey
    namespace: bytes
    held_blocks: int
    length: int
    """The bytes of the payload."""
    sequence: int
    segment: int
    offset: int
    key_id: bytes = NO_KEY_ID
    """The id of the key under which the payload is encrypted."""
    nonce: bytes = NO_NONCE
    tenant: bytes = NO_TENANT
    """The tenant that has stored it."""


class SegmentHeader(NamedTuple):
    """What a segment says of itself. Of other versions only the version is known."""

    version: int
    number: int
    created_ns: int
    namespace: bytes
    segment_bytes: int
    key_id: bytes = NO_KEY_ID
    family: bytes = NO_FAMILY
    """The name of the model: a reset reaches all namespaces of a family."""


def aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def can_hold(chunk: ChunkBytes) -> bool:
    """Whether a record can name the chunk, the blocks that it holds, and its tenant."""
    return (
        0 < len(chunk.key) <= MAX_KEY_BYTES
        and chunk.held_blocks != 0
        and _MIN_HELD <= chunk.held_blocks <= _MAX_HELD
        and len(chunk.tenant) in (0, TENANT_BYTES)
    )


def record_bytes(length: int) -> int:
    """The bytes that a payload takes in a segment."""
    return aligned(_end(length))


def _end(length: int) -> int:
    """The end of the tag behind the payload."""
    return RECORD_HEADER_BYTES + length + TAG_BYTES


def write_record_header(record: memoryview, header: RecordHeader) -> bytes:
    """Writes the header before a payload that is there, and zeros behind it. Returns the checksum over both. An
    encrypted payload has its tag behind it."""
    end = _end(header.length)
    start_of_zeros = end if header.key_id != NO_KEY_ID else end - TAG_BYTES
    record[start_of_zeros:] = bytes(len(record) - start_of_zeros)
    fields = _RECORD.pack(
        bytes(_CHECKSUM_BYTES),
        _RECORD_MAGIC,
        VERSION,
        len(header.key),
        0,
        header.sequence,
        header.held_blocks,
        header.length,
        header.segment,
        header.offset,
        header.namespace,
        header.key,
        header.key_id,
        header.nonce,
        written_tenant(header.tenant),
        bytes(_HEADER_CHECKSUM_BYTES),
    )
    record[:RECORD_HEADER_BYTES] = fields[:-_HEADER_CHECKSUM_BYTES] + _header_checksum(fields)
    checksum = xxh3_128_digest(record[_CHECKSUM_BYTES:end])
    record[:_CHECKSUM_BYTES] = checksum
    return checksum


def parse_record_header(block: memoryview | bytes) -> RecordHeader | None:
    """The header at the start of `block`, if it is one that was written. `is_whole` vouches for the payload."""
    if len(block) < RECORD_HEADER_BYTES:
        return None
    _, magic, version, key_bytes, zero, *fields, own = _RECORD.unpack_from(block)
    if magic != _RECORD_MAGIC or version != VERSION or zero or not 1 <= key_bytes <= MAX_KEY_BYTES:
        return None
    if own != _header_checksum(block):
        return None
    sequence, held, length, segment, offset, namespace, key, key_id, nonce, tenant = fields
    return RecordHeader(
        OffloadKey(key[:key_bytes]),
        namespace,
        held,
        length,
        sequence,
        segment,
        offset,
        key_id,
        nonce,
        read_tenant(tenant),
    )


def find_record(
    record: memoryview, *, key: OffloadKey, namespace: bytes, length: int, place: tuple[int, int]
) -> RecordHeader | None:
    """The header of a record, if the record is whole and is the one that belongs to this place: segment and offset."""
    header = parse_record_header(record)
    if header is None or (header.key, header.namespace, header.length) != (key, namespace, length):
        return None
    is_here = (header.segment, header.offset) == place
    return header if is_here and is_whole(record, length) else None


def read_tenant(written: bytes) -> bytes:
    """A tenant in the form that memory uses."""
    return NO_TENANT if written == _NOBODY else written


def written_tenant(tenant: bytes) -> bytes:
    return tenant or _NOBODY


def _header_checksum(block: memoryview | bytes) -> bytes:
    """A checksum of the header alone, so that its length is verified before it is used. The record's own checksum
    covers it again."""
    return xxh3_64_digest(block[_CHECKSUM_BYTES : RECORD_HEADER_BYTES - _HEADER_CHECKSUM_BYTES])


def is_whole(record: memoryview, length: int) -> bool:
    """Whether header and payload give the record's checksum."""
    end = _end(length)
    return end <= len(record) and record[:_CHECKSUM_BYTES] == xxh3_128_digest(record[_CHECKSUM_BYTES:end])


def checksum_of(record: memoryview) -> bytes:
    return bytes(record[:_CHECKSUM_BYTES])


def pack_segment_header(header: SegmentHeader) -> bytes:
    return with_checksum(_SEGMENT.pack(bytes(_CHECKSUM_BYTES), _SEGMENT_MAGIC, *header))


def parse_segment_header(block: memoryview | bytes) -> SegmentHeader | None:
    """Magic and version have the same place in every version; the other fields are read only in our own version."""
    if len(block) < SEGMENT_HEADER_BYTES:
        return None
    _, magic, version, *fields = _SEGMENT.unpack_from(block)
    if magic != _SEGMENT_MAGIC:
        return None
    if version != VERSION:
        return SegmentHeader(version, 0, 0, bytes(NAMESPACE_BYTES), 0)
    if not has_checksum(block):
        return None
    return SegmentHeader(version, *fields)


def with_checksum(fields: bytes) -> bytes:
    """One aligned block whose first 16 bytes are the checksum of the others."""
    block = fields.ljust(ALIGNMENT, b"\0")
    return xxh3_128_digest(block[_CHECKSUM_BYTES:]) + block[_CHECKSUM_BYTES:]


def has_checksum(block: memoryview | bytes) -> bool:
    return bytes(block[:_CHECKSUM_BYTES]) == xxh3_128_digest(block[_CHECKSUM_BYTES:ALIGNMENT])
