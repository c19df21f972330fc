"""The worker for caches that the CPU cannot reach: bytes go over a link, in parts.

    store   rows [--gather--> staging] --link--> slots, hashed part by part as they arrive
    load    slots, hashed, and what is sound --link--> [staging --scatter-->] rows

A job's parts are enqueued one after the other, and only its end is waited for: the host hashes while the device copies.
In which order the device works is behind `Lane`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.chunks import ChunkCopy
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.copy_engine import Addresses
from octavo.transfer.copy_plan import ChunkBatch, CopyPlanner, Ints
from octavo.transfer.jobs import CLOSE_TIMEOUT_S, MAX_JOBS, JobRunner, JobWorker, Outcome
from octavo.transfer.link import Link
from octavo.transfer.raw_memory import PinnedSlots
from octavo.transfer.shares import PageShare
from octavo.transfer.slot_hasher import SharedHasher
from octavo.transfer.staging import Staging

STAGING_BYTES = 32 << 20
"""As much of a job is enqueued at a time: long for the device, so that it never waits for the host."""
_STORES, _LOADS = "store", "load"


class Lane(ABC):
    """One direction's order of work on the device."""

    @abstractmethod
    def mark(self) -> Any:
        """This moment among the kernels that the calling thread has submitted."""

    @abstractmethod
    def after(self, mark: Any) -> AbstractContextManager[None]:
        """Within it, device work begins after the mark; when it is left, that work has ended."""

    @abstractmethod
    def copy_all(self, targets: Addresses, sources: Addresses, sizes: Addresses, *, is_pinned: bool) -> None:
        """Within `after`: begins copies between the device and the host, whose memory is pinned or is not."""

    @abstractmethod
    def wait(self, mark: Any) -> None:
        """Returns when what came before a mark, taken within `after`, has ended."""


class StagedWorker(JobWorker):
    """Moves bytes between a device's pages and the arena, with a lane, staging and a thread for each direction.

    Staging has `staging_bytes`, or those of the largest block. Beyond `max_jobs` that have not ended, a job fails at
    once.
    """

    def __init__(
        self,
        caches: CanonicalKVCaches,
        slots: npt.NDArray[np.uint8],
        *,
        make_lane: Callable[[], Lane],
        shares: Sequence[PageShare] = (),
        take_checksums: bool = False,
        staging_bytes: int = STAGING_BYTES,
        max_jobs: int = MAX_JOBS,
    ) -> None:
        self._hasher = SharedHasher(slots)
        self._planner = CopyPlanner(caches, len(slots), slots.shape[1], shares)
        self._take_checksums = take_checksums
        places = [(make_lane(), Staging(caches, staging_bytes)) for _ in (_STORES, _LOADS)]
        self._slots = PinnedSlots(slots, caches.device)  # after all that may fail

        def make_way(lane: Lane, staging: Staging, *, is_load: bool) -> _Way:
            link = Link(caches, staging, self._slots, shares, copy_all=lane.copy_all, is_load=is_load)
            return _Way(lane, staging, link, self._hasher)

        self._store_way, self._load_way = make_way(*places[0], is_load=False), make_way(*places[1], is_load=True)
        super().__init__(JobRunner(_STORES, _LOADS, max_jobs=max_jobs))

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        batches = self._planner.plan(chunks, is_load=False)
        store = partial(self._store_way.store, batches, len(chunks), take_checksums=self._take_checksums)
        self._jobs.submit(job_id, len(chunks), _marked(store, self._store_way.lane), thread=_STORES)

    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        batches = self._planner.plan(chunks, is_load=True)
        load = partial(self._load_way.load, batches, tuple(chunks))
        self._jobs.submit(job_id, len(chunks), _marked(load, self._load_way.lane), thread=_LOADS)

    def close(self) -> None:
        if self._jobs.close(CLOSE_TIMEOUT_S):
            self._slots.close()
        self._hasher.close()


def _marked(work: Callable[[Any], Outcome], lane: Lane) -> Callable[[], Outcome]:
    """The work, to be done after what the calling thread has submitted to the device until now."""
    try:
        return partial(work, lane.mark())
    except RuntimeError as e:  # the device is lost: the job's failure, not the caller's
        return partial(_fail, e)


