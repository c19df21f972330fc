"""The worker for caches in host memory: one copy between a page and its slots."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from octavo.chunks import ChunkCopy
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.copy_plan import ChunkBatch
from octavo.transfer.host_copier import HostCopier
from octavo.transfer.jobs import CLOSE_TIMEOUT_S, MAX_JOBS, JobRunner, JobWorker, Outcome
from octavo.transfer.shares import PageShare

INLINE_BYTES = 256 << 10
"""Smaller jobs are done before submit returns: waking a thread takes as long as copying this much."""
_THREAD = "transfer"


class CpuWorker(JobWorker):
    """Moves bytes between an engine's pages and the arena on a thread of its own, and large jobs on two.

    `slots` is the arena, uint8 `(num_slots, slot_bytes)`. Beyond `max_jobs` that have not ended, a job fails at once.
    `shares`: see `CopyPlanner`; checksums are those of whole chunks, so only a rank that is alone can take them.
    """

    def __init__(
        self,
        caches: CanonicalKVCaches,
        slots: npt.NDArray[np.uint8],
        *,
        shares: Sequence[PageShare] = (),
        take_checksums: bool = False,
        inline_bytes: int = INLINE_BYTES,
        max_jobs: int = MAX_JOBS,
    ) -> None:
        self._copier = HostCopier(caches, slots, shares)
        self._take_checksums = take_checksums
        self._inline_bytes = inline_bytes
        super().__init__(JobRunner(_THREAD, max_jobs=max_jobs))

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        batches = self._copier.planner.plan(chunks, is_load=False)
        self._submit(job_id, chunks, batches, partial(self._store, batches, len(chunks)))

    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        batches = self._copier.planner.plan(chunks, is_load=True)
        self._submit(job_id, chunks, batches, partial(self._load, batches, tuple(chunks)))

    def close(self) -> None:
        self._jobs.close(CLOSE_TIMEOUT_S)
        self._copier.close()

    def _submit(
        self, job_id: int, chunks: Sequence[ChunkCopy], batches: Sequence[ChunkBatch], work: Callable[[], Outcome]
    ) -> None:
        num_bytes = sum(batch.chunk_bytes * len(batch.indices) for batch in batches)
        self._jobs.submit(job_id, len(chunks), work, thread=None if num_bytes <= self._inline_bytes else _THREAD)

    def _store(self, batches: Sequence[ChunkBatch], num_chunks: int) -> Outcome:
        checksums = self._copier.store(batches, num_chunks=num_chunks, take_checksums=self._take_checksums)
        return Outcome(checksums=checksums)

    def _load(self, batches: Sequence[ChunkBatch], chunks: Sequence[ChunkCopy]) -> Outcome:
        return Outcome(failed=self._copier.load(batches, chunks))
