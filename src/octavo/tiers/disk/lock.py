"""The lock of a directory: one engine at a time, and a second one is told who holds it.

It is an flock on `lock`, so it ends with the process that holds it, however that ends: there is no stale lock.
"""

import fcntl
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from octavo.errors import TierError, TierLockedError

LOCK_NAME = "lock"
_MOST_BYTES = 1024


class DirectoryLock:
    """Held from construction until `release`. The file says who holds it; it stays when the lock is released."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._fd = _acquire(self._path)

    def is_current(self) -> bool:
        """False if the file was deleted, so that somebody else could lock another one of that name."""
        return _is_at(self._fd, self._path)

    def renew(self) -> None:
        """Locks the file of today, if it is not the one that is held."""
        if not self.is_current():
            fd = _acquire(self._path)
            os.close(self._fd)
            self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


def find_holder(directory: Path) -> str | None:
    """Who holds the directory now, for a person; None if nobody does."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd)
    finally:
        os.close(fd)
    return None


def _acquire(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
            raise TierLockedError(
                f"{path.parent} is in use by {holder}: give each engine a directory of its own, or end that one"
            ) from None
        except OSError as error:
            os.close(fd)
            raise TierError(
                f"{path.parent} cannot be locked ({error.strerror}): choose a file system with flock"
            ) from error
        if _is_at(fd, path):  # else it was deleted between the two calls
            _say_who(fd)
            return fd
        os.close(fd)


def _say_who(fd: int) -> None:
    holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
    with suppress(OSError):  # a full disk: the lock holds all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, holder.encode()[:_MOST_BYTES], 0)


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, _MOST_BYTES, 0))
        return f"process {int(holder['pid'])} on {holder['host']!s}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False
