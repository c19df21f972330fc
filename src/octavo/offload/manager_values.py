"""What the offloading manager gives out: values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.ids import Slot
from octavo.tiers import TierStatus


class PreparedStore(NamedTuple):
    """A store that is to be carried out: write these chunks to these slots, then `complete_store(job_id, ...)`."""

    job_id: int
    indices: list[int]
    """Of the chunks given, those that have to be written. Empty: all was there, and the job is over already."""
    slots: list[Sequence[Slot]]
    """Where each of `indices` goes."""


class PreparedLoad(NamedTuple):
    """Chunks that stay where they are until `complete_load(job_id, ...)`. By index in the keys given:"""

    job_id: int
    slots: list[Sequence[Slot]]
    held_blocks: list[int]
    checksums: list[int | None]
    """What the bytes must give, or the chunk's load fails; None where nobody took one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStatus:
    """The manager at a glance, for metrics and logs."""

    num_slots: int
    slot_bytes: int
    free_slots: int
    num_chunks: int
    """In the arena, ready to be loaded."""
    chunks_being_stored: int
    chunks_being_promoted: int
    counters: Mapping[str, int]
    """Monotonic, by name."""
    tiers: tuple[tuple[str, TierStatus], ...]
    """Medium and status of each tier below, in order."""


class Room(NamedTuple):
    """The medium that keeps chunks longest: the largest one that works."""

    num_bytes: int
    free_share: float
    is_memory: bool
