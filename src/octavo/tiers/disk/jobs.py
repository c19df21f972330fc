"""`Jobs`: what was submitted and is not reported yet, within bounds; on the engine's thread."""

from time import monotonic

from octavo.chunks import TierResult
from octavo.tiers.disk.operations import DiskJob

MOST_CHUNKS = 8192
"""The most chunks under way, since the garbage collector visits each of them."""


class Jobs:
    """The stores, or the loads. A job counts, with its bytes and chunks, until its last chunk is done, cancelled or
    not: only then has its work left the queue."""

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes
        self._num_jobs = 0
        self._num_bytes = 0
        self._num_chunks = 0
        self._jobs: dict[int, DiskJob] = {}
        """Id -> job, without cancelled ones."""
        self._finished: list[TierResult] = []

    def has_room(self, num_bytes: int, num_chunks: int) -> bool:
        """A job that is larger than a bound is let in alone."""
        return self._num_jobs == 0 or (
            self._num_jobs < self._most_jobs
            and self._num_bytes + num_bytes <= self._most_bytes
            and self._num_chunks + num_chunks <= MOST_CHUNKS
        )

    def add(self, job: DiskJob) -> None:
        self._num_jobs += 1
        self._num_bytes += job.num_bytes
        self._num_chunks += job.num_chunks
        self._jobs[job.job_id] = job
        if job.num_left == 0:
            self._finish(job)

    def chunk_done(self, job: DiskJob, index: int, *, has_failed: bool) -> None:
        if has_failed:
            job.failed.add(index)
        job.num_left -= 1
        if job.num_left == 0:
            self._finish(job)

    def cancel(self, job_id: int) -> None:
        job = self._jobs.pop(job_id, None)
        if job is not None:
            job.guard.cancel()
        self._finished = [result for result in self._finished if result.job_id != job_id]

    def take_finished(self) -> list[TierResult]:
        finished, self._finished = self._finished, []
        return finished

    def _finish(self, job: DiskJob) -> None:
        self._num_jobs -= 1
        self._num_bytes -= job.num_bytes
        self._num_chunks -= job.num_chunks
        if not job.is_cancelled:
            del self._jobs[job.job_id]
            self._finished.append(TierResult(job.job_id, frozenset(job.failed), monotonic() - job.begun))
