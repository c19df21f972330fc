"""Sealing: the summary is written behind the last record, and the file is cut behind the summary."""

from xxhash import xxh3_128_digest

from octavo.tiers.disk.io import AlignedBuffer, DiskIO, write_all
from octavo.tiers.disk.layout import ALIGNMENT
from octavo.tiers.disk.segment import Segment
from octavo.tiers.disk.summary import Trailer, pack_table, pack_trailer, table_bytes


def sealed_bytes(segment: Segment) -> int:
    """The most bytes that the file can have once it is sealed."""
    return segment.end + table_bytes(len(segment.keys), segment.key_bytes) + ALIGNMENT


def write_summary(io: DiskIO, fd: int, segment: Segment, namespace: bytes, family: bytes) -> int:
    """Makes the segment and its summary durable. Returns the file's new size."""
    table = segment.table()
    packed = pack_table(table)
    trailer = Trailer(
        segment.number,
        namespace,
        segment.end,
        len(packed),
        xxh3_128_digest(packed),
        len(table.keys),
        io.wall_time_ns(),
        family,
    )
    size = sealed_bytes(segment)
    tail = AlignedBuffer(size - segment.end)
    tail.view[: len(packed)] = packed
    tail.view[-ALIGNMENT:] = pack_trailer(trailer)
    write_all(io, fd, tail.view, segment.end)
    io.truncate(fd, size)
    io.sync(fd)
    return size
