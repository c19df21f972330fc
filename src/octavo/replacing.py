"""`replacing`: a file is replaced whole or not at all."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A new file, to be written in the block. At the block's end it takes the place of the file at `path`; if the block
    fails, that file stays and no other is left. Only this user may read it, unless `mode` says more. It is not synced:
    after a loss of power the file may be empty. The disk tier, whose files must outlive that, has a way of its own."""
    draft = path.with_name(f"{path.name}.{threading.get_native_id()}.tmp")
    draft.unlink(missing_ok=True)  # in a container a process that was killed here had the same number
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "r+b") as file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
