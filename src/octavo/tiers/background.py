"""One thread that does a tier's jobs, one after the other, and lets go of a job's buffers at once when told to."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np
from xxhash import xxh3_64

from octavo.chunks import Buffers

logger = logging.getLogger(__name__)
T = TypeVar("T")


def gives_checksum(buffers: Buffers, checksum: int | None) -> bool:
    """Whether the bytes are what `ChunkBytes.checksum` says; True where nothing is known."""
    if checksum is None:
        return True
    digest = xxh3_64()
    for buffer in buffers:
        digest.update(buffer)
    return digest.intdigest() == checksum


class BufferGuard:
    """Leave to touch a job's buffers, until the job is cancelled.

    It is held while bytes are copied, never while anything slow goes on, so that `cancel` returns promptly.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False

    @contextmanager
    def access(self) -> Iterator[bool]:
        """Whether the buffers may be touched within."""
        with self._lock:
            yield not self._is_cancelled

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True


class BackgroundJobs(Generic[T]):
    """At most `most_jobs` jobs that wait, run or wait to be taken. A job that raises has the result None."""

    def __init__(self, name: str, most_jobs: int) -> None:
        self._name = name
        self._most_jobs = most_jobs
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, BufferGuard, Callable[[BufferGuard], T]]] = deque()
        self._guards: dict[int, BufferGuard] = {}
        """Of jobs that wait or run, and were not cancelled."""
        self._done: list[tuple[int, T | None]] = []
        self._is_running = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=f"octavo-{name}", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        return len(self._guards) + len(self._done) >= self._most_jobs

    def submit(self, job_id: int, run: Callable[[BufferGuard], T]) -> None:
        """The caller has seen that it is not full."""
        guard = BufferGuard()
        with self._changed:
            self._guards[job_id] = guard
            self._waiting.append((job_id, guard, run))
            self._changed.notify_all()

    def cancel(self, job_id: int) -> None:
        """After this the job's buffers are not touched, and it is not among those done."""
        with self._changed:
            guard = self._guards.pop(job_id, None)
            self._done = [done for done in self._done if done[0] != job_id]
        if guard is not None:
            guard.cancel()

    def take_done(self) -> list[tuple[int, T | None]]:
        with self._changed:
            done, self._done = self._done, []
        return done

    def wait_idle(self, timeout_s: float) -> bool:
        """Blocks until nothing waits or runs, or time is up: False."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_running, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Ends the thread after the job that runs; jobs that wait are not done."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job_id, guard, run = job
            result = None
            try:
                result = run(guard)
            except Exception:
                logger.exception("%s: a job failed", self._name)
            del job, run  # they hold buffers
            with self._changed:
                self._is_running = False
                if self._guards.pop(job_id, None) is not None:
                    self._done.append((job_id, result))
                self._changed.notify_all()

    def _next(self) -> tuple[int, BufferGuard, Callable[[BufferGuard], T]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            self._is_running = True
            return self._waiting.popleft()


def copy_bytes(source: Buffers, target: Buffers) -> None:
    """Copies all of the source, however both are cut; other threads go on meanwhile. The target is as long."""
    targets = iter(target)
    room = memoryview(b"")
    for piece in source:
        left = piece
        while len(left):
            if not room:
                room = next(targets)
            length = min(len(left), len(room))
            np.copyto(np.frombuffer(room[:length], np.uint8), np.frombuffer(left[:length], np.uint8))
            left, room = left[length:], room[length:]


def total_bytes(buffers: Buffers) -> int:
    return sum(len(buffer) for buffer in buffers)


def all_places(num_chunks: int) -> frozenset[int]:
    return frozenset(range(num_chunks))
