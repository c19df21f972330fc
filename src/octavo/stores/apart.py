"""`Apart`: calls that block for long, which Ctrl-C ends at once: a listing of a store that does not answer, say."""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST_WAIT_S = 0.2
"""A signal that comes just as a wait begins is handled at its end."""


class Apart:
    """Makes each call in a thread of its own, which the end of the process does not wait for. Python handles Ctrl-C
    only between its own instructions: never while a library waits for a server."""

    def __init__(self) -> None:
        self._awaited: dict[Future[Any], None] = {}

    def call(self, function: Callable[..., T], *arguments: object, **named: object) -> T:
        """What the function returns or raises. CancelledError once this is closed."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                result = function(*arguments, **named)
            except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
                with suppress(InvalidStateError):  # nobody waits any more
                    answer.set_exception(error)
            else:
                with suppress(InvalidStateError):
                    answer.set_result(result)

        self._awaited[answer] = None
        Thread(target=run, name="octavo-apart", daemon=True).start()
        try:
            while not answer.done():
                with suppress(TimeoutError):
                    answer.exception(_LONGEST_WAIT_S)
            return answer.result()
        finally:
            self._awaited.pop(answer, None)

    def close(self) -> None:
        """Ends the waiting of other threads."""
        for answer in list(self._awaited):
            answer.cancel()
