"""Files that a process locks while it lives. What nobody locks is what dead processes left."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

YOUNGEST_S = 60.0
"""A younger one may belong to a process that has not locked it yet."""
_LOCK = ".octavo-lock"


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is deleted at the end, and that holds a lock's file until then. What killed processes left under
    this prefix is deleted at the beginning; a folder without such a file is somebody's own, and stays."""
    for path in find_old(Path(gettempdir()), prefix):
        if is_unlocked(path / _LOCK):
            shutil.rmtree(path, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix) as name:
        lock = os.open(Path(name, _LOCK), os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with suppress(OSError):  # without locks no one is found unlocked either
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def find_old(folder: Path, prefix: str, older_than_s: float = YOUNGEST_S) -> list[Path]:
    """This user's files and folders of that prefix that nobody is just beginning to use."""
    return [path for path in folder.glob(f"{prefix}*") if _is_ours(path, older_than_s)]


def is_unlocked(path: Path) -> bool:
    """Whether this file is there and no process locks it. False where that cannot be known."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _is_ours(path: Path, older_than_s: float) -> bool:
    with suppress(OSError):
        status = path.lstat()
        age_s = abs(time.time() - status.st_mtime)  # the clock that dated it may have been ahead, and was set back
        return status.st_uid == os.geteuid() and age_s >= older_than_s
    return False
