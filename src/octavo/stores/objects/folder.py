"""`FolderKeeper`: a folder that machines share, without an engine.

An object is written beside its place as `DIGEST#NUMBER` and then moved there. A writer that is killed in between leaves
that file, which no listing of obstore's shows: no engine finds it, and it would stay for ever.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from octavo.stores import StoredItem
from octavo.stores.objects.keeper import NAME, ObjectsKeeper
from octavo.tiers.disk import RecordCipher

_HALF = re.compile(rf"{NAME.pattern}#\d+")
_WRITING_S = 3600
"""Longer than any write takes. A younger file may be one that is being written."""


class FolderKeeper(ObjectsKeeper):
    """One folder."""

    def __init__(self, store: Any, url: str, folder: Path, cipher: RecordCipher | None = None) -> None:
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

    def _halves(self) -> Iterator[StoredItem]:
        before_s = time.time() - _WRITING_S
        for place, _, files in os.walk(self._folder):
            for file in files:
                path = Path(place) / file
                name = _HALF.fullmatch(str(path.relative_to(self._folder)))
                if name is None:
                    continue
                with suppress(FileNotFoundError):  # it is whole by now
                    told = path.stat()
                    if told.st_mtime < before_s:
                        family, epoch, namespace, tenant = name.groups()
                        seen = (name[0], told.st_size, int(told.st_mtime))
                        yield StoredItem(*seen, family, int(epoch), True, namespace, tenant)
