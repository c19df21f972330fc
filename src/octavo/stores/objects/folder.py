"""A folder that machines share: `FolderKeeper` without an engine, `FolderWatch` beside one.

An object is written beside its place as `DIGEST#NUMBER` and then moved there. A writer that is killed in between leaves
that file, which no listing of obstore's shows: no engine finds it, and it would stay for ever.

The folder is walked here, and not by obstore, whose listing fails at one name that is not UTF-8, at a link that leads
nowhere but to itself, and at a folder of somebody else that may not be read (`lost+found`).
"""

import asyncio
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from octavo.stores import StoredItem, StoreDownError
from octavo.stores.objects.keeper import FAMILY, NAME, ObjectsKeeper, Seen
from octavo.tiers import Mount
from octavo.tiers.disk import RecordCipher

_IS_HALF = re.compile(r"#\d+$")
_HALF = re.compile(NAME.pattern + _IS_HALF.pattern)
_WRITING_S = 3600
"""Longer than any write takes. A younger file may be one that is being written."""


class FolderWatch:
    """Sees whether the folder's file system is still mounted. obstore would make the folder anew below it, and engines
    would fill the file system of /, as a store that is shared has no budget of theirs."""

    def __init__(self, folder: Path) -> None:
        self._mount = Mount(folder)
        self._look: asyncio.Future[bool] | None = None

    async def check(self) -> None:
        """StoreDownError if it is not mounted. A network's file system may hang: all wait for one thread then, which
        nothing waits for at the end."""
        if self._look is None or self._look.done():
            loop = asyncio.get_running_loop()
            look = loop.create_future()
            threading.Thread(target=self._look_there, args=(loop, look), name="octavo-folder", daemon=True).start()
            self._look = look
        if not await asyncio.shield(self._look):
            raise StoreDownError("its file system is not mounted")

    def _look_there(self, loop: asyncio.AbstractEventLoop, look: "asyncio.Future[bool]") -> None:
        try:
            is_there = self._mount.is_there
        except OSError:
            is_there = True  # what is wrong is told by whoever reads or writes
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(look.set_result, is_there)


class FolderKeeper(ObjectsKeeper):
    """One folder."""

    def __init__(self, store: Any, url: str, folder: Path, cipher: RecordCipher | None) -> None:
        super().__init__(store, url, cipher)
        self._folder = folder

    def entries(self) -> Iterator[StoredItem | None]:
        """What killed writers have left counts as left behind."""
        yield from super().entries()
        yield from self._halves()

    def read(self, item: StoredItem) -> memoryview | None:
        return None if _HALF.fullmatch(item.name) else super().read(item)

    def delete(self, items: Sequence[StoredItem]) -> None:
        halves = {item.name for item in items if _HALF.fullmatch(item.name)}
        for name in halves:
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()
        if whole := [item for item in items if item.name not in halves]:
            super().delete(whole)

    def now_s(self) -> float:
        """A network's file system has its server's clock."""
        try:
            with TemporaryFile(dir=self._folder) as file:
                return os.fstat(file.fileno()).st_mtime
        except OSError:  # it may only be read, or is full
            return super().now_s()

    def _list_all(self) -> Iterator[Seen]:
        return self._list("")

    def _list(self, folder: str) -> Iterator[Seen]:
        for seen in self._walk(folder):
            if not _IS_HALF.search(seen.path):
                yield seen

    def _list_families(self) -> Sequence[str]:
        return os.listdir(self._folder)  # noqa: PTH208 - names alone

    def _halves(self) -> Iterator[StoredItem]:
        before_s = self.now_s() - _WRITING_S
        for seen in self._walk():
            name = _HALF.fullmatch(seen.path)
            if name is not None and seen.modified_s < before_s:
                family, epoch, namespace, tenant = name.groups()
                yield StoredItem(*seen, family, int(epoch), True, namespace, tenant)

    def _walk(self, folder: str = "") -> Iterator[Seen]:
        """All regular files, whatever their names are, but for those in folders of others that cannot be read."""
        for place, _, files in os.walk(self._folder / folder, onerror=self._pass_over):
            above = Path(place).relative_to(self._folder)
            for file in files:
                with suppress(OSError):  # it is gone by now, or a link that leads nowhere
                    told = Path(place, file).stat()
                    if stat.S_ISREG(told.st_mode):
                        yield Seen(str(above / file), told.st_size, int(told.st_mtime))

    def _pass_over(self, error: OSError) -> None:
        """Raises what keeps engines' own objects from being seen."""
        top = Path(error.filename).relative_to(self._folder).parts[:1]
        is_of_others = top and not FAMILY.fullmatch(top[0])
        if not isinstance(error, FileNotFoundError) and not is_of_others:
            raise error
