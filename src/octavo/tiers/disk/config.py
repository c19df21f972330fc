"""`DiskConfig`: everything that a person can configure of a disk tier.

{"path": "/nvme/octavo", "size": "200GiB"}
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.settings import Seconds, SecondsFromZero, Settings, Size
from octavo.tiers.disk.layout import ALIGNMENT, MAX_KEY_BYTES, SEGMENT_HEADER_BYTES, record_bytes
from octavo.tiers.disk.ledger import RESERVED_BYTES
from octavo.tiers.disk.summary import table_bytes
from octavo.units import format_bytes, format_least

_LARGEST_SEGMENT_BYTES = 256 << 20
_SEGMENTS_WANTED = 32
_FEWEST_SEGMENTS = 2


class DiskConfig(Settings, frozen=True, kw_only=True):
    """Where a disk tier lies, and its bounds."""

    what = "disk tier"

    path: Path
    """A folder for what is kept across restarts."""
    size_bytes: Size = field(name="size")
    """The hard budget: everything in the directory counts."""
    segment_bytes: Size | None = field(name="segment_size", default=None)
    """The size of one file; by default chosen from the budget."""
    read_threads: Annotated[int, Meta(ge=1, le=64)] = 4
    """Threads that read."""
    queue_bytes: Size = field(name="queue_size", default=256 << 20)
    """The most bytes of all stores in flight, and of all loads in flight. A job that is alone may be larger."""
    queue_jobs: Annotated[int, Meta(ge=1, le=1 << 20)] = 1024
    """The most jobs in flight."""
    sync_bytes: Size = field(name="sync_size", default=64 << 20)
    """The most bytes that are accepted before they are synced."""
    sync_s: Seconds = field(name="sync_seconds", default=1.0)
    """The longest that accepted bytes wait for a sync."""
    hang_s: Seconds = field(name="hang_seconds", default=10.0)
    """A call to the disk that takes longer turns the tier off."""
    close_s: Seconds = field(name="close_seconds", default=10.0)
    """How long closing waits for the disk."""
    wait_s: SecondsFromZero = field(name="wait_seconds", default=0.0)
    """How long another engine may take to leave the folder."""
    key_file: Path | None = None
    """A file with 32 bytes in hex or base64: what is kept is encrypted with it. Without it, OCTAVO_DISK_KEY may hold
    the key itself."""

    def segment_bytes_for(self, max_chunk_bytes: int) -> int:
        """The size of segments: what was asked for, or a 32nd of the budget, at most 256 MiB; at least one chunk."""
        least = (
            SEGMENT_HEADER_BYTES
            + record_bytes(max_chunk_bytes)
            + table_bytes(1, MAX_KEY_BYTES)
            + ALIGNMENT  # the trailer
        )
        room = self.size_bytes - RESERVED_BYTES
        chosen = self.segment_bytes or max(least, min(_LARGEST_SEGMENT_BYTES, room // _SEGMENTS_WANTED))
        chosen = chosen // ALIGNMENT * ALIGNMENT
        if chosen < least:
            raise InputError(
                f"disk tier: segment_size {format_bytes(chosen)} is too small for a chunk of "
                f"{format_bytes(max_chunk_bytes)}; give at least {format_least(least)}, or leave it out"
            )
        if room < _FEWEST_SEGMENTS * chosen:
            needed = _FEWEST_SEGMENTS * chosen + RESERVED_BYTES
            raise InputError(
                f"disk tier: size {format_bytes(self.size_bytes)} has no room for {_FEWEST_SEGMENTS} segments of "
                f"{format_bytes(chosen)}; give at least {format_least(needed)}"
                + (", or a smaller segment_size" if self.segment_bytes else "")
            )
        return chosen

    def room_in_a_row(self, largest: int) -> int:
        """The room for records, with their part of summaries, that are written one after the other into an empty folder
        and are all to stay: each segment may end before one that does not fit, and one segment is given up early."""
        segment_bytes = self.segment_bytes_for(largest)
        lost = SEGMENT_HEADER_BYTES + self.room_of_record(largest) + 2 * ALIGNMENT
        return ((self.size_bytes - RESERVED_BYTES) // segment_bytes - 1) * (segment_bytes - lost)

    @staticmethod
    def room_of_record(num_bytes: int) -> int:
        return record_bytes(num_bytes) + table_bytes(100, 100 * MAX_KEY_BYTES) // 100
