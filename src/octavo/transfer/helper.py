"""A second thread for the parts of one job, which copies and hashes while the first one does."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Helper:
    """One thread, which begins with the first job that it can help with. Whoever shares a job with it never waits for
    it to come: a helper that is late, busy or closed finds its work done."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)

    def share(self, work: Callable[[T], None], parts: Iterable[T]) -> None:
        """Does the work for every part, here and on the helper. When it returns or raises nobody works on a part."""
        left = deque(parts)

        def work_off() -> None:
            while True:
                try:
                    part = left.popleft()
                except IndexError:
                    return
                work(part)

        helping = self._ask(work_off) if len(left) > 1 else None
        try:
            work_off()
        finally:
            left.clear()
            if helping is not None and not helping.cancel():
                helping.result()

    def close(self) -> None:
        """The thread ends when its work is done."""
        self._pool.shutdown(wait=False)

    def _ask(self, work: Callable[[], None]) -> Future[None] | None:
        with suppress(RuntimeError):  # closed, or the interpreter ends, or the system has no thread
            return self._pool.submit(work)
        return None
