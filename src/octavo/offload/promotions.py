"""Chunks on their way from the tiers below into the arena, because requests wait for them.

    asked for --> being read --> held --loaded once, or given up by who waited--> resident like any other
                      |            `--its deadline-------------------------------'
                      |-- failed --> not read again from this tier for a while
                      `-- its deadline --> cancelled; the tier is left alone for a while

One read serves all who wait for a key. Its deadline is the first one's, or a tier that hangs could be waited for
without end by requests that come one after the other. Who gives up ends the hold for all: who still waits finds the
chunk like any other, or asks for it again.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from octavo.chunks import ChunkBytes, ChunkSizes, OffloadKey, StoredChunk, TierResult, WantedChunk, stored_chunks
from octavo.host import NO_CHECKSUM, HostArena, ResidentChunks
from octavo.ids import Slot
from octavo.offload.load_choice import LEAST_BYTES, MovingLine
from octavo.offload.lower_tier import LowerTier, OffloadLimits
from octavo.tables import Part


class _Read(NamedTuple):
    lower: LowerTier
    chunks: list[StoredChunk]
    heads: list[Slot]
    masks: list[int]
    tenants: list[bytes]
    deadline: float
    begun: float
    num_queued: float
    """The bytes of this read and of all that the tier had to read before it."""


class Promotions:
    """Reads from the tiers below, and chunks that were read and are not loaded yet."""

    def __init__(
        self,
        lowers: Sequence[LowerTier],
        *,
        resident: ResidentChunks,
        arena: HostArena,
        sizes: ChunkSizes,
        limits: OffloadLimits,
        job_ids: Iterator[int],
    ) -> None:
        self.reading: dict[OffloadKey, int] = {}
        """Key -> the blocks that are being read."""
        self.num_read = 0
        self.num_failed = 0
        self.num_late = 0
        self.num_refused = 0
        self._lowers = lowers
        self._resident = resident
        self._arena = arena
        self._sizes = sizes
        self._limits = limits
        self._job_ids = job_ids
        self.speeds = [MovingLine(least=LEAST_BYTES) for _ in lowers]
        """Per tier: the seconds from the request of a read to its end, by the bytes queued."""
        self._reads: dict[int, _Read] = {}
        self._held: dict[OffloadKey, tuple[Slot, float]] = {}
        """Key -> head and deadline of a chunk that is held."""
        self._unwanted: set[OffloadKey] = set()
        """Chunks that are being read, and will not be held."""
        self._ends_of_holds: list[tuple[float, int, list[OffloadKey]]] = []
        """A heap; the number is a job's, so that keys are never compared."""

    def __bool__(self) -> bool:
        return bool(self._reads or self._held)

    @property
    def is_reading(self) -> bool:
        return bool(self._reads)

    @property
    def heads_being_written(self) -> list[Slot]:
        return [head for read in self._reads.values() for head in read.heads]

    def seconds_to_read(self, num_bytes: Mapping[int, int], now: float, *, waits_for_others: bool) -> float:
        """The seconds until these bytes of each tier are in memory, after all reads that are queued.
        `waits_for_others`: some of the queued reads are wanted too."""
        return max(
            (
                speed.seconds_for(self._queued_bytes(rank, now) + num_bytes.get(rank, 0))
                for rank, speed in enumerate(self.speeds)
                if waits_for_others or num_bytes.get(rank)
            ),
            default=0.0,
        )

    def _queued_bytes(self, rank: int, now: float) -> float:
        """The bytes that a tier still has to read. A read under way counts as done as far as its time allows."""
        lower, speed = self._lowers[rank], self.speeds[rank]
        left = (
            read.num_queued - speed.amount_in(now - read.begun) for read in self._reads.values() if read.lower is lower
        )
        return max(0.0, max(left, default=0.0))

    def start(self, wanted: Sequence[WantedChunk], protect: Sequence[OffloadKey], now: float, deadline: float) -> None:
        """Reads each chunk from the first tier that has all its wanted blocks, starting at the front, for as many
        chunks as the arena has room for without evicting any of `protect`. No chunk given may be in the arena or on its
        way there."""
        for lower in self._lowers:
            masks = lower.masks([chunk.key for chunk in wanted])
            here, elsewhere = [], []
            for chunk, mask in zip(wanted, masks, strict=True):
                if mask and not self._sizes.mask(chunk) & ~mask:
                    here.append((chunk, mask))
                else:
                    elsewhere.append(chunk)
            for start in range(0, len(here), self._limits.chunks_per_job):
                batch = here[start : start + self._limits.chunks_per_job]
                if not self._read(lower, batch, protect, now, deadline):
                    break
            wanted = elsewhere

    def finish(self, result: TierResult, now: float) -> list[OffloadKey]:
        """Ends a tier's read. What it brought is resident, and held until it is loaded or its deadline passes. Returns
        its keys."""
        read = self._reads.pop(result.job_id)
        for chunk in read.chunks:
            del self.reading[chunk.key]
        unwanted = self._unwanted.intersection(chunk.key for chunk in read.chunks)
        self._unwanted -= unwanted
        good = [index for index in range(len(read.chunks)) if index not in result.failed]
        bad = [index for index in range(len(read.chunks)) if index in result.failed]
        chunks = [read.chunks[index] for index in good]
        keys = [chunk.key for chunk in chunks]
        self._resident.abandon(read.heads[index] for index in bad)
        self._resident.publish(
            chunks,
            [read.heads[index] for index in good],
            [read.masks[index] for index in good],
            [NO_CHECKSUM] * len(good),
            [read.tenants[index] for index in good],
        )
        self._hold(result.job_id, [key for key in keys if key not in unwanted], read.deadline)
        if good:
            read.lower.worked()
            seconds = now - read.begun if result.seconds is None else result.seconds
            self.speeds[self._lowers.index(read.lower)].note(read.num_queued, seconds)
        self.num_read += len(good)
        self.num_failed += len(bad)
        read.lower.could_not_read([read.chunks[index].key for index in bad])
        return keys

    def want(self, keys: Iterable[OffloadKey]) -> None:
        """A request waits for these chunks: those that are being read will be held."""
        self._unwanted.difference_update(keys)

    def release(self, keys: Sequence[OffloadKey]) -> None:
        """Ends the holds of these chunks: who waited for them has pinned them, or has given up. A chunk that is still
        being read will not be held."""
        if self.reading:
            self._unwanted.update(key for key in keys if key in self.reading)
        if self._held:
            self._end_holds([key for key in dict.fromkeys(keys) if key in self._held])

    def expire(self, now: float) -> None:
        """Cancels reads and releases held chunks whose deadlines have passed."""
        for job_id in [job_id for job_id, read in self._reads.items() if read.deadline <= now]:
            read = self._reads[job_id]
            lower = read.lower
            self.speeds[self._lowers.index(lower)].note(read.num_queued, now - read.begun)  # and it would take longer
            self.num_late += self._cancel(job_id)
            lower.missed_deadline()
        while self._ends_of_holds and self._ends_of_holds[0][0] <= now:
            _, _, keys = heapq.heappop(self._ends_of_holds)
            self._end_holds([key for key in keys if key in self._held and self._held[key][1] <= now])

    def give_up(self, lower: LowerTier) -> None:
        """Cancels all reads from this tier."""
        for job_id in [job_id for job_id, read in self._reads.items() if read.lower is lower]:
            self.num_failed += self._cancel(job_id)

    def clear(self) -> Sequence[Part]:
        """Gives up everything, at a reset or the end: it is the reader of nothing any more without saying so, since
        nothing is resident after that. What is to be freed piecemeal."""
        for job_id in list(self._reads):
            self._cancel(job_id)
        parts: list[Part] = [self._held, self._ends_of_holds]
        self._held, self._ends_of_holds = {}, []
        return parts

    def _read(
        self,
        lower: LowerTier,
        batch: list[tuple[WantedChunk, int]],
        protect: Sequence[OffloadKey],
        now: float,
        deadline: float,
    ) -> bool:
        """Whether the tier took the whole batch."""
        num_asked = len(batch)
        counts = self._sizes.num_slots([chunk.key for chunk, _ in batch], [mask for _, mask in batch])
        while (slots := self._resident.allocate(counts, protect)) is None:
            batch, counts = batch[: len(batch) // 2], counts[: len(batch) // 2]
        if not batch:
            return False
        heads = [chain[0] for chain in slots]
        job = [
            ChunkBytes(
                key=chunk.key,
                buffers=self._arena.buffers(chain, self._sizes.num_bytes(chunk.key, mask)),
                held_blocks=mask,
            )
            for (chunk, mask), chain in zip(batch, slots, strict=True)
        ]
        job_id = next(self._job_ids)
        if not lower.submit_load(job_id, job):
            self._resident.abandon(heads)
            self.num_refused += len(batch)
            return False
        self.reading.update((chunk.key, mask) for chunk, mask in batch)
        num_bytes = sum(len(buffer) for chunk in job for buffer in chunk.buffers)
        self._reads[job_id] = _Read(
            lower=lower,
            chunks=stored_chunks([chunk for chunk, _ in batch], counts),
            heads=heads,
            masks=[mask for _, mask in batch],
            tenants=[chunk.tenant for chunk, _ in batch],
            deadline=deadline,
            begun=now,
            num_queued=self._queued_bytes(self._lowers.index(lower), now) + num_bytes,
        )
        return len(batch) == num_asked

    def _hold(self, job_id: int, keys: list[OffloadKey], deadline: float) -> None:
        self._end_holds([key for key in keys if key in self._held])  # of a chunk that was replaced since
        heads = self._resident.index.find(keys)
        self._resident.add_readers(keys, heads)
        self._held.update((key, (head, deadline)) for key, head in zip(keys, heads, strict=True))
        heapq.heappush(self._ends_of_holds, (deadline, job_id, keys))

    def _end_holds(self, keys: Sequence[OffloadKey]) -> None:
        heads = [self._held.pop(key)[0] for key in keys]
        self._resident.remove_readers(keys, heads)

    def _cancel(self, job_id: int) -> int:
        """Returns how many chunks the read had."""
        read = self._reads.pop(job_id)
        keys = [chunk.key for chunk in read.chunks]
        for key in keys:
            del self.reading[key]
        self._unwanted.difference_update(keys)
        self._resident.orphan(read.heads)
        read.lower.cancel(job_id, keys, read.heads)
        return len(keys)
