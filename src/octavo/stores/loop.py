"""`LoopThread`: one thread that runs an asyncio loop."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_JOIN_S = 5.0


class LoopThread:
    """A thread that starts at once, and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._loop = _Loop()
        self._submitted: weakref.WeakSet[Coroutine[Any, Any, object]] = weakref.WeakSet()
        self._last: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Starts coroutines in the order of the calls. Not after `close`."""
        assert not self._loop.is_closed(), "the thread has ended"
        self._submitted.add(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Cancels all that was submitted, and then runs `last`: a call that loses its connection to `last` would open
        another one. The tasks that those calls have started for themselves are there for `last`, and cancelled after
        it. Takes bounded time; a thread that hangs in a call is left behind."""
        if self._thread.is_alive():
            self._last = last
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._cancel(task for task in asyncio.all_tasks(self._loop) if task.get_coro() in self._submitted)
        if self._last is not None:
            self._loop.run_until_complete(self._last())
        self._cancel(asyncio.all_tasks(self._loop))
        self._loop.close()

    def _cancel(self, tasks: "Iterable[asyncio.Task[Any]]") -> None:
        cancelled = list(tasks)
        for task in cancelled:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*cancelled, return_exceptions=True))


class _Loop(asyncio.SelectorEventLoop):
    """Once it is closed, it ignores calls. A library's own threads may still tell of calls that were cancelled
    when it ended; those of obstore would write their error to stderr, with a traceback."""

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return asyncio.Handle(callback, args, self, context)