def _fail(cause: Exception) -> Outcome:
    raise cause


class _Way:
    """One direction: its lane, its staging, and its copies over the link.

    Jobs are in inference mode: in another, nobody may write to tensors that were made in it, as those of vLLM's steps.
    """

    def __init__(self, lane: Lane, staging: Staging, link: Link, hasher: SharedHasher) -> None:
        self.lane = lane
        self._staging = staging
        self._link = link
        self._hasher = hasher

    def store(self, batches: Sequence[ChunkBatch], num_chunks: int, mark: Any, *, take_checksums: bool) -> Outcome:
        checksums = [0] * num_chunks
        with torch.inference_mode(), self.lane.after(mark):
            sent = [(part, self._send(part)) for part in self._parts(batches)]
            for part, end in sent if take_checksums else ():
                self.lane.wait(end)
                for index, checksum in zip(part.indices, self._hasher.checksums(part), strict=True):
                    checksums[index] = checksum
        return Outcome(checksums=checksums if take_checksums else ())

    def load(self, batches: Sequence[ChunkBatch], chunks: Sequence[ChunkCopy], mark: Any) -> Outcome:
        failed: set[int] = set()
        with torch.inference_mode(), self.lane.after(mark):
            for part in self._parts(batches):
                unsound = self._unsound(part, chunks)
                failed.update(part.indices[i] for i in unsound)
                sound = [i for i in range(len(part.indices)) if i not in unsound]
                self._fetch(part.keep(sound) if unsound else part)
        return Outcome(failed=frozenset(failed))

    def _unsound(self, part: ChunkBatch, chunks: Sequence[ChunkCopy]) -> set[int]:
        """The chunks of the part whose bytes have another checksum than they should."""
        given = [chunks[index].checksum for index in part.indices]
        if given.count(None) == len(given):
            return set()
        found = self._hasher.checksums(part)
        return {i for i, (one, other) in enumerate(zip(given, found, strict=True)) if one not in (None, other)}

    def _send(self, part: ChunkBatch) -> Any:
        if self._link.is_direct(part):
            self._link.move(part)
        else:
            for blocks in self._staged_together(part):
                rows, slots = _to_device([part.rows[:, blocks], part.slots], self._staging.buffer.device)
                self._staging.gather(part.group_idx, rows)
                self._link.move_staged(part, blocks, slots.view(part.slots.shape))
        return self.lane.mark()

    def _fetch(self, part: ChunkBatch) -> None:
        if self._link.is_direct(part):
            self._link.move(part)
            return
        for blocks in self._staged_together(part):
            of_blocks = part.rows[:, blocks].reshape(-1)
            wanted = np.flatnonzero(of_blocks >= 0)
            arrays = [of_blocks[wanted], wanted, part.slots]
            rows, staged, slots = _to_device(arrays, self._staging.buffer.device)
            self._link.move_staged(part, blocks, slots.view(part.slots.shape))
            self._staging.scatter(part.group_idx, rows, staged, len(of_blocks))

    def _parts(self, batches: Sequence[ChunkBatch]) -> Iterator[ChunkBatch]:
        """The batches, cut into parts that fit into staging, or have one chunk. Each takes the place of the one before
        it, after that has left: so the lane orders them."""
        for batch in batches:
            staged_bytes = batch.rows.shape[1] * self._staging.caches.page_size_bytes(batch.group_idx)
            count = max(1, len(self._staging.buffer) // staged_bytes)
            for first in range(0, len(batch.indices), count):
                yield batch.keep(range(first, min(first + count, len(batch.indices))))

    def _staged_together(self, part: ChunkBatch) -> Iterator[slice]:
        """The blocks of each chunk that are in staging at once: all, unless a chunk is larger."""
        num_blocks, capacity = part.rows.shape[1], self._staging.capacity(part.group_idx)
        for first in range(0, num_blocks, capacity):
            yield slice(first, min(first + capacity, num_blocks))


def _to_device(arrays: Sequence[Ints], device: torch.device) -> Sequence[torch.Tensor]:
    """The arrays on the device, flat, in one copy."""
    together = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]))
    if device.type == "cuda":
        together = together.pin_memory()
    return torch.split(together.to(device, non_blocking=True), [array.size for array in arrays])
