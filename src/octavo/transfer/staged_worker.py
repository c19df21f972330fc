"""The worker for caches that the CPU cannot reach: bytes go through staging, in batches.

    store   rows --gather--> device staging --one copy--> host staging --pieces--> slots
    load    slots --pieces, verify--> host staging --one copy--> device staging --scatter--> rows

Host staging is a canonical cache too, so the copies between it and the arena are the `HostCopier`'s. What the device
does, and in which order, is behind `Lane`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.chunks import ChunkCopy, TransferResult
from octavo.errors import InvalidTransferError
from octavo.ids import NO_ROW, GroupIdx, Row
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.copy_plan import CopyPlanner
from octavo.transfer.cpu_worker import CLOSE_TIMEOUT_S, MAX_JOBS
from octavo.transfer.host_copier import HostCopier
from octavo.transfer.jobs import JobRunner, Outcome
from octavo.transfer.shares import PageShare
from octavo.transfer.staging import Staging
from octavo.transfer.worker import OffloadingWorker

STAGING_BYTES = 64 << 20
_STORES, _LOADS = "store", "load"


class Lane(ABC):
    """One direction's order of work on the device."""

    @abstractmethod
    def mark(self) -> Any:
        """This moment among the kernels that the calling thread has submitted."""

    @abstractmethod
    def after(self, mark: Any) -> AbstractContextManager[None]:
        """Within it, device work begins after the mark; when it is left, that work has ended."""


class StagedWorker(OffloadingWorker):
    """Moves bytes between a device's pages and the arena, with a lane, staging and a thread for each direction.

    A chunk must fit into `staging_bytes`. Beyond `max_jobs` that have not ended, a job fails at once.
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
        self._planner = CopyPlanner(caches, len(slots), slots.shape[1], shares)
        self._take_checksums = take_checksums
        self._store_way = _Way(caches, slots, make_lane(), staging_bytes, shares)
        self._load_way = _Way(caches, slots, make_lane(), staging_bytes, shares)
        self._jobs = JobRunner(_STORES, _LOADS, max_jobs=max_jobs)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._planner.plan(chunks, is_load=False)  # for its checks
        self._store_way.check(chunks)
        store = partial(self._store_way.store, tuple(chunks), take_checksums=self._take_checksums)
        self._jobs.submit(job_id, len(chunks), _marked(store, self._store_way.lane), thread=_STORES)

    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._planner.plan(chunks, is_load=True)  # for its checks
        self._load_way.check(chunks)
        load = partial(self._load_way.load, tuple(chunks))
        self._jobs.submit(job_id, len(chunks), _marked(load, self._load_way.lane), thread=_LOADS)

    def get_finished(self) -> list[TransferResult]:
        return self._jobs.get_finished()

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        return self._jobs.wait(job_ids, timeout_s)

    def wait_any(self, timeout_s: float) -> None:
        self._jobs.wait_any(timeout_s)

    def close(self) -> None:
        self._jobs.close(CLOSE_TIMEOUT_S)
        for way in (self._store_way, self._load_way):
            way.close()


def _marked(work: Callable[[Any], Outcome], lane: Lane) -> Callable[[], Outcome]:
    """The work, to be done after what the calling thread has submitted to the device until now."""
    try:
        return partial(work, lane.mark())
    except RuntimeError as e:  # the device is lost: the job's failure, not the caller's
        return partial(_fail, e)


def _fail(cause: Exception) -> Outcome:
    raise cause


class _Part(NamedTuple):
    """Chunks of a job, all of one group, that fit into staging together."""

    group_idx: GroupIdx
    indices: list[int]
    """In the job."""
    chunks: list[ChunkCopy]
    """As copies between staging and the arena: their rows are those of staging."""
    staged_rows: list[Row]
    """The device row of each row of staging."""


class _Way:
    """One direction: its lane, its staging, and the copies between staging and the arena."""

    def __init__(
        self,
        caches: CanonicalKVCaches,
        slots: npt.NDArray[np.uint8],
        lane: Lane,
        staging_bytes: int,
        shares: Sequence[PageShare],
    ) -> None:
        self.lane = lane
        self._staging = Staging(caches, staging_bytes)
        self._copier = HostCopier(self._staging.host_caches, slots, shares)

    def close(self) -> None:
        self._copier.close()

    def check(self, chunks: Sequence[ChunkCopy]) -> None:
        for chunk in chunks:
            if len(chunk.rows) > self._staging.capacity(chunk.group_idx):
                raise InvalidTransferError(
                    f"a chunk of {len(chunk.rows)} blocks of group {chunk.group_idx} does not fit into staging, which "
                    f"holds {self._staging.capacity(chunk.group_idx)}: raise staging_bytes"
                )

    def store(self, chunks: Sequence[ChunkCopy], mark: Any, *, take_checksums: bool) -> Outcome:
        checksums = [0] * len(chunks)
        for part in self._parts(chunks):
            with self.lane.after(mark):
                self._staging.gather(part.group_idx, part.staged_rows)
            batches = self._copier.planner.plan(part.chunks, is_load=False)
            taken = self._copier.store(batches, num_chunks=len(part.chunks), take_checksums=take_checksums)
            for index, checksum in zip(part.indices, taken, strict=False):  # none, if they are not taken
                checksums[index] = checksum
        return Outcome(checksums=checksums if take_checksums else ())

    def load(self, chunks: Sequence[ChunkCopy], mark: Any) -> Outcome:
        failed: set[int] = set()
        for part in self._parts(chunks):
            batches = self._copier.planner.plan(part.chunks, is_load=True)
            unsound = self._copier.load(batches, part.chunks)
            failed.update(part.indices[i] for i in unsound)
            staged = [row for i, chunk in enumerate(part.chunks) if i not in unsound for row in chunk.rows if row >= 0]
            if staged:
                with self.lane.after(mark):
                    self._staging.scatter(part.group_idx, [part.staged_rows[row] for row in staged], staged)
        return Outcome(failed=frozenset(failed))

    def _parts(self, chunks: Sequence[ChunkCopy]) -> Iterator[_Part]:
        """The chunks by group, as many at a time as fit into staging."""
        for group_idx in sorted({chunk.group_idx for chunk in chunks}):
            capacity = self._staging.capacity(group_idx)
            part = _Part(group_idx, [], [], [])
            for index, chunk in enumerate(chunks):
                if chunk.group_idx != group_idx:
                    continue
                if len(part.staged_rows) + len(chunk.rows) > capacity:
                    yield part
                    part = _Part(group_idx, [], [], [])
                part.indices.append(index)
                part.chunks.append(chunk._replace(rows=_stage(chunk.rows, part.staged_rows)))
            yield part


def _stage(rows: Sequence[Row], staged_rows: list[Row]) -> list[Row]:
    """Gives each wanted row the next index in staging; says which, -1 for those that are not wanted."""
    indices = []
    for row in rows:
        indices.append(Row(len(staged_rows)) if row >= 0 else NO_ROW)
        if row >= 0:
            staged_rows.append(row)
    return indices
