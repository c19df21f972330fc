"""A named segment: an arena in shared memory that the processes of one engine map.

    0       header    magic, bytes of a slot, number of slots
    4096    slots

The owner locks the file while it lives; workers only map it. So a file that nobody locks has a dead owner, and the next
owner of the name replaces it. Nothing in a segment outlives its owner.
"""

import fcntl
import mmap
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path

from octavo.errors import InputError, NotEnoughMemoryError
from octavo.host.arena import PAGE_BYTES, HostArena, SlotPlan, populate
from octavo.host.free_memory import tell_of_lack
from octavo.units import format_bytes

_MAGIC = b"OCTARENA"
_HEADER = struct.Struct("<8sQQ")
_SHM = Path("/dev/shm")  # noqa: S108 - files there are opened without following links, and must be ours


class Segment:
    """A named segment that this process owns, until it is closed."""

    def __init__(self, path: Path, arena: HostArena, file: int) -> None:
        self.path = path
        self.arena = arena
        self._file = file

    @classmethod
    def create(cls, name: str, plan: SlotPlan) -> "Segment":
        """An empty segment under this name. The name is refused while another process holds it."""
        path = segment_path(name)
        file = _open_locked(path)
        try:
            if os.fstat(file).st_size:
                # a new file: workers of the dead owner may still map the old one
                path.unlink()
                os.close(file)
                file = _open_locked(path)
            _allocate(path, file, _num_bytes(plan))
            os.pwrite(file, _HEADER.pack(_MAGIC, plan.slot_bytes, plan.num_slots), 0)
            memory = mmap.mmap(file, _num_bytes(plan))
            populate(memory)
        except BaseException:
            os.close(file)
            raise
        return cls(path, _arena(memory, plan), file)

    def close(self) -> None:
        """Unlocks the file. The file itself stays until somebody unlinks it."""
        if self._file < 0:
            return
        fcntl.flock(self._file, fcntl.LOCK_UN)  # the mapping has a handle of its own, which would keep the lock
        os.close(self._file)
        self._file = -1
        self.arena.close()


def attach(name: str) -> HostArena:
    """The arena of a segment that another process owns: for its workers, which use slots as they are told."""
    path = segment_path(name)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise InputError(
            f"there is no segment {path} to attach to ({error.strerror}): start its owner first"
        ) from error
    try:
        _require_ours(path, file)
        magic, slot_bytes, num_slots = _HEADER.unpack(os.pread(file, _HEADER.size, 0).ljust(_HEADER.size, b"\0"))
        plan = SlotPlan(num_slots=num_slots, slot_bytes=slot_bytes)
        if magic != _MAGIC or _num_bytes(plan) != os.fstat(file).st_size:
            raise InputError(f"{path} is no segment that this version knows: start its owner with this version")
        memory = mmap.mmap(file, _num_bytes(plan))
    finally:
        os.close(file)
    return _arena(memory, plan)


def segment_path(name: str) -> Path:
    """A name without a slash is a file in /dev/shm."""
    return Path(name) if "/" in name else _SHM / f"octavo-{name}"


def _num_bytes(plan: SlotPlan) -> int:
    return PAGE_BYTES + plan.num_slots * plan.slot_bytes


def _arena(memory: mmap.mmap, plan: SlotPlan) -> HostArena:
    return HostArena(plan.num_slots, plan.slot_bytes, memory=memory, offset=PAGE_BYTES)


def _open_locked(path: Path) -> int:
    """The locked file that has this name. Another owner may replace the file between the two calls."""
    while True:
        file = _open_and_lock(path)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.lstat()):
                return file
        os.close(file)


def _open_and_lock(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InputError(f"the segment {path} cannot be opened ({error.strerror}): choose another name") from error
    try:
        _require_ours(path, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise InputError(f"another process holds the segment {path}: stop it, or choose another name") from error
    except BaseException:
        os.close(file)
        raise
    return file


def _require_ours(path: Path, file: int) -> None:
    """Anybody who could write to it could make us serve wrong bytes."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InputError(
            f"{path} is not a file that belongs to this user alone (mode {status.st_mode:o}, user {status.st_uid}): "
            "remove it, or choose another name"
        )


def _allocate(path: Path, file: int, num_bytes: int) -> None:
    tell_of_lack(num_bytes, "chunks", "the memory size")
    try:
        os.posix_fallocate(file, 0, num_bytes)  # or a full file system would show as SIGBUS later
    except OSError as error:
        path.unlink()
        raise NotEnoughMemoryError(
            f"{path.parent} has no room for {format_bytes(num_bytes)} of memory ({error.strerror}): lower its size, "
            f"or give {path.parent} more room (a container's is --shm-size)"
        ) from error
