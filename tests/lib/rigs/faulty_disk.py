"""`FaultyDiskIO`: a disk that fails, hangs, writes short or flips a bit when it is told to."""

import errno as errno_
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from octavo.tiers.disk import DiskIO, Space, layout

_LONGEST_HANG_S = 60.0


class Gate:
    """A call that hangs until it is let through."""

    def __init__(self) -> None:
        self.is_entered = Event()
        self._is_open = Event()

    def wait_for_call(self) -> None:
        assert self.is_entered.wait(_LONGEST_HANG_S), "nobody has called"

    def pass_through(self) -> None:
        self.is_entered.set()
        self._is_open.wait(_LONGEST_HANG_S)

    def release(self) -> None:
        self._is_open.set()


class FaultyDiskIO(DiskIO):
    """Faults are by the name of the call, and stay until they are healed. Their number is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.num_faults = 0
        self.writes_short = False
        self.flips_a_bit = False
        self.writes_fail_from: int | None = None
        """Writes behind so many bytes of a file fail."""
        self.capacity_bytes: int | None = None
        """Of a file system that has nothing but the tier's files."""
        self.quota_bytes: int | None = None
        """What the file system grants the tier's user, and does not tell."""
        self.mount: Path | None = None
        """What lies there is on a file system of its own."""
        self._errors: dict[str, Exception] = {}
        self._gates: dict[str, Gate] = {}

    def fail(self, *calls: str, errno: int) -> None:
        self._errors |= dict.fromkeys(calls, OSError(errno, os.strerror(errno)))

    def surprise(self, *calls: str) -> None:
        """They raise what nobody expects of a disk."""
        self._errors |= dict.fromkeys(calls, ValueError("surprise"))

    def heal(self) -> None:
        self._errors = {}
        self.writes_short = self.flips_a_bit = False
        self.writes_fail_from = None

    @contextmanager
    def hanging(self, call: str) -> Iterator[Gate]:
        """The calls of this name hang; at the end they end late, as if nothing had been."""
        gate = self._gates[call] = Gate()
        try:
            yield gate
        finally:
            del self._gates[call]
            gate.release()

    def open(self, name: str, flags: int) -> int:
        self._enter("open")
        return super().open(name, flags)

    def allocate(self, fd: int, num_bytes: int) -> None:
        self._enter("allocate")
        grows_by = num_bytes - os.fstat(fd).st_size
        if self.capacity_bytes is not None and grows_by > self.space().free_bytes:
            self.num_faults += 1
            raise OSError(errno_.ENOSPC, os.strerror(errno_.ENOSPC))
        if self.quota_bytes is not None and sum(self.list_files().values()) + grows_by > self.quota_bytes:
            self.num_faults += 1
            raise OSError(errno_.EDQUOT, os.strerror(errno_.EDQUOT))
        super().allocate(fd, num_bytes)

    def space(self) -> Space:
        if self.capacity_bytes is None:
            return super().space()
        return Space(self.capacity_bytes - sum(self.list_files().values()), self.capacity_bytes)

    def device_of(self, path: Path) -> int:
        is_own = self.mount is not None and path.is_relative_to(self.mount)
        return -1 if is_own else super().device_of(path)

    def truncate(self, fd: int, num_bytes: int) -> None:
        self._enter("truncate")
        super().truncate(fd, num_bytes)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        self._enter("write")
        if self.writes_fail_from is not None and offset >= self.writes_fail_from:
            self.num_faults += 1
            raise OSError(errno_.EIO, os.strerror(errno_.EIO))
        if self.writes_short:
            self.num_faults += 1
            data = data[: layout.ALIGNMENT]
        return super().write(fd, data, offset)

    def read(self, fd: int, into: memoryview, offset: int) -> int:
        self._enter("read")
        num_bytes = super().read(fd, into, offset)
        if self.flips_a_bit and num_bytes:
            self.num_faults += 1
            into[num_bytes // 3] ^= 4
        return num_bytes

    def sync(self, fd: int) -> None:
        self._enter("sync")
        super().sync(fd)

    def unlink(self, name: str) -> None:
        self._enter("unlink")
        super().unlink(name)

    def _enter(self, call: str) -> None:
        gate = self._gates.get(call)
        if gate is not None:
            self.num_faults += 1
            gate.pass_through()
        error = self._errors.get(call)
        if error is not None:
            self.num_faults += 1
            raise error
