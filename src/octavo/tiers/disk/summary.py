"""The summary of a sealed segment: a table of its records, and the trailer that says where it is and checks it.

    table     sequence u64[n] | held i64[n] | page u32[n] | length u32[n] | hits u32[n] | checksum 16[n]
              | tenant 8[n] | key length u8[n] | keys
    trailer   the last 4096 bytes of the file

It saves reading the records at start; it is never the only witness: every load checks the record itself.
"""

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from octavo.chunks import TENANT_BYTES, OffloadKey
from octavo.tiers.disk.layout import (
    ALIGNMENT,
    MAX_KEY_BYTES,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    TAG_BYTES,
    VERSION,
    aligned,
    has_checksum,
    with_checksum,
)

MAX_RECORDS = 1 << 13
"""The most records of one segment, so that forgetting a segment is a short piece of work."""

_TRAILER = Struct("<16s8sH6xQ16sQQ16sIQ16s")
_MAGIC = b"OctavoTl"
_BYTES_PER_RECORD = 8 + 8 + 4 + 4 + 4 + 16 + TENANT_BYTES + 1
"""The bytes of a record in the table, without its key."""
MAX_TABLE_BYTES = MAX_RECORDS * (_BYTES_PER_RECORD + MAX_KEY_BYTES)


class Table(NamedTuple):
    """The records of a segment, column by column."""

    keys: list[OffloadKey]
    sequences: NDArray[np.uint64]
    held: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hits: NDArray[np.uint32]
    checksums: bytes
    """16 bytes for each record."""
    tenants: bytes
    """8 bytes for each record; zeros where the chunk has no tenant."""


class Trailer(NamedTuple):
    """The last block of a sealed segment: where its table is, and how to check it."""

    number: int
    namespace: bytes
    table_offset: int
    table_bytes: int
    table_checksum: bytes
    num_records: int
    sealed_ns: int
    family: bytes


def table_bytes(num_records: int, key_bytes: int) -> int:
    """The size of a table of `num_records` records, whose keys have `key_bytes` in all."""
    return aligned(num_records * _BYTES_PER_RECORD + key_bytes)


def pack_table(table: Table) -> bytes:
    columns = (
        table.sequences.astype("<u8").tobytes(),
        table.held.astype("<i8").tobytes(),
        (table.offsets // ALIGNMENT).astype("<u4").tobytes(),
        table.lengths.astype("<u4").tobytes(),
        table.hits.astype("<u4").tobytes(),
        table.checksums,
        table.tenants,
        bytes(map(len, table.keys)),
        *table.keys,
    )
    return b"".join(columns)


def pack_trailer(trailer: Trailer) -> bytes:
    return with_checksum(_TRAILER.pack(bytes(16), _MAGIC, VERSION, *trailer))


def parse_trailer(block: memoryview | bytes, file_bytes: int) -> Trailer | None:
    if len(block) < ALIGNMENT:
        return None
    _, magic, version, *fields = _TRAILER.unpack_from(block)
    if magic != _MAGIC or version != VERSION or not has_checksum(block):
        return None
    trailer = Trailer(*fields)
    fits = SEGMENT_HEADER_BYTES <= trailer.table_offset <= file_bytes - ALIGNMENT - trailer.table_bytes
    in_bounds = trailer.num_records <= MAX_RECORDS and trailer.table_bytes <= MAX_TABLE_BYTES
    return trailer if fits and in_bounds else None


def parse_table(data: memoryview, trailer: Trailer) -> Table | None:
    """The table; None if it is damaged, or names records that do not lie in the segment before it."""
    n = trailer.num_records
    if len(data) < trailer.table_bytes or trailer.table_bytes < n * _BYTES_PER_RECORD:
        return None
    data = data[: trailer.table_bytes]
    if xxh3_128_digest(data) != trailer.table_checksum:
        return None
    columns = _Columns(data)
    sequences, held = columns.take("<u8", n), columns.take("<i8", n)
    offsets, lengths = columns.take("<u4", n).astype(np.int64) * ALIGNMENT, columns.take("<u4", n).astype(np.int64)
    hits, checksums = columns.take("<u4", n), columns.take("V16", n).tobytes()
    tenants = columns.take(f"V{TENANT_BYTES}", n).tobytes()
    keys = _split(columns, columns.take("u1", n))
    ends = offsets + RECORD_HEADER_BYTES + lengths + TAG_BYTES
    inside = bool(((offsets >= SEGMENT_HEADER_BYTES) & (ends <= trailer.table_offset)).all())
    if keys is None or not inside:
        return None
    return Table(keys, sequences, held, offsets, lengths, hits, checksums, tenants)


def _split(columns: "_Columns", key_lengths: NDArray[np.uint8]) -> list[OffloadKey] | None:
    lengths = key_lengths.tolist()
    if sum(lengths) != columns.num_left or not all(1 <= n <= MAX_KEY_BYTES for n in set(lengths)):
        return None
    if len(set(lengths)) == 1:  # as a rule: in one go
        return list(map(OffloadKey, columns.take(f"V{lengths[0]}", len(lengths)).tolist()))
    return [OffloadKey(columns.take(f"V{n}", 1).tolist()[0]) for n in lengths]


class _Columns:
    """Cuts columns off the front of bytes that are known to be long enough."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def num_left(self) -> int:
        return len(self._data) - self._at

    def take(self, dtype: str, count: int) -> NDArray[Any]:
        column = np.frombuffer(self._data, dtype=dtype, count=count, offset=self._at)
        self._at += column.nbytes
        return column
