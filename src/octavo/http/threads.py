"""Calls that may hang, in threads that hold up nothing."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from octavo.http.errors import overloaded

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_MOST_LEFT_BEHIND = 2
"""Threads that may still be at work for requests that were refused. Meanwhile each takes a core."""


class PatientCalls:
    """Calls of one kind. A few of them take minutes or more, and nothing can stop these. After some time the request is
    refused and its thread left behind, which holds up neither other calls nor the end of the process."""

    def __init__(self, *, name: str, at_once: int) -> None:
        """`name` is a noun, such as `grammar`."""
        self._name = name
        self._turn = asyncio.Semaphore(at_once)
        self._left_behind: set[asyncio.Future[Any]] = set()

    async def run(self, call: Callable[[], T], *, patience_s: float) -> T:
        """The call's result. Raises TimeoutError if it takes longer; ApiError while others are left behind."""
        async with self._turn:
            await self._wait_for_a_thread(patience_s)
            running = run_apart(call, name=f"octavo-{self._name.replace(' ', '-')}")
            try:
                await asyncio.wait([running], timeout=patience_s)
            finally:
                if not running.done():
                    self._leave_behind(running)
        if not running.done():
            raise TimeoutError
        return running.result()

    async def _wait_for_a_thread(self, patience_s: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience_s
        while len(self._left_behind) >= _MOST_LEFT_BEHIND:
            if clock() >= deadline:
                raise overloaded(f"the server is still at work on a {self._name} that takes too long; try again later")
            wait_s = deadline - clock()
            await asyncio.wait(self._left_behind, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)

    def _leave_behind(self, running: "asyncio.Future[Any]") -> None:
        self._left_behind.add(running)
        running.add_done_callback(self._left_behind.discard)
        _logger.info("a %s still takes a thread after its request has ended", self._name)


def run_apart(call: Callable[[], T], *, name: str) -> "asyncio.Future[T]":
    """Runs the call in a new thread. Unlike threads of an executor it does not hold up the end of the process."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # nobody can take the call back

    def run() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it
            done.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    ending = asyncio.wrap_future(done)
    ending.add_done_callback(take_error)
    return ending


def take_error(ended: "asyncio.Future[Any]") -> None:
    """For `add_done_callback`, where callers may leave: asyncio would log an error that nobody asks for."""
    if not ended.cancelled():
        ended.exception()
