"""`DiskConfig`: all that a person can say about a disk tier.

{"path": "/nvme/octavo", "size": "200GiB"}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import InputError
from octavo.settings import take_bytes, take_name, take_nothing_else, take_seconds, take_whole
from octavo.tiers.disk.layout import ALIGNMENT, MAX_KEY_BYTES, SEGMENT_HEADER_BYTES, record_bytes
from octavo.tiers.disk.ledger import RESERVED_BYTES
from octavo.tiers.disk.summary import table_bytes
from octavo.units import format_bytes

_LARGEST_SEGMENT_BYTES = 256 << 20
_SEGMENTS_WANTED = 32
_FEWEST_SEGMENTS = 2
_KEYS = (
    "path",
    "size",
    "segment_size",
    "read_threads",
    "queue_size",
    "queue_jobs",
    "sync_size",
    "sync_seconds",
    "hang_seconds",
    "close_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskConfig:
    """Checked values; `read` makes one from what a person wrote."""

    path: Path
    size_bytes: int
    """The hard budget: everything in the directory counts."""
    segment_bytes: int | None
    """None: chosen from the budget."""
    read_threads: int
    queue_bytes: int
    """Most bytes of stores under way, and most of loads; one job may be larger if it is alone."""
    queue_jobs: int
    sync_bytes: int
    """Most bytes that are accepted before they are synced."""
    sync_s: float
    """Longest time that they wait for that."""
    hang_s: float
    """A call to the disk that takes longer turns the tier off."""
    close_s: float
    """Longest time that closing waits for the disk."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "DiskConfig":
        """Checks what a person wrote; InputError names what is wrong with it."""
        try:
            return cls._read(dict(config))
        except InputError as error:
            raise InputError(f"disk tier: {error}") from error

    @classmethod
    def _read(cls, values: dict[str, Any]) -> "DiskConfig":
        path = take_name(values, "path")
        if path is None or "size" not in values:
            raise InputError('path and size are needed: {"path": "/nvme/octavo", "size": "200GiB"}')
        checked = cls(
            path=Path(path).expanduser(),
            size_bytes=take_bytes(values, "size"),
            segment_bytes=take_bytes(values, "segment_size") if "segment_size" in values else None,
            read_threads=take_whole(values, "read_threads", 4, most=64),
            queue_bytes=take_bytes(values, "queue_size", 256 << 20),
            queue_jobs=take_whole(values, "queue_jobs", 1024, most=1 << 20),
            sync_bytes=take_bytes(values, "sync_size", 64 << 20),
            sync_s=take_seconds(values, "sync_seconds", 1.0),
            hang_s=take_seconds(values, "hang_seconds", 10.0),
            close_s=take_seconds(values, "close_seconds", 10.0),
        )
        take_nothing_else(values, "settings", _KEYS)
        return checked

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
                f"disk tier: segment_size {format_bytes(chosen)} is too small for a chunk of {max_chunk_bytes} bytes; "
                f"give at least {least} bytes, or leave it out"
            )
        if room < _FEWEST_SEGMENTS * chosen:
            needed = _FEWEST_SEGMENTS * chosen + RESERVED_BYTES
            raise InputError(
                f"disk tier: size {format_bytes(self.size_bytes)} has no room for {_FEWEST_SEGMENTS} segments of "
                f"{format_bytes(chosen)}; give at least {needed} bytes"
                + (", or a smaller segment_size" if self.segment_bytes else "")
            )
        return chosen
