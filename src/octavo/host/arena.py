"""The host arena: one preallocated piece of memory, cut into equal slots.

Memory is mapped and populated once, ahead: first touch costs 15 times a copy (7 times with huge pages). An arena is the
process's own, or lies in a named segment (`octavo.host.segment`) that other processes map.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.chunks import GroupOffloadConfig
from octavo.errors import NotEnoughMemoryError
from octavo.host.free_memory import tell_of_lack
from octavo.ids import Slot
from octavo.specs import ceil_div
from octavo.units import format_bytes

PAGE_BYTES = 4096
"""Slots are multiples of it: what O_DIRECT asks of addresses and lengths."""
BOOKKEEPING_BYTES_PER_SLOT = 512
"""What index, slot table and eviction policy take for a chunk of one slot, rounded up: see docs/decisions/0008."""
_MOST_EXTRA_WASTE = 1 / 16
"""Rounding a chunk up to whole slots may cost 1/16 more than rounding it up to pages does."""
_MADV_POPULATE_WRITE = 23
"""Linux 5.14; Python 3.11 has no name for it."""

Bytes2D = npt.NDArray[np.uint8]


class HostArena:
    """`num_slots` slots of `slot_bytes` each, as one array and as buffers for I/O."""

    def __init__(self, num_slots: int, slot_bytes: int, *, memory: mmap.mmap | None = None, offset: int = 0) -> None:
        """Allocates the memory, or takes it from `memory`, beginning at `offset`."""
        self.num_slots = num_slots
        self.slot_bytes = slot_bytes
        self._memory = memory or allocate(num_slots * slot_bytes)
        self._offset = offset
        self._bytes = memoryview(self._memory)[offset : offset + num_slots * slot_bytes]
        self.view: Bytes2D = np.frombuffer(self._bytes, dtype=np.uint8).reshape(num_slots, slot_bytes)
        """Row i is slot i."""

    @property
    def num_bytes(self) -> int:
        return self.num_slots * self.slot_bytes

    def buffers(self, slots: Sequence[Slot], num_bytes: int) -> list[memoryview]:
        """The first `num_bytes` in these slots, in order; slots that follow each other make one buffer."""
        buffers: list[memoryview] = []
        first, count, left = slots[0], 0, num_bytes
        for slot in (*slots, Slot(-1)):
            if slot == first + count:
                count += 1
                continue
            length = min(left, count * self.slot_bytes)
            buffers.append(self._bytes[first * self.slot_bytes : first * self.slot_bytes + length])
            left -= length
            first, count = slot, 1
        return buffers

    def after(self, first: int) -> "HostArena":
        """The same memory from slot `first` on."""
        offset = self._offset + first * self.slot_bytes
        return HostArena(self.num_slots - first, self.slot_bytes, memory=self._memory, offset=offset)

    def close(self) -> None:
        """Gives the memory back, as soon as nobody uses a piece of it any more."""
        self.view = np.empty((0, self.slot_bytes), dtype=np.uint8)
        with suppress(BufferError):  # somebody still holds a buffer; its end will be the memory's
            self._bytes.release()
            self._memory.close()


def allocate(num_bytes: int) -> mmap.mmap:
    """Zeroed memory of this process alone, in huge pages where the system gives them, every page present."""
    tell_of_lack(num_bytes, "chunks", "the memory size")
    try:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        populate(memory)
    except (OSError, OverflowError) as error:
        raise NotEnoughMemoryError(
            f"the system did not give {format_bytes(num_bytes)} of memory to keep chunks in ({error}): lower the "
            "memory size"
        ) from error
    return memory


def populate(memory: mmap.mmap) -> None:
    """Makes every page present now. MemoryError and the like come as OSError here, not as a signal later."""
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    try:
        memory.madvise(_MADV_POPULATE_WRITE)
    except OSError as error:
        if error.errno not in _NOT_KNOWN:
            raise
        np.frombuffer(memory, dtype=np.uint8)[::PAGE_BYTES] |= 0


_NOT_KNOWN = (22, 38)
"""EINVAL, ENOSYS: an older kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """How a budget of memory is cut into slots."""

    num_slots: int
    slot_bytes: int


def plan_slots(
    groups: Sequence[GroupOffloadConfig], memory_bytes: int, *, note_bytes: int = 0, other_bytes: int = 0
) -> SlotPlan:
    """Large slots that waste little, and as many as fit into the budget.

    "Little" is at most 1/16 of each group's chunk, beyond what slots of one page would waste; of slots at least half as
    large as that allows, those that waste least over all groups. What counts against the budget: the bookkeeping in the
    process, `note_bytes` for each slot, which take the place of some slots, and `other_bytes`. The arena holds at least
    the largest chunk.
    """
    chunk_sizes = sorted({group.chunk_bytes for group in groups if group.chunk_bytes})
    slot_bytes = _slot_bytes(chunk_sizes)
    bytes_per_slot = slot_bytes + BOOKKEEPING_BYTES_PER_SLOT
    largest = ceil_div(chunk_sizes[-1], slot_bytes)
    num_slots = max(0, memory_bytes - other_bytes) // bytes_per_slot
    num_slots -= ceil_div(num_slots * note_bytes, slot_bytes)
    if num_slots < largest:
        needed = (largest + ceil_div(largest * note_bytes, slot_bytes - note_bytes)) * bytes_per_slot + other_bytes
        raise NotEnoughMemoryError(
            f"{format_bytes(memory_bytes)} of memory holds {num_slots} slots of {format_bytes(slot_bytes)}; the "
            f"largest chunk takes {largest}: give it {ceil_div(needed, 1 << 20)} MiB or more"
        )
    return SlotPlan(num_slots=num_slots, slot_bytes=slot_bytes)


def _slot_bytes(chunk_sizes: Sequence[int]) -> int:
    pages = np.arange(1, ceil_div(chunk_sizes[-1], PAGE_BYTES) + 1, dtype=np.int64)
    waste = np.zeros(len(pages))
    fits = np.ones(len(pages), dtype=np.bool_)
    for size in chunk_sizes:
        chunk_pages = ceil_div(size, PAGE_BYTES)
        extra = -(-chunk_pages // pages) * pages / chunk_pages - 1
        fits &= extra <= _MOST_EXTRA_WASTE
        waste += extra
    largest = pages[fits][-1]
    waste[~fits | (pages * 2 < largest)] = np.inf
    best = np.flatnonzero(waste == waste.min())[-1]
    return int(pages[best]) * PAGE_BYTES
