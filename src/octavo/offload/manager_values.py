"""The values that the offloading manager returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.ids import Slot
from octavo.tiers import TierStatus


class PreparedStore(NamedTuple):
    """A store to carry out: write these chunks to these slots, then call `complete_store(job_id, ...)`."""

    job_id: int
    indices: list[int]
    """The indices of the given chunks that must be written. Empty: all were there, and the job has already ended."""
    slots: list[Sequence[Slot]]
    """The slots of each of `indices`."""


class PreparedLoad(NamedTuple):
    """Chunks that stay where they are until `complete_load(job_id, ...)`. By index in the keys given:"""

    job_id: int
    slots: list[Sequence[Slot]]
    held_blocks: list[int]
    checksums: list[int | None]
    """Per chunk: the checksum that its bytes must have, or its load fails; None if no checksum was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStatus:
    """The manager at a glance, for metrics and logs."""

    num_slots: int
    slot_bytes: int
    free_slots: int
    num_chunks: int
    """Chunks in the arena that are ready to be loaded."""
    chunks_being_stored: int
    chunks_being_promoted: int
    counters: Mapping[str, int]
    """Counters by name. They only grow."""
    tiers: tuple[tuple[str, TierStatus], ...]
    """Medium and status of each tier below, the nearest first."""

    @property
    def bytes_used(self) -> int:
        return (self.num_slots - self.free_slots) * self.slot_bytes

    @property
    def bytes_budget(self) -> int:
        return self.num_slots * self.slot_bytes


class Room(NamedTuple):
    """The medium that keeps chunks longest: the largest one that works."""

    num_bytes: int
    free_share: float
    is_memory: bool
