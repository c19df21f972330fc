r"""Threads that each run transfers one after the other, and what became of each.

submitted --> running --> ended --get_finished--> reported          each job once, whatever happens to it
    \_______ refused: too many, or closed _____/
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from time import monotonic, perf_counter
from typing import NamedTuple

from octavo.chunks import TransferResult
from octavo.errors import InvalidTransferError
from octavo.transfer.worker import OffloadingWorker

_log = logging.getLogger(__name__)

MAX_JOBS = 1024
CLOSE_TIMEOUT_S = 10.0


class Outcome(NamedTuple):
    """What a job has to say when it ends."""

    failed: frozenset[int] = frozenset()
    checksums: Sequence[int] = ()
    seconds: float | None = None


class _Job(NamedTuple):
    job_id: int
    num_chunks: int
    work: Callable[[], Outcome]


class JobRunner:
    """Named threads with a queue each. At most `max_jobs` have not ended, on all together; one more fails at once: a
    store is dropped, a load is a miss, and the caller never waits. What a job raises is a failure of all its chunks."""

    def __init__(self, *names: str, max_jobs: int) -> None:
        self._max_jobs = max_jobs
        self._queues: dict[str, SimpleQueue[_Job | None]] = {name: SimpleQueue() for name in names}
        self._changed = Condition()  # guards what follows
        self._unended: dict[int, _Job] = {}
        self._finished: list[TransferResult] = []
        self._is_closed = False
        self._has_warned = False
        self._threads = [
            Thread(target=self._run, args=(queue,), name=f"octavo-{name}", daemon=True)
            for name, queue in self._queues.items()
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job_id: int, num_chunks: int, work: Callable[[], Outcome], *, thread: str | None) -> None:
        """Runs the work on that thread; with None on the caller's, before it returns."""
        job = _Job(job_id, num_chunks, work)
        with self._changed:
            if job_id in self._unended:
                raise InvalidTransferError(f"job {job_id} has not ended yet; give each job a number of its own")
            is_refused = self._is_closed or len(self._unended) >= self._max_jobs
            self._unended[job_id] = job
        if is_refused:
            self._end(job, _all_failed(job))
        elif thread is None:
            self._end(job, self._outcome(job))
        else:
            self._queues[thread].put(job)

    def get_finished(self) -> list[TransferResult]:
        with self._changed:
            finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._unended.keys().isdisjoint(job_ids), timeout_s)

    def wait_any(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._finished or not self._unended, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Fails what is queued, lets what is running end, and gives up on what does not in time. Returns whether
        no thread is at work any more."""
        with self._changed:
            self._is_closed = True
        for queue in self._queues.values():
            with suppress(Empty):
                while job := queue.get_nowait():
                    self._end(job, _all_failed(job))
            queue.put(None)
        end = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))
        with self._changed:
            given_up = list(self._unended.values())
        for job in given_up:
            self._end(job, _all_failed(job))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, queue: "SimpleQueue[_Job | None]") -> None:
        while job := queue.get():
            self._end(job, self._outcome(job))

    def _outcome(self, job: _Job) -> Outcome:
        began = perf_counter()
        try:
            return job.work()._replace(seconds=perf_counter() - began)
        except Exception:  # noqa: BLE001 - whatever a device does wrong ends the job, never the thread
            if not self._has_warned:
                self._has_warned = True
                _log.exception("transfer %d failed; further failures are reported, not logged", job.job_id)
            return _all_failed(job)

    def _end(self, job: _Job, outcome: Outcome) -> None:
        with self._changed:
            if self._unended.get(job.job_id) is not job:
                return  # given up before
            del self._unended[job.job_id]
            self._finished.append(TransferResult(job.job_id, outcome.failed, outcome.checksums, outcome.seconds))
            self._changed.notify_all()


class JobWorker(OffloadingWorker):
    """A worker whose transfers are the jobs of a `JobRunner`."""

    def __init__(self, jobs: JobRunner) -> None:
        self._jobs = jobs

    def get_finished(self) -> list[TransferResult]:
        return self._jobs.get_finished()

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        return self._jobs.wait(job_ids, timeout_s)

    def wait_any(self, timeout_s: float) -> None:
        self._jobs.wait_any(timeout_s)


def _all_failed(job: _Job) -> Outcome:
    return Outcome(failed=frozenset(range(job.num_chunks)))
