"""The lock of a directory: one engine at a time, and a second one is told who holds it.

It is an flock on `lock`, so it ends with the process that holds it, however that ends: there is no stale lock. A child
that was forked shares it, so an engine that closes unlocks the file, and in a child closing does not. A network's file
system may give the lock of a machine that sleeps to another engine, and tells nobody: so it is taken anew now and then.
"""

import fcntl
import json
import logging
import os
import socket
import time
from contextlib import suppress
from errno import ENOENT
from pathlib import Path

from octavo.errors import MALFORMED, TierError, TierLockedError
from octavo.tiers.disk.io import DiskIO

LOCK_NAME = "lock"
_MOST_BYTES = 1024
_PAUSE_S = 0.1
_log = logging.getLogger(__name__)


class DirectoryLock:
    """Held from construction until `release`. The file names the holder; it stays when the lock is released."""

    def __init__(self, io: DiskIO, directory: Path, *, wait_s: float = 0.0) -> None:
        """Waits up to `wait_s` for another engine to end. TierLockedError names that engine."""
        self._io = io
        self._directory = directory.absolute()
        self._pid = os.getpid()
        self._is_lost = False
        self._fd = self._acquire_in_time(wait_s)

    def check(self) -> None:
        """OSError if the directory was deleted or moved, or if another engine has it: the file was deleted, and the
        engine has locked a new one of the same name, or this one was unlocked. If no engine has it, it is locked
        again."""
        if not self._io.is_at(self._directory):
            raise FileNotFoundError(ENOENT, "the folder was deleted or moved")
        if self._is_current(self._fd):
            self._lock_again()
            return
        try:
            fd = self._acquire()
        except (TierLockedError, TierError) as error:
            raise OSError(0, f"its file {LOCK_NAME!r} was deleted, and {error}") from None
        os.close(self._fd)
        self._fd = fd

    def _lock_again(self) -> None:
        """Changes nothing where the lock is held."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._is_lost = True
            raise OSError(0, f"its lock was lost, and {self._in_use(self._fd)}") from None
        if self._is_lost:
            self._is_lost = False
            _say_who(self._fd)

    def release(self) -> None:
        if os.getpid() == self._pid:
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)

    def _acquire_in_time(self, wait_s: float) -> int:
        deadline, has_tried, has_said = time.monotonic() + wait_s, False, False
        while True:
            try:
                return self._acquire()
            except TierLockedError as error:
                if has_tried and time.monotonic() >= deadline:
                    raise
                has_tried = True  # and once more: `find_holder` may have had it for that moment
                if wait_s and not has_said:
                    _log.warning("disk tier: waits up to %.0f s: %s", wait_s, error)
                    has_said = True
                time.sleep(_PAUSE_S)

    def _acquire(self) -> int:
        while True:
            fd = self._io.open_private(LOCK_NAME, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                in_use = self._in_use(fd)
                os.close(fd)
                raise TierLockedError(in_use) from None
            except OSError as error:
                os.close(fd)
                raise TierError(
                    f"{self._directory} cannot be locked ({error.strerror}): choose a file system with flock"
                ) from error
            if self._is_current(fd):  # else it was deleted between the two calls
                _say_who(fd)
                return fd
            os.close(fd)

    def _in_use(self, fd: int) -> str:
        holder = _holder(fd)
        return f"{self._directory} is in use by {holder}: give each engine a directory of its own, or end that one"

    def _is_current(self, fd: int) -> bool:
        """Whether this file is the one that has the lock's name now."""
        try:
            return os.path.samestat(os.fstat(fd), self._io.status(LOCK_NAME))
        except OSError:
            return False


def find_holder(io: DiskIO) -> str | None:
    """The present holder of the directory, as a text for a person; None if there is none."""
    try:
        fd = io.open_private(LOCK_NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd)
    finally:
        os.close(fd)
    return None


def _say_who(fd: int) -> None:
    holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
    with suppress(OSError):  # a full disk: the lock holds all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, holder.encode()[:_MOST_BYTES], 0)


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, _MOST_BYTES, 0))
        return f"process {int(holder['pid'])} on {holder['host']!s}"
    except (OSError, *MALFORMED, KeyError, TypeError, OverflowError):
        return "another process"
