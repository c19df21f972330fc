"""Calls that may hang, in threads that hold up nothing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


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
    return asyncio.wrap_future(done)
