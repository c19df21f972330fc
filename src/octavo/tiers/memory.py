"""A tier in host memory: an arena of its own, below the one that devices copy to and from.

Useful under a compression. Copies are a thread's; what is where is
kept by the same `ResidentChunks` as above. Every chunk is stored with a checksum over its key and bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from xxhash import xxh3_64

from octavo.chunks import Buffers, ChunkBytes, OffloadKey, StoredChunk, TierChanges, TierResult
from octavo.errors import InputError
from octavo.host import (
    BOOKKEEPING_BYTES_PER_SLOT,
    NO_CHECKSUM,
    NO_CHUNK,
    PAGE_BYTES,
    HostArena,
    ResidentChunks,
)
from octavo.policies import EvictionPolicy, LRUPolicy
from octavo.settings import take_bytes, take_nothing_else
from octavo.specs import ceil_div
from octavo.tiers.background import BackgroundJobs, BufferGuard, all_places, copy_bytes, gives_checksum, total_bytes
from octavo.tiers.base import OffloadingSpec, Tier, TierContext, TierState, TierStatus

_MOST_JOBS = 64
_CLOSE_TIMEOUT_S = 5.0
_SLOT_BYTES = 4 * PAGE_BYTES
"""Small, since chunks of one model differ a hundredfold, and compressed ones by themselves; neighbours are copied as
one piece."""


class _Job(NamedTuple):
    is_store: bool
    keys: list[OffloadKey]
    places: list[int]
    """Of the chunks given, those that `keys` and `heads` are of; the others have failed already."""
    heads: list[int]
    masks: list[int]
    lengths: list[int]
    num_chunks: int
    generation: int


_Outcome = list[int | None]
"""By place in `_Job.keys`: the checksum of what was stored, or of what was loaded and found right; None for failure."""


class MemoryTier(Tier):
    """Chunks in slots of an arena."""

    medium: ClassVar[str] = "memory"

    def __init__(self, num_slots: int, slot_bytes: int, policy: EvictionPolicy, *, logs_changes: bool = True) -> None:
        self._arena = HostArena(num_slots, slot_bytes)
        self._slot_cost = slot_bytes + BOOKKEEPING_BYTES_PER_SLOT
        self._resident = ResidentChunks(num_slots, policy, logs_changes=logs_changes)
        self._thread: BackgroundJobs[_Outcome] = BackgroundJobs("memory tier", _MOST_JOBS)
        self._jobs: dict[int, _Job] = {}
        self._generation = 0
        self._counters = dict.fromkeys(_COUNTERS, 0)

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._resident.masks(keys)

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        lengths = self._resident.table.lengths
        return [0 if head == NO_CHUNK else lengths[head] for head in self._resident.index.find(keys)]

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._resident.touch(keys)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        lengths = [total_bytes(chunk.buffers) for chunk in chunks]
        counts = [ceil_div(length, self._arena.slot_bytes) for length in lengths]
        slots = None if self._thread.is_full else self._resident.allocate(counts)
        if slots is None:
            self._counters["stores_refused"] += 1
            return False
        job = _Job(
            is_store=True,
            keys=[chunk.key for chunk in chunks],
            places=list(range(len(chunks))),
            heads=[chain[0] for chain in slots],
            masks=[chunk.held_blocks for chunk in chunks],
            lengths=lengths,
            num_chunks=len(chunks),
            generation=self._generation,
        )
        targets = [self._arena.buffers(chain, length) for chain, length in zip(slots, lengths, strict=True)]
        copies = [(chunk, target) for chunk, target in zip(chunks, targets, strict=True)]
        self._start(job_id, job, lambda guard: [_store(guard, *copy) for copy in copies])
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        if self._thread.is_full:
            self._counters["loads_refused"] += 1
            return False
        table = self._resident.table
        heads = self._resident.index.find([chunk.key for chunk in chunks])
        places = [
            place
            for place, (chunk, head) in enumerate(zip(chunks, heads, strict=True))
            if head != NO_CHUNK
            and table.mask(head) == chunk.held_blocks
            and table.lengths[head] == total_bytes(chunk.buffers)
        ]
        job = _Job(
            is_store=False,
            keys=[chunks[place].key for place in places],
            places=places,
            heads=[heads[place] for place in places],
            masks=[],
            lengths=[],
            num_chunks=len(chunks),
            generation=self._generation,
        )
        self._resident.add_readers(job.keys, job.heads)
        copies = [
            (
                chunks[place].key,
                self._arena.buffers(table.chain(heads[place]), table.lengths[heads[place]]),
                chunks[place].buffers,
                table.checksums[heads[place]],
            )
            for place in places
        ]
        self._start(job_id, job, lambda guard: [_load(guard, *copy) for copy in copies])
        return True

    def cancel(self, job_id: int) -> None:
        self._thread.cancel(job_id)
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        if job.is_store:
            self._resident.abandon(job.heads)
        else:
            self._resident.remove_readers(job.keys, job.heads)

    def poll(self, now: float) -> list[TierResult]:
        self._resident.let_go()
        return [self._finish(job_id, outcome) for job_id, outcome in self._thread.take_done()]

    def take_changes(self) -> TierChanges:
        if self._resident.changes is None:
            return TierChanges(removed=[], stored=[])
        changes, _ = self._resident.changes.take()
        return changes

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        self._resident.drop(keys)

    def reset(self) -> None:
        self._generation += 1
        jobs = self._jobs.values()
        self._resident.clear(
            [head for job in jobs if job.is_store for head in job.heads],
            [head for job in jobs if not job.is_store for head in job.heads],
            tells_removals=True,
        )

    def flush(self, timeout_s: float) -> bool:
        return self._thread.wait_idle(timeout_s)

    def status(self) -> TierStatus:
        num_slots = self._arena.num_slots
        return TierStatus(
            state=TierState.OK,
            reason="",
            bytes_used=(num_slots - self._resident.table.num_free) * self._slot_cost,
            bytes_budget=num_slots * self._slot_cost,
            num_chunks=len(self._resident.index),
            counters={**self._counters, "evicted": self._resident.num_evicted},
        )

    def close(self) -> None:
        self._thread.close(_CLOSE_TIMEOUT_S)
        self._arena.close()

    def check_invariants(self) -> None:
        """For tests: no slot is lost, none is in use twice."""
        self._resident.check_invariants([head for job in self._jobs.values() if job.is_store for head in job.heads])

    def _start(self, job_id: int, job: _Job, run: Callable[[BufferGuard], _Outcome]) -> None:
        self._jobs[job_id] = job
        self._thread.submit(job_id, run)

    def _finish(self, job_id: int, outcome: _Outcome | None) -> TierResult:
        job = self._jobs.pop(job_id)
        outcome = outcome or [None] * len(job.keys)
        good = [i for i, checksum in enumerate(outcome) if checksum is not None]
        if job.is_store and job.generation != self._generation:
            self._resident.abandon(job.heads)
            return TierResult(job_id, all_places(job.num_chunks))
        if job.is_store:
            self._publish(job, good, outcome)
        else:
            self._give_back(job, [i for i, checksum in enumerate(outcome) if checksum is None])
        return TierResult(job_id, all_places(job.num_chunks) - {job.places[i] for i in good})

    def _publish(self, job: _Job, good: Sequence[int], outcome: _Outcome) -> None:
        last = {job.keys[i]: i for i in good}  # of a key that came twice the last is right
        stored = sorted(last.values())
        self._resident.abandon(head for i, head in enumerate(job.heads) if i not in stored)
        self._resident.publish(
            [
                StoredChunk(
                    key=job.keys[i],
                    num_slots=ceil_div(job.lengths[i], self._arena.slot_bytes),
                    position=0,
                    parent=None,
                )
                for i in stored
            ],
            [job.heads[i] for i in stored],
            [job.masks[i] for i in stored],
            [outcome[i] or NO_CHECKSUM for i in stored],
            [job.lengths[i] for i in stored],
        )
        self._counters["store_failures"] += len(job.keys) - len(good)

    def _give_back(self, job: _Job, corrupt: Sequence[int]) -> None:
        self._counters["corrupt_records"] += len(corrupt)
        index = self._resident.index
        self._resident.drop([job.keys[i] for i in corrupt if index.get(job.keys[i]) == job.heads[i]])
        self._resident.remove_readers(job.keys, job.heads)


_COUNTERS = ("stores_refused", "loads_refused", "store_failures", "corrupt_records")


def _store(guard: BufferGuard, chunk: ChunkBytes, target: Buffers) -> int | None:
    with guard.access() as is_allowed:
        if not is_allowed:
            return None
        copy_bytes(chunk.buffers, target)
        return _checksum(chunk.key, target) if gives_checksum(target, chunk.checksum) else None


def _load(guard: BufferGuard, key: OffloadKey, source: Buffers, target: Buffers, expected: int) -> int | None:
    with guard.access() as is_allowed:
        if not is_allowed:
            return None
        copy_bytes(source, target)
        return expected if _checksum(key, target) == expected else None


def _checksum(key: OffloadKey, buffers: Buffers) -> int:
    """Never NO_CHECKSUM, so that every chunk can be verified."""
    digest = xxh3_64(key)
    for buffer in buffers:
        digest.update(buffer)
    return digest.intdigest() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpec(OffloadingSpec):
    """`{type: memory, size: 8GiB}`."""

    name: ClassVar[str] = "memory"

    size: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "MemorySpec":
        values = dict(config)
        size = take_bytes(values, "size")
        take_nothing_else(values, "memory tier", ("size",))
        return cls(size=size)

    def build(self, context: TierContext) -> MemoryTier:
        slot_cost = _SLOT_BYTES + BOOKKEEPING_BYTES_PER_SLOT
        num_slots = self.size // slot_cost
        needed = ceil_div(context.max_chunk_bytes, _SLOT_BYTES)
        if num_slots < needed:
            raise InputError(
                f"a memory tier of size = {self.size} bytes cannot hold one chunk of {context.max_chunk_bytes}: give "
                f"it {needed * slot_cost} bytes or more"
            )
        return MemoryTier(num_slots, _SLOT_BYTES, LRUPolicy((), num_slots))
