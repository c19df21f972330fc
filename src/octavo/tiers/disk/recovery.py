"""What a directory holds: segments with their records, from summaries, or by scanning where one is missing.

Nothing that is read here is trusted: what is not whole is left out, and said to be damaged.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from octavo.tiers.disk.io import AlignedBuffer, DiskIO, read_all
from octavo.tiers.disk.layout import (
    ALIGNMENT,
    NO_FAMILY,
    NO_KEY_ID,
    RECORD_MAGIC_AT,
    RECORD_MAGIC_WORD,
    SEGMENT_HEADER_BYTES,
    VERSION,
    RecordHeader,
    aligned,
    checksum_of,
    is_whole,
    parse_record_header,
    parse_segment_header,
    record_bytes,
    written_tenant,
)
from octavo.tiers.disk.segment import segment_name, segment_number
from octavo.tiers.disk.summary import MAX_RECORDS, Table, parse_table, parse_trailer

_SCAN_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSegment:
    """One segment file, as far as it could be read."""

    number: int
    file_bytes: int
    version: int = 0
    """0 if the header is damaged."""
    namespace: bytes = b""
    """Empty if it is unknown."""
    created_ns: int = 0
    family: bytes = NO_FAMILY
    """The family of namespaces; `NO_FAMILY` if it is unknown."""
    key_id: bytes = NO_KEY_ID
    is_sealed: bool = False
    table: Table | None = None
    """The records of the namespace that was asked for; None for other namespaces and for unreadable segments."""
    end: int = SEGMENT_HEADER_BYTES
    """Where the next record can go."""
    problem: str = ""
    is_blank: bool = False
    """The file was made and never written to: its maker has crashed, or is about to write."""
    torn: tuple[int, ...] = ()
    """Without a summary: the offsets of records that are not whole. Those behind the last whole record were never
    finished."""

    @property
    def is_foreign(self) -> bool:
        """Whether another version of the format wrote it."""
        return self.version not in (0, VERSION)


def list_segments(io: DiskIO) -> tuple[list[tuple[int, int]], int]:
    """(number, bytes) of each segment file, ascending, and the bytes of all other files."""
    segments: list[tuple[int, int]] = []
    other_bytes = 0
    for name, num_bytes in io.list_files().items():
        number = segment_number(name)
        if number is None:
            other_bytes += num_bytes
        else:
            segments.append((number, num_bytes))
    return sorted(segments), other_bytes


def read_segment(io: DiskIO, number: int, file_bytes: int, namespace: bytes | None) -> FoundSegment:
    """Reads the records of `namespace`, or of all namespaces if it is None. Never raises, whatever the file holds and
    the disk does."""
    nothing = FoundSegment(number=number, file_bytes=file_bytes)
    try:
        with _OpenSegment(io, number, file_bytes) as file:
            return _read(file, nothing, namespace)
    except OSError as error:
        return replace(nothing, problem=f"cannot be read: {error.strerror}")


def _read(file: "_OpenSegment", nothing: FoundSegment, namespace: bytes | None) -> FoundSegment:
    number, file_bytes = nothing.number, nothing.file_bytes
    header = parse_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    if header is not None and header.version != VERSION:
        return replace(nothing, version=header.version)
    trailer_at = file_bytes - ALIGNMENT
    may_be_sealed = trailer_at >= SEGMENT_HEADER_BYTES and trailer_at % ALIGNMENT == 0
    trailer = parse_trailer(file.read(trailer_at, ALIGNMENT), file_bytes) if may_be_sealed else None
    if trailer is not None and trailer.number != number:
        trailer = None
    if header is not None and header.number != number:
        header = None
    problem = "" if header is not None else "header is damaged"
    told = trailer if header is None else header
    if told is None:
        is_blank = not any(file.read(0, SEGMENT_HEADER_BYTES))
        return replace(nothing, is_blank=True) if is_blank else replace(nothing, problem=problem)
    table = None
    end, torn = SEGMENT_HEADER_BYTES, list[int]()
    if namespace in (None, told.namespace):
        if trailer is not None:
            table = parse_table(file.read(trailer.table_offset, aligned(trailer.table_bytes)), trailer)
            end = trailer.table_offset
        if table is None:
            problem = problem or ("summary is damaged" if trailer is not None else "")
            table, end, torn = _scan(file, told.namespace)
    return replace(
        nothing,
        version=VERSION,
        namespace=told.namespace,
        created_ns=0 if header is None else header.created_ns,
        family=told.family,
        key_id=NO_KEY_ID if header is None else header.key_id,
        is_sealed=trailer is not None,
        table=table,
        end=end,
        problem=problem,
        torn=tuple(torn),
    )


class _OpenSegment:
    """A segment file to read from, through one buffer that grows."""

    def __init__(self, io: DiskIO, number: int, file_bytes: int) -> None:
        self.number = number
        self.file_bytes = file_bytes
        self._io = io
        self._fd = io.open(segment_name(number), os.O_RDONLY)
        self._buffer = AlignedBuffer(ALIGNMENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._io.close(self._fd)

    def read(self, offset: int, num_bytes: int) -> memoryview:
        """Up to `num_bytes` bytes, fewer at the end. They are valid until the next read."""
        if num_bytes > len(self._buffer):
            self._buffer = AlignedBuffer(num_bytes)
        return self._buffer.view[: read_all(self._io, self._fd, self._buffer.view[:num_bytes], offset)]


def _scan(file: _OpenSegment, namespace: bytes) -> tuple[Table, int, list[int]]:
    """The whole records of a segment without a summary, each verified; the end of the last one; and where torn ones
    begin."""
    headers: list[RecordHeader] = []
    checksums: list[bytes] = []
    torn: list[int] = []
    end = SEGMENT_HEADER_BYTES
    for offset in _candidates(file):
        if offset < end or len(headers) == MAX_RECORDS:
            continue
        header = parse_record_header(_tolerant_read(file, offset, ALIGNMENT))
        if header is None or (header.namespace, header.segment, header.offset) != (namespace, file.number, offset):
            continue
        size = record_bytes(header.length)
        record = _tolerant_read(file, offset, min(size, aligned(file.file_bytes - offset)))
        if not is_whole(record, header.length):
            torn.append(offset)
            continue
        headers.append(header)
        checksums.append(checksum_of(record))
        end = offset + size
    return _table_of(headers, checksums), end, torn


def _candidates(file: _OpenSegment) -> Iterator[int]:
    """Offsets at which a record may begin."""
    for start in range(0, file.file_bytes, _SCAN_WINDOW_BYTES):
        window = _tolerant_read(file, start, min(_SCAN_WINDOW_BYTES, aligned(file.file_bytes - start)))
        blocks = np.frombuffer(window[: len(window) // ALIGNMENT * ALIGNMENT], dtype="<u8").reshape(-1, ALIGNMENT // 8)
        yield from (start + ALIGNMENT * np.flatnonzero(blocks[:, RECORD_MAGIC_AT // 8] == RECORD_MAGIC_WORD)).tolist()


def _tolerant_read(file: _OpenSegment, offset: int, num_bytes: int) -> memoryview:
    """Zero bytes if the disk cannot read: one bad spot must not hide the records around it."""
    try:
        return file.read(offset, num_bytes)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return memoryview(b"")


def _table_of(headers: list[RecordHeader], checksums: list[bytes]) -> Table:
    return Table(
        [header.key for header in headers],
        np.array([header.sequence for header in headers], dtype=np.uint64),
        np.array([header.held_blocks for header in headers], dtype=np.int64),
        np.array([header.offset for header in headers], dtype=np.int64),
        np.array([header.length for header in headers], dtype=np.int64),
        np.zeros(len(headers), dtype=np.uint32),
        b"".join(checksums),
        b"".join(written_tenant(header.tenant) for header in headers),
    )
