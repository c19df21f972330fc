"""`Epochs`: resets of a shared store. Objects are filed under the epoch in which they were stored.

A reset begins the next epoch with one conditional put; from then on no engine finds what was stored before, and a
collector deletes it. Engines look for a new epoch every few seconds while they ask.

A listing that fails may look empty: obstore takes an answer that is no listing (a page of a proxy, an error with status
200) for one without objects. So that nothing is there is believed when it was told twice, one lookup after the other.

A bucket's lifecycle rule deletes the mark of an epoch that lasts. Without it, engines that start would stay in a former
epoch, and a reset would begin one that others are in already. So an epoch is also told by what is filed under it, and
engines make the mark anew.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from octavo.stores.objects.troubles import is_conflict
from octavo.units import find_count

_LOOKED_EVERY_S = 5.0


class Epochs:
    """The epochs of one family of namespaces."""

    def __init__(self, store: Any, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.current = 0
        self.store = store
        self._family = folder
        self._marks = f"{folder}/epochs"
        self._clock = clock
        self._has_looked = False
        self._was_empty = False
        self._look_at = 0.0
        self._lock = asyncio.Lock()
        """Held while the epoch changes."""

    async def refresh(self, *, is_forced: bool = False) -> int:
        """The epoch as known a few seconds ago, or looked up now."""
        async with self._lock:
            if is_forced or not self._has_looked or self._clock() >= self._look_at:
                await self._look()
                self._look_at = self._clock() + _LOOKED_EVERY_S
            return self.current

    async def begin_next(self) -> None:
        from obstore.exceptions import AlreadyExistsError

        async with self._lock:
            epoch = max(self.current, *await self._last_mark_and_filed()) + 1
            while True:
                try:
                    await self._mark(epoch)
                except AlreadyExistsError as error:  # another engine has begun it, and may have stored in it already
                    if is_conflict(error):
                        raise
                    epoch += 1
                else:
                    self.current = epoch
                    return

    async def _look(self) -> None:
        """One listing, unless the marks may tell too little: at first, and when they tell less than before."""
        marked = await self._last_mark() if self._has_looked else -1
        is_empty = False
        if marked < self.current:
            marked, filed = await self._last_mark_and_filed()
            is_empty = marked == 0 and filed < 0
            self.current = max(self.current, filed)
            if marked < self.current:
                await self._mark_again()
        self.current = max(self.current, marked)
        self._has_looked |= self._was_empty or not is_empty
        self._was_empty = is_empty

    async def _mark_again(self) -> None:
        from obstore.exceptions import BaseError

        with suppress(BaseError, OSError):  # a reader may not write, and another engine may be first
            await self._mark(self.current)

    async def _mark(self, epoch: int) -> None:
        import obstore

        await obstore.put_async(self.store, f"{self._marks}/{epoch:08d}", b"octavo", mode="create")

    async def _last_mark_and_filed(self) -> tuple[int, int]:
        return await asyncio.gather(self._last_mark(), self._last_filed())

    async def _last_filed(self) -> int:
        """The last epoch in which something is stored; -1 if there is nothing at all."""
        import obstore

        found = await obstore.list_with_delimiter_async(self.store, prefix=self._family)
        return max(map(_epoch_of, found["common_prefixes"]), default=-1)

    async def _last_mark(self) -> int:
        import obstore

        last = 0
        async for page in obstore.list(self.store, prefix=self._marks):
            last = max([last, *(_epoch_of(meta["path"]) for meta in page)])
        return last


def _epoch_of(path: str) -> int:
    """The epoch that a mark or a folder names; 0 for what others have put there."""
    return find_count(path.rpartition("/")[2]) or 0
