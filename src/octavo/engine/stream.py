"""`RequestStream`: what one client has not read yet of its request, between the engine's thread and an event loop.

The engine never waits for a client. What is not read is merged: there is at most one output for each choice, and its
length is bounded by the request's own. Whoever ends before the request does, aborts it.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from octavo.engine.outputs import RequestOutput
from octavo.errors import EngineClosedError


class RequestStream:
    """An asynchronous iterator over a request's outputs; ends when all choices have finished. For one reader."""

    def __init__(self, request_id: str, num_choices: int, abort: Callable[["RequestStream"], None]) -> None:
        self.request_id = request_id
        self.loop = asyncio.get_running_loop()
        self._abort = abort
        self._has_news = asyncio.Event()
        """Touched in the loop only."""
        self._lock = threading.Lock()
        """Guards what follows."""
        self._pending: dict[int, RequestOutput] = {}
        self._num_unfinished = num_choices
        self._error: str | None = None

    # ---- the engine's thread ---------------------------------------------------------------------------------------

    def put(self, output: RequestOutput) -> bool:
        """Adds news. True: the reader may be asleep, and is to be woken (`wake`, in its loop)."""
        with self._lock:
            was_empty = not self._pending
            earlier = self._pending.get(output.index)
            self._pending[output.index] = output if earlier is None else earlier.then(output)
            self._num_unfinished -= output.is_finished
        return was_empty

    def fail(self, error: str) -> None:
        """Nothing more will come."""
        with self._lock:
            self._error = error

    @property
    def is_finished(self) -> bool:
        """Whether the engine has said all there is to say."""
        with self._lock:
            return self._num_unfinished == 0 or self._error is not None

    # ---- the reader ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._has_news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        while True:
            self._has_news.clear()
            with self._lock:
                if self._pending:
                    return self._pending.pop(next(iter(self._pending)))
                if self._error is not None:
                    raise EngineClosedError(self._error)
                if self._num_unfinished == 0:
                    raise StopAsyncIteration
            await self._has_news.wait()

    def close(self) -> None:
        """Aborts the request if it has not finished."""
        if not self.is_finished:
            self._abort(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def wake_all(streams: Iterable[RequestStream]) -> None:
    """Wakes readers of one loop, in it: one call for all news of a step."""
    for stream in streams:
        stream.wake()
