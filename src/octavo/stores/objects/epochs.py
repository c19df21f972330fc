"""`Epochs`: resets of a shared store. Objects are filed under the epoch in which they were stored.

A reset begins the next epoch with one conditional put; from then on no engine finds what was stored before, and a
collector deletes it. Engines look for a new epoch every few seconds while they ask.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

_LOOKED_EVERY_S = 5.0


class Epochs:
    """The epochs of one family of namespaces."""

    def __init__(self, store: Any, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.current = 0
        self._store = store
        self._folder = f"{folder}/epochs"
        self._clock = clock
        self._look_at = 0.0
        self._lock = asyncio.Lock()
        """Held while the epoch changes."""

    async def refresh(self, *, is_forced: bool = False) -> int:
        """The epoch as known a few seconds ago, or looked up now."""
        async with self._lock:
            if is_forced or self._clock() >= self._look_at:
                self.current = max(self.current, await self._last())
                self._look_at = self._clock() + _LOOKED_EVERY_S
            return self.current

    async def begin_next(self) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        async with self._lock:
            epoch = max(self.current, await self._last()) + 1
            while True:
                try:
                    await obstore.put_async(self._store, f"{self._folder}/{epoch:08d}", b"octavo", mode="create")
                except AlreadyExistsError:  # another engine has begun it, and may have stored in it already
                    epoch += 1
                else:
                    self.current = epoch
                    return

    async def _last(self) -> int:
        import obstore

        last = 0
        async for page in obstore.list(self._store, prefix=self._folder):
            last = max([last, *(int(name) for meta in page if (name := meta["path"].rpartition("/")[2]).isdigit())])
        return last
