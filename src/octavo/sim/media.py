"""Media that take time and hold no bytes: a worker between device and memory, and a tier below it.

Both implement the real contracts. They get the virtual time from `poll` and from their owner's clock.
"""

import mmap
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from octavo.chunks import ChunkBytes, ChunkCopy, OffloadKey, TierChanges, TierResult, TransferResult
from octavo.errors import NotEnoughMemoryError
from octavo.host import HostArena
from octavo.tiers import Tier, TierState, TierStatus
from octavo.transfer import OffloadingWorker
from octavo.units import format_bytes

_RECORD_BYTES = 4096
"""A disk's records are multiples of this size."""
_MAP_NORESERVE = 0x4000
"""Linux: memory is not reserved. Python names the flag from 3.13 on."""
_MOST_QUEUED_S = 2.0
"""A disk that is busy for longer than this refuses stores, as a bounded queue does."""

Clock = Callable[[], float]


def empty_arena(num_slots: int, slot_bytes: int) -> HostArena:
    """An arena of any size that takes no memory, as it is never written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        memory = mmap.mmap(-1, num_slots * slot_bytes, flags=flags)
    except (OSError, OverflowError):
        raise NotEnoughMemoryError(
            f"the memory of all simulated engines, {format_bytes(num_slots * slot_bytes)} each, is more than one "
            "process can address: simulate less memory or fewer engines"
        ) from None
    return HostArena(num_slots, slot_bytes, memory=memory)


class Link:
    """One direction of a medium: jobs one after the other, at a rate."""

    def __init__(self, bytes_per_s: float, latency_s: float, clock: Clock) -> None:
        self.num_bytes = 0
        self.free_at = 0.0
        self._bytes_per_s = bytes_per_s
        self._latency_s = latency_s
        self._clock = clock

    def seconds_for(self, num_bytes: int) -> float:
        """The seconds for this many bytes without a queue."""
        return num_bytes / self._bytes_per_s

    def send(self, num_bytes: int) -> float:
        """Queues this many bytes, and returns when they will have arrived."""
        self.num_bytes += num_bytes
        self.free_at = max(self.free_at, self._clock()) + num_bytes / self._bytes_per_s
        return self.free_at + self._latency_s


class SimulatedWorker(OffloadingWorker):
    """A worker whose transfers end at the time when their bytes would have been copied."""

    def __init__(self, page_sizes: Sequence[int], bytes_per_s: float, clock: Clock) -> None:
        self._page_sizes = page_sizes
        self._clock = clock
        self.stores = Link(bytes_per_s, 0.0, clock)
        self.loads = Link(bytes_per_s, 0.0, clock)
        self._ends: dict[int, tuple[float, float]] = {}
        """By job: when it ends, and how long it takes."""

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._send(job_id, self.stores, chunks)

    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._send(job_id, self.loads, chunks)

    def get_finished(self) -> list[TransferResult]:
        now = self._clock()
        ended = [job_id for job_id, (end, _) in self._ends.items() if end <= now]
        return [TransferResult(job_id, frozenset(), seconds=self._ends.pop(job_id)[1]) for job_id in ended]

    def next_end(self) -> float | None:
        """When the next transfer ends."""
        return min((end for end, _ in self._ends.values()), default=None)

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        """Does nothing, as virtual time passes elsewhere."""
        return not self._ends.keys() & set(job_ids)

    def wait_any(self, timeout_s: float) -> None:
        """Does nothing, as virtual time passes elsewhere."""

    def close(self) -> None:
        self._ends.clear()

    def _send(self, job_id: int, link: "Link", chunks: Sequence[ChunkCopy]) -> None:
        num_bytes = sum(self._page_sizes[chunk.group_idx] * len(chunk.rows) for chunk in chunks)
        self._ends[job_id] = link.send(num_bytes), link.seconds_for(num_bytes)


class _Held(NamedTuple):
    held_blocks: int
    num_bytes: int


class _Job(NamedTuple):
    ends_at: float
    seconds: float
    stored: Sequence[ChunkBytes]
    failed: frozenset[int]


class SimulatedDisk(Tier):
    """A disk that evicts the least recently used chunks when its budget is full.

    The real one is a log that keeps used chunks when it turns: the same order, in coarser steps.
    """

    medium: ClassVar[str] = "disk"

    def __init__(self, budget_bytes: int, bytes_per_s: float, latency_s: float, clock: Clock) -> None:
        self.writes = Link(bytes_per_s, latency_s, clock)
        self.reads = Link(bytes_per_s, latency_s, clock)
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._bytes_used = 0
        self._held: OrderedDict[OffloadKey, _Held] = OrderedDict()
        self._jobs: dict[int, _Job] = {}
        self._changes: dict[OffloadKey, bool] = {}
        """By key: whether it was stored last, or removed."""
        self._num_evicted = 0

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        held = self._held
        return [held[key].held_blocks if key in held else 0 for key in keys]

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        held = self._held
        return [held[key].num_bytes if key in held else 0 for key in keys]

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key in self._held:
                self._held.move_to_end(key)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        if self.writes.free_at - self._clock() > _MOST_QUEUED_S:
            return False
        sizes = [_record_bytes(chunk) for chunk in chunks]
        failed = frozenset(index for index, size in enumerate(sizes) if size > self._budget_bytes)
        written = sum(size for size in sizes if size <= self._budget_bytes)
        self._begin(job_id, self.writes.send(written), chunks, failed)
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        failed = frozenset(
            index
            for index, chunk in enumerate(chunks)
            if chunk.key not in self._held or self._held[chunk.key].held_blocks != chunk.held_blocks
        )
        self._begin(job_id, self.reads.send(sum(map(_record_bytes, chunks))), (), failed)
        return True

    def cancel(self, job_id: int) -> None:
        self._jobs.pop(job_id, None)

    def poll(self, now: float) -> list[TierResult]:
        ended = [(job_id, job) for job_id, job in self._jobs.items() if job.ends_at <= now]
        for job_id, job in ended:
            del self._jobs[job_id]
            for index, chunk in enumerate(job.stored):
                if index not in job.failed:
                    self._put(chunk)
        return [TierResult(job_id, job.failed, job.seconds) for job_id, job in ended]

    def next_end(self) -> float | None:
        """When the next job ends."""
        return min((job.ends_at for job in self._jobs.values()), default=None)

    def take_changes(self) -> TierChanges:
        changes, self._changes = self._changes, {}
        return TierChanges(
            removed=[key for key, is_there in changes.items() if not is_there],
            stored=[key for key, is_there in changes.items() if is_there],
        )

    def announce(self) -> None:
        self._changes |= dict.fromkeys(self._held, True)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            self._drop(key)

    def reset(self) -> None:
        self.remove(list(self._held))
        self._jobs = {job_id: job._replace(stored=()) for job_id, job in self._jobs.items()}

    def is_reset_durable(self) -> bool:
        """Always true: nothing here outlives the process."""
        return True

    def flush(self, timeout_s: float) -> bool:
        """Does nothing: nothing here outlives the process."""
        return True

    def status(self) -> TierStatus:
        return TierStatus(
            state=TierState.OK,
            reason="",
            bytes_used=self._bytes_used,
            bytes_budget=self._budget_bytes,
            num_chunks=len(self._held),
            counters={"evicted": self._num_evicted},
        )

    def close(self) -> None:
        self._jobs.clear()

    def _begin(self, job_id: int, ends_at: float, stored: Sequence[ChunkBytes], failed: frozenset[int]) -> None:
        self._jobs[job_id] = _Job(ends_at, ends_at - self._clock(), stored, failed)

    def _put(self, chunk: ChunkBytes) -> None:
        self._drop(chunk.key)
        size = _record_bytes(chunk)
        while self._bytes_used + size > self._budget_bytes:
            self._drop(next(iter(self._held)))
            self._num_evicted += 1
        self._held[chunk.key] = _Held(chunk.held_blocks, size)
        self._bytes_used += size
        self._changes[chunk.key] = True

    def _drop(self, key: OffloadKey) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._bytes_used -= held.num_bytes
            self._changes[key] = False


def _record_bytes(chunk: ChunkBytes) -> int:
    return -(-sum(map(len, chunk.buffers)) // _RECORD_BYTES) * _RECORD_BYTES
