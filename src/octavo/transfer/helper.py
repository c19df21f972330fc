"""Threads that help with the parts of one job, which copy and hash while the first one does."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Helper:
    """One thread or a few, which begin with the first job that they can help with. Whoever shares a job with them never
    waits for one to come: a helper that is late, busy or closed finds its work done."""

    def __init__(self, name: str, num_threads: int = 1) -> None:
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, name)

    def share(self, work: Callable[[T], None], parts: Iterable[T]) -> None:
        """Does the work for every part, here and on the helpers. When it returns or raises nobody works on a part."""
        left = deque(parts)

        def work_off() -> None:
            while True:
                try:
                    part = left.popleft()
                except IndexError:
                    return
                work(part)

        helping = [self._ask(work_off) for _ in range(min(self._num_threads, len(left) - 1))]
        try:
            work_off()
        finally:
            left.clear()
            busy = [future for future in helping if future is not None and not future.cancel()]
            wait(busy)
        for future in busy:
            future.result()

    def close(self) -> None:
        """The threads end when their work is done."""
        self._pool.shutdown(wait=False)

    def _ask(self, work: Callable[[], None]) -> Future[None] | None:
        with suppress(RuntimeError):  # closed, or the interpreter ends, or the system has no thread
            return self._pool.submit(work)
        return None
