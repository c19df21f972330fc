"""`run_async`: `asyncio.run` for commands that Ctrl-C may end, once or twice."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """The first Ctrl-C cancels the work, and is a KeyboardInterrupt when that has ended; the second is one at once."""
    return asyncio.run(_run(work))


async def _run(work: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_exception_handler(_tell)
    return await work


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The second one comes in whatever task runs: asyncio would print its traceback."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)
