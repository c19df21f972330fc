"""What the offloading manager gives out, and what it keeps of a job: values only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.chunks import OffloadKey, PromisedPoint, WantedChunk
from octavo.tiers import TierStatus


class PreparedStore(NamedTuple):
    """A store that is to be carried out: write these chunks to these slots, then `complete_store(job_id, ...)`."""

    job_id: int
    places: list[int]
    """Of the chunks given, those that have to be written. Empty: all was there, and the job is over already."""
    slots: list[Sequence[int]]
    """Where each of `places` goes."""


class PreparedLoad(NamedTuple):
    """Chunks that stay where they are until `complete_load(job_id, ...)`. By place in the keys given:"""

    job_id: int
    slots: list[Sequence[int]]
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


class LoadJob(NamedTuple):
    """A load that was prepared and has not ended."""

    keys: list[OffloadKey]
    heads: list[int]


class StoreJob(NamedTuple):
    """A store that was prepared and has not ended."""

    chunks: Sequence[WantedChunk]
    counts: list[int]
    """Slots of each."""
    heads: list[int]
    masks: list[int]
    promises: Sequence[PromisedPoint]
    generation: int

    def without(self, failed: Collection[int], checksums: Sequence[int]) -> tuple["StoreJob", Sequence[int]]:
        """What is left of it, and of its chunks' checksums, where chunks at these places failed."""
        good = [place for place in range(len(self.chunks)) if place not in failed]
        rest = self._replace(
            chunks=[self.chunks[place] for place in good],
            counts=[self.counts[place] for place in good],
            heads=[self.heads[place] for place in good],
            masks=[self.masks[place] for place in good],
        )
        return rest, [checksums[place] for place in good] if checksums else ()
