"""`DiskIO`: every call that reaches the disk, in one small class, so that a test's subclass can make any of them fail,
hang, fall short, flip a bit or end late.

Calls raise OSError and nothing else. They run on the tier's own threads, never on the engine's. Files are named within
one open directory, and only this user's own regular files are opened: a link, a FIFO, or a file that others own or may
write is `NotOursError`.
"""

import errno
import logging
import mmap
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from octavo.tiers.disk.layout import ALIGNMENT
from octavo.tiers.mounts import Mount, device_of

_log = logging.getLogger(__name__)
_PRIVATE_FILE = 0o600
_PRIVATE_DIRECTORY = 0o700
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Follows no link in a file's place, and does not wait for the other end of a FIFO."""

_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""A file system's answer to a call that it does not have."""
_UNTOLD_BYTES = 1 << 62
_OF_THE_PROCESS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


class Space(NamedTuple):
    """The bytes of a file system."""

    free_bytes: int
    """The bytes that this user may still write."""
    all_bytes: int


class NotOursError(OSError):
    """A file or directory that another user could have made or could change."""

    def __init__(self, problem: str, name: str | None = None) -> None:
        super().__init__(errno.EPERM, problem, name)


def check_ours(status: os.stat_result) -> None:
    """NotOursError if another user owns this, or may write to it."""
    if status.st_uid != os.geteuid():
        raise NotOursError(f"it belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise NotOursError(f"other users may write to it (mode {stat.S_IMODE(status.st_mode):o})")


def check_file(status: os.stat_result, *, checks_owner: bool = True) -> None:
    """NotOursError for anything but a regular file of ours."""
    if not stat.S_ISREG(status.st_mode):
        raise NotOursError("it is no regular file")
    if checks_owner:
        check_ours(status)


class DiskIO:
    """Files of one directory, with O_DIRECT where its file system allows."""

    def __init__(self, *, checks_owner: bool = True) -> None:
        """`checks_owner` False also reads other users' files, to inspect them."""
        self.is_direct = True
        """False once the file system has refused O_DIRECT."""
        self._checks_owner = checks_owner
        self._directory = -1
        self._mount: Mount | None = None
        self._num_users = 0
        self._users_lock = Lock()

    # The directory

    def enter(self, path: Path) -> None:
        """Works in this directory until `leave`. The caller makes it if need be."""
        with self._users_lock:
            fd = self._open_directory(path)
            if self._num_users:  # the same, or made again: the number stays, as other threads use it
                os.dup2(fd, self._directory, inheritable=False)
                os.close(fd)
            else:
                self._directory = fd
                self._mount = Mount(path, self.device_of)
            self._num_users += 1

    def leave(self) -> None:
        with self._users_lock:
            self._num_users -= 1
            if not self._num_users:
                os.close(self._directory)
                self._directory = -1

    def __del__(self) -> None:
        if self._directory >= 0:
            os.close(self._directory)

    def make_directory(self, path: Path) -> None:
        try:
            path.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except FileExistsError:  # a file, or a link that leads nowhere
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None

    def renew_directory(self, path: Path) -> None:
        """Works in the directory that has this path now; it is made if it is gone, but never on the file system below
        its own: nobody has given the tier room there."""
        if self._mount is not None and not self._mount.is_there:
            raise FileNotFoundError(errno.ENOENT, "the folder's file system is not mounted")
        self.make_directory(path)
        self.enter(path)
        self.leave()

    def is_at(self, path: Path) -> bool:
        """Whether this path still leads to the directory that is worked in: it may have been deleted or moved."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._directory))  # noqa: PTH116 - beside fstat
        except (FileNotFoundError, NotADirectoryError):
            return False

    def device_of(self, path: Path) -> int:
        return device_of(path)

    def list_files(self) -> dict[str, int]:
        """Regular files and their sizes, but for those that go meanwhile."""
        sizes = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def list_names(self) -> list[str]:
        """The names of everything in the directory."""
        return os.listdir(self._directory)  # noqa: PTH208 - of a descriptor

    def sync_directory(self) -> None:
        try:
            os.fsync(self._directory)
        except OSError as error:  # a file system that cannot, as some in user space, keeps its names as well as it does
            if error.errno not in _CANNOT:
                raise

    def space(self) -> Space:
        """The space of the file system; without a bound if that tells none, as some in user space."""
        found = os.fstatvfs(self._directory)
        if not found.f_blocks:
            return Space(_UNTOLD_BYTES, _UNTOLD_BYTES)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    # Files

    def status(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._directory, follow_symlinks=False)

    def open_private(self, name: str, flags: int) -> int:
        """Opens without O_DIRECT. NotOursError for anything but a regular file of this user alone."""
        try:
            fd = os.open(name, flags | _SAFELY, _PRIVATE_FILE, dir_fd=self._directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise NotOursError("it is no regular file", name) from error
            raise
        try:
            check_file(os.fstat(fd), checks_owner=self._checks_owner)
        except OSError as error:
            error.filename = name
            os.close(fd)
            raise
        return fd

    def open(self, name: str, flags: int) -> int:
        if self.is_direct and hasattr(os, "O_DIRECT"):
            try:
                return self.open_private(name, flags | os.O_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        self.is_direct = False
        return self.open_private(name, flags)

    def close(self, fd: int) -> None:
        os.close(fd)

    def allocate(self, fd: int, num_bytes: int) -> None:
        """Makes the file this long and takes its blocks now, so that a full disk fails here and not at a write."""
        try:
            os.posix_fallocate(fd, 0, num_bytes)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            os.ftruncate(fd, num_bytes)  # a file system that cannot: sizes still keep to the budget

    def truncate(self, fd: int, num_bytes: int) -> None:
        os.ftruncate(fd, num_bytes)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def read(self, fd: int, into: memoryview, offset: int) -> int:
        return os.preadv(fd, [into], offset)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def is_linked(self, fd: int, name: str) -> bool:
        """False if the file was deleted while it was open. Some file systems in user space count no links."""
        opened = os.fstat(fd)
        if opened.st_nlink:
            return True
        with suppress(FileNotFoundError):
            return os.path.samestat(opened, self.status(name))
        return False

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._directory)

    def wall_time_ns(self) -> int:
        """For people; 0, which is unknown, where the clock is before 1970."""
        return max(0, time.time_ns())

    def _open_directory(self, path: Path) -> int:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if self._checks_owner:
                check_ours(os.fstat(fd))
        except OSError:
            os.close(fd)
            raise
        return fd


def as_disk_error(error: Exception) -> OSError:
    """An error that a call should not have raised counts as an error of the disk: threads go on, and the tier is turned
    off."""
    if isinstance(error, OSError):
        return error
    if isinstance(error, MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    _log.error("the disk tier did not expect this", exc_info=error)
    return OSError(errno.EIO, f"{type(error).__name__}: {error}")


def is_of_the_disk(error: OSError) -> bool:
    """Whether an error says something of what is on the disk; False where the process or the machine lacks descriptors
    or memory, and the file is as good as before."""
    return error.errno not in _OF_THE_PROCESS


@contextmanager
def opened(io: DiskIO, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """The descriptor of a file, for use in the block."""
    fd = io.open(name, flags)
    try:
        yield fd
    finally:
        io.close(fd)


def write_all(io: DiskIO, fd: int, data: memoryview, offset: int) -> None:
    """Writes every byte. What a short write left over is tried again while there is progress by whole blocks."""
    done = 0
    while done < len(data):
        written = io.write(fd, data[done:], offset + done) // ALIGNMENT * ALIGNMENT
        if written == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes")
        done += written


def write_zeros(io: DiskIO, fd: int, offset: int, num_bytes: int) -> None:
    write_all(io, fd, AlignedBuffer(num_bytes).view[:num_bytes], offset)


def read_all(io: DiskIO, fd: int, into: memoryview, offset: int) -> int:
    """Reads until `into` is full or the file ends. Returns the number of bytes."""
    done = 0
    while done < len(into):
        got = io.read(fd, into[done:], offset + done)
        done += got
        if got == 0 or done % ALIGNMENT:  # an unaligned end is the end of the file
            break
    return done


def draft_name(name: str) -> str:
    """The name of a file that is being made to replace this one."""
    return f"{name}.tmp"


def replace_file(io: DiskIO, name: str, data: bytes) -> None:
    """Afterwards the file holds these bytes, durably; if this fails, it holds what it held before."""
    block = AlignedBuffer(-(-len(data) // ALIGNMENT) * ALIGNMENT)
    block.view[: len(data)] = data
    draft = draft_name(name)
    fd = io.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(io, fd, block.view, 0)
        io.sync(fd)
    finally:
        with suppress(OSError):
            io.close(fd)
    io.rename(draft, name)
    io.sync_directory()


def read_block(io: DiskIO, name: str) -> bytes:
    """The first 4096 bytes of a file, or fewer if it is shorter."""
    block = AlignedBuffer(ALIGNMENT)
    fd = io.open(name, os.O_RDONLY)
    try:
        return bytes(block.view[: read_all(io, fd, block.view, 0)])
    finally:
        with suppress(OSError):
            io.close(fd)


class AlignedBuffer:
    """Memory that direct I/O may use: a page-aligned mapping of the tier's own, touched before its first use."""

    def __init__(self, num_bytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        self.view = memoryview(mmap.mmap(-1, num_bytes, flags=flags))

    def __len__(self) -> int:
        return len(self.view)
