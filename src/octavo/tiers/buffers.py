"""A job's buffers in host memory: copied, checked, and left alone once the job is cancelled."""

import threading
from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64_intdigest

from octavo.chunks import Buffers

_SMALL_BYTES = 32 << 10
"""Copied in two microseconds or so."""


class BufferGuard:
    """Permission to touch a job's buffers, until the job is cancelled.

    A thread holds it while it copies bytes, and never during a slow call, so `cancel` returns promptly.
    """

    __slots__ = ("_is_cancelled", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def access(self) -> "BufferGuard":
        """A context: whether the buffers may be touched inside the block."""
        return self

    def __enter__(self) -> bool:
        self._lock.acquire()
        return not self._is_cancelled

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def cancel(self) -> None:
        """Nothing touches the buffers after this."""
        with self._lock:
            self._is_cancelled = True


def total_bytes(buffers: Buffers) -> int:
    return sum(buffer.nbytes for buffer in buffers)


def gather(buffers: Sequence[memoryview], into: memoryview) -> None:
    """Copies pieces one after the other. numpy's copy lets other threads run meanwhile, memoryview's does not."""
    target, at = np.frombuffer(into, np.uint8), 0
    for buffer in buffers:
        piece = np.frombuffer(buffer, np.uint8)
        np.copyto(target[at : at + len(piece)], piece)
        at += len(piece)


def scatter(data: memoryview, buffers: Sequence[memoryview]) -> None:
    """Copies the other way: from one buffer to the pieces; without numpy if they are small, as its call costs more."""
    is_small, at = len(data) < _SMALL_BYTES, 0
    for buffer in buffers:
        end = at + buffer.nbytes
        if is_small:
            buffer.cast("B")[:] = data[at:end]
        else:
            np.copyto(np.frombuffer(buffer, np.uint8), np.frombuffer(data[at:end], np.uint8))
        at = end


def gives_checksum(data: memoryview, checksum: int | None) -> bool:
    """Whether the bytes have `ChunkBytes.checksum`; True if no checksum was taken."""
    return checksum is None or xxh3_64_intdigest(data) == checksum
