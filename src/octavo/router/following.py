"""How one engine is followed: when it is asked for its health, and the task that takes what it tells."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Self

HEALTH_INTERVAL_S = 1.0
"""How long the router waits after it asked for an engine's health, in the mean; in a large fleet longer."""
_SPREAD = (0.75, 1.25)
"""The pauses differ by so much: engines that were all asked at once would be so each time, while requests wait."""
_PAUSE_PER_ENGINE_S = 0.004
"""The least pause for each engine of the fleet. To ask one takes about 0.8 ms of the router's time, so all of them take
a fifth of it at the most."""


def pause_s(num_engines: int, random: Random) -> float:
    """The next pause before an engine of so many is asked for its health."""
    return max(HEALTH_INTERVAL_S, _PAUSE_PER_ENGINE_S * num_engines) * random.uniform(*_SPREAD)


class Reading:
    """The task that takes what an engine tells, if there is one."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[None, None, None]) -> None:
        self._task = asyncio.create_task(work)

    def check(self) -> None:
        """Raises the error that has ended it."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Whatever has ended it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
