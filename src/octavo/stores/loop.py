"""`LoopThread`: one thread that runs an asyncio loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_JOIN_S = 5.0


class LoopThread:
    """A thread that starts at once, and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._last: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Starts coroutines in the order of the calls."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Cancels all that runs, and then runs `last`: a call that loses its connection to `last` would open another
        one. Takes bounded time; a thread that hangs in a call is left behind."""
        if self._thread.is_alive():
            self._last = last
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        if self._last is not None:
            self._loop.run_until_complete(self._last())
        self._loop.close()
