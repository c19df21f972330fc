"""`DiskIO`: every call that reaches the disk, in one small class, so that a test's subclass can make any of them fail,
hang, fall short, flip a bit or end late.

Calls raise OSError and nothing else. They run on the tier's own threads, never on the engine's.
"""

import errno
import logging
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path

from octavo.tiers.disk.layout import ALIGNMENT

_log = logging.getLogger(__name__)
_PRIVATE_FILE = 0o600
_PRIVATE_DIRECTORY = 0o700


class DiskIO:
    """Files of one directory, with O_DIRECT where its file system allows."""

    def __init__(self) -> None:
        self.is_direct = True
        """False once the file system has refused O_DIRECT."""

    def make_directory(self, directory: Path) -> None:
        directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)

    def list_files(self, directory: Path) -> dict[str, int]:
        """Regular files and their sizes."""
        with os.scandir(directory) as entries:
            return {e.name: e.stat(follow_symlinks=False).st_size for e in entries if e.is_file(follow_symlinks=False)}

    def open(self, path: Path, flags: int) -> int:
        if self.is_direct and hasattr(os, "O_DIRECT"):
            try:
                return os.open(path, flags | os.O_DIRECT, _PRIVATE_FILE)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        self.is_direct = False
        return os.open(path, flags, _PRIVATE_FILE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def allocate(self, fd: int, num_bytes: int) -> None:
        """Makes the file this long and takes its blocks now, so that a full disk shows here and not at a write."""
        try:
            os.posix_fallocate(fd, 0, num_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
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

    def sync_directory(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def is_linked(self, fd: int) -> bool:
        """False if the file was deleted under us."""
        return os.fstat(fd).st_nlink > 0

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def wall_time_ns(self) -> int:
        return time.time_ns()


def as_disk_error(error: Exception) -> OSError:
    """What a call should not have raised is an error of the disk too: threads go on, and the tier is turned off."""
    if isinstance(error, OSError):
        return error
    _log.error("the disk tier did not expect this", exc_info=error)
    return OSError(errno.EIO, f"{type(error).__name__}: {error}")


def write_all(io: DiskIO, fd: int, data: memoryview, offset: int) -> None:
    """Writes every byte. What a short write left over is tried again while it makes progress by whole blocks."""
    done = 0
    while done < len(data):
        written = io.write(fd, data[done:], offset + done) // ALIGNMENT * ALIGNMENT
        if written == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes")
        done += written


def read_all(io: DiskIO, fd: int, into: memoryview, offset: int) -> int:
    """Reads until `into` is full or the file ends; how many bytes there were."""
    done = 0
    while done < len(into):
        got = io.read(fd, into[done:], offset + done)
        done += got
        if got == 0 or done % ALIGNMENT:  # an unaligned end is the end of the file
            break
    return done


def replace_file(io: DiskIO, path: Path, data: bytes) -> None:
    """The file holds these bytes, durably, or what it held before."""
    block = AlignedBuffer(-(-len(data) // ALIGNMENT) * ALIGNMENT)
    block.view[: len(data)] = data
    temporary = path.with_suffix(".tmp")
    fd = io.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(io, fd, block.view, 0)
        io.sync(fd)
    finally:
        with suppress(OSError):
            io.close(fd)
    io.rename(temporary, path)
    io.sync_directory(path.parent)


def read_block(io: DiskIO, path: Path) -> bytes:
    """The first 4096 bytes of a file, or what there is of them."""
    block = AlignedBuffer(ALIGNMENT)
    fd = io.open(path, os.O_RDONLY)
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
