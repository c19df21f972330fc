"""`RequestStream`: a request's outputs that its client has not read yet, from the engine's thread to an event loop.

The engine never waits for a client. Unread outputs are merged, and the request bounds their length. Of each choice
there is a run of them, each longer than the next:

    lengths in tokens     8, 2, 1     and one more:  8, 2, 1, 1  ->  8, 2, 2  ->  8, 4

So an output is copied about as often as the length of the run, which is that of a binary number, and not for each later
one. A reader who leaves early aborts the request.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from octavo.engine.outputs import RequestOutput
from octavo.errors import EngineClosedError


class RequestStream:
    """An asynchronous iterator over a request's outputs, for one reader. It ends when all choices have finished."""

    def __init__(self, request_id: str, num_choices: int, abort: Callable[["RequestStream"], None]) -> None:
        self.request_id = request_id
        self.loop = asyncio.get_running_loop()
        self._abort = abort
        self._has_news = asyncio.Event()
        """Touched only in the loop."""
        self._lock = threading.Lock()
        """Guards all attributes below."""
        self._pending: dict[int, list[RequestOutput]] = {}
        """The run of each choice, if it has one."""
        self._num_unfinished = num_choices
        self._error: str | None = None

    # ---- the engine's thread ---------------------------------------------------------------------------------------

    def put(self, output: RequestOutput) -> bool:
        """Adds outputs. True if the reader may be asleep: then `wake` is to be called in its loop."""
        with self._lock:
            was_empty = not self._pending
            _append(self._pending.setdefault(output.index, []), output)
            self._num_unfinished -= output.is_finished
        return was_empty

    def fail(self, error: str) -> None:
        """Ends the stream with an error."""
        with self._lock:
            self._error = error

    @property
    def is_finished(self) -> bool:
        """Whether all outputs have been put."""
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
                    return _merge(self._pending.pop(next(iter(self._pending))))
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
    """Wakes the readers of one loop, called in it once for all outputs of a step."""
    for stream in streams:
        stream.wake()


def _append(run: list[RequestOutput], output: RequestOutput) -> None:
    while run and len(run[-1].token_ids) <= len(output.token_ids):
        output = run.pop().then(output)
    run.append(output)


def _merge(run: list[RequestOutput]) -> RequestOutput:
    merged = run.pop()
    while run:
        merged = run.pop().then(merged)
    return merged
