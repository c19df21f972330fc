"""`Segment`: one file of the log, as the engine's thread knows it.

A record's *location* is one number: its segment's number and its *entry*, the index in the segment's columns. Locations
grow in the order of planning, which is the order of writing.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.chunks import NO_TENANT, TENANT_BYTES, OffloadKey
from octavo.tiers.disk.layout import SEGMENT_HEADER_BYTES, read_tenant, record_bytes, written_tenant
from octavo.tiers.disk.summary import MAX_RECORDS, Table

_PREFIX, _SUFFIX, _DIGITS = "segment-", ".octavo", 12
MOST_SEGMENTS = 10**_DIGITS // 2
"""No directory ever has this number of segments. A file with a larger number is refused: after it, no numbers would
be left for new segments."""
ENTRY_BITS = MAX_RECORDS.bit_length() - 1
ENTRY_MASK = MAX_RECORDS - 1
_MOST_HITS = 0xFFFF
NOT_WRITTEN = bytes(16)
"""The checksum of an entry that was planned and not written."""


def segment_name(number: int) -> str:
    return f"{_PREFIX}{number:0{_DIGITS}d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number of a segment's file; None for any other file."""
    digits = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    is_number = len(digits) == _DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_number and segment_name(int(digits)) == name else None


class Segment:
    """One file of the log and its records, column by column. The engine's thread owns it. The writer sets `checksums`
    of the entries that it has written, and `is_broken`."""

    __slots__ = (
        "checksums",
        "created_ns",
        "end",
        "file_bytes",
        "held",
        "hits",
        "hot_bytes",
        "is_broken",
        "key_bytes",
        "keys",
        "lengths",
        "num_live",
        "num_outages",
        "num_pending",
        "num_reads",
        "num_synced",
        "number",
        "offsets",
        "rank",
        "sequences",
        "tenants",
    )

    def __init__(self, number: int, file_bytes: int, created_ns: int = 0) -> None:
        self.number = number
        self.file_bytes = file_bytes
        """The bytes that count against the budget, by the plan."""
        self.created_ns = created_ns
        self.rank = (number, 0)
        """The lowest rank is the oldest segment. A segment that stays when its turn has come gets the highest rank of
        all."""
        self.end = SEGMENT_HEADER_BYTES
        """Where the next record goes."""
        self.keys: Sequence[OffloadKey] = []
        self.key_bytes = 0
        self.offsets = array("Q")
        self.lengths = array("I")
        self.held = array("q")
        self.hits = array("H")
        self.hot_bytes = 0
        """The bytes of records that were hit since the segment was written, or since it was last allowed to stay."""
        self.tenants = bytearray()
        self.sequences = array("Q")  # until it is sealed
        self.checksums = bytearray()  # until it is sealed
        self.num_live = 0
        """The records that the index points to."""
        self.num_pending = 0
        """The records whose writing has not ended: a segment that is being written is no victim."""
        self.num_reads = 0
        """The reads under way: a segment that is being read is no victim."""
        self.num_outages = 0
        """How often the disk was turned off for this segment since it was last read well."""
        self.num_synced = 0
        """The entries below this one survive a crash."""
        self.is_broken = False
        """A write or a sync failed, so it takes no more records."""

    def append(
        self, key: OffloadKey, length: int, held: int, *, size: int, sequence: int, tenant: bytes = NO_TENANT
    ) -> int:
        """Plans a record. Returns its entry."""
        entry = len(self.keys)
        assert isinstance(self.keys, list), "nothing is appended to a sealed segment"
        self.keys.append(key)
        self.key_bytes += len(key)
        self.offsets.append(self.end)
        self.lengths.append(length)
        self.held.append(held)
        self.hits.append(0)
        self.tenants += written_tenant(tenant)
        self.sequences.append(sequence)
        self.checksums += NOT_WRITTEN
        self.end += size
        return entry

    def location(self, entry: int) -> int:
        return self.number << ENTRY_BITS | entry

    def tenant(self, entry: int) -> bytes:
        """The tenant of the record."""
        return read_tenant(bytes(self.tenants[entry * TENANT_BYTES : (entry + 1) * TENANT_BYTES]))

    def hit(self, entry: int) -> None:
        hits = self.hits[entry]
        if not hits:
            self.hot_bytes += record_bytes(self.lengths[entry])
        if hits < _MOST_HITS:
            self.hits[entry] = hits + 1

    def stay(self, rank: tuple[int, int]) -> None:
        """The segment counts as the newest from now on, and its hits count anew."""
        self.rank = rank
        self.hits, self.hot_bytes = array("H", bytes(2 * len(self.keys))), 0

    @property
    def has_stayed(self) -> bool:
        return self.rank[1] > 0

    def forget_writing(self) -> None:
        """Drops what only a segment needs that is being written. A tuple of bytes costs the garbage collector nothing,
        unlike a list, whose items it visits."""
        self.keys = tuple(self.keys)
        self.sequences = array("Q")
        self.checksums = bytearray()

    def table(self) -> Table:
        """A table of the entries that were written."""
        checksums = np.frombuffer(bytes(self.checksums), dtype=np.uint64).reshape(-1, 2)
        written: NDArray[np.bool_] = (checksums != 0)[:, 0] | (checksums != 0)[:, 1]
        return Table(
            [key for key, is_there in zip(self.keys, written.tolist(), strict=True) if is_there],
            np.array(self.sequences, dtype=np.uint64)[written],
            np.array(self.held, dtype=np.int64)[written],
            np.array(self.offsets, dtype=np.int64)[written],
            np.array(self.lengths, dtype=np.int64)[written],
            np.array(self.hits, dtype=np.uint32)[written],
            checksums[written].tobytes(),
            np.frombuffer(bytes(self.tenants), dtype=f"V{TENANT_BYTES}")[written].tobytes(),
        )

    def load(self, table: Table) -> None:
        """Takes over the records that were found on disk, in place of its own."""
        self.keys = table.keys
        self.key_bytes = sum(map(len, table.keys))
        self.offsets = array("Q", table.offsets.astype(np.uint64).tobytes())
        self.lengths = array("I", table.lengths.astype(np.uint32).tobytes())
        self.held = array("q", table.held.astype(np.int64).tobytes())
        self.hits = array("H", bytes(2 * len(table.keys)))
        self.sequences = array("Q", table.sequences.astype(np.uint64).tobytes())
        self.checksums = bytearray(table.checksums)
        self.tenants = bytearray(table.tenants)
        self.num_synced = len(table.keys)


def split_location(location: int) -> tuple[int, int]:
    """Segment number and entry."""
    return location >> ENTRY_BITS, location & ENTRY_MASK
