"""The arena that the scheduler's process and those of all ranks share.

    notes                 one byte for each slot and rank: 1 if the rank failed to write or read it
    slot 0   [rank 0 | rank 1 | ...]
    slot 1   [rank 0 | rank 1 | ...]        the scheduler sees slots, a rank its part of each

The scheduler owns the segment. Its name is removed as soon as all ranks have mapped it, so that nothing stays behind
however the processes end.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from octavo.chunks import GroupOffloadConfig
from octavo.errors import NotEnoughMemoryError
from octavo.host import PAGE_BYTES, HostArena, Segment, SlotPlan, attach, plan_slots
from octavo.specs import ceil_div

Bytes2D = npt.NDArray[np.uint8]


def plan_parts(groups: Sequence[GroupOffloadConfig], memory_bytes: int, num_ranks: int) -> SlotPlan:
    """How one rank's share of the memory is cut, given the groups as the rank with the largest pages has them. The
    notes are taken from the slots."""
    plan = plan_slots(groups, (memory_bytes - PAGE_BYTES) // num_ranks, note_bytes=1)
    spare = ceil_div(_note_parts(plan.num_slots, num_ranks, plan.slot_bytes), num_ranks)
    needed = max(plan.slots_for(group.chunk_bytes) for group in groups)
    if plan.num_slots - spare < needed:
        raise NotEnoughMemoryError(f"memory of {memory_bytes} bytes does not hold the largest chunk: give it more")
    return SlotPlan(num_slots=plan.num_slots - spare, slot_bytes=plan.slot_bytes)


class SharedArena:
    """The scheduler's side."""

    def __init__(self, name: str, plan: SlotPlan, num_ranks: int) -> None:
        note_parts = _note_parts(plan.num_slots, num_ranks, plan.slot_bytes)
        self._segment = Segment.create(
            name, SlotPlan(num_slots=note_parts + plan.num_slots * num_ranks, slot_bytes=plan.slot_bytes)
        )
        self._notes = _notes(self._segment.arena.view, plan.num_slots, num_ranks)
        self._notes.fill(0)
        self.slots = self._segment.arena.in_larger_slots(num_ranks, first=note_parts)
        """Slots of all ranks together."""
        self._has_name = True

    def take_failed(self, slots: Sequence[int]) -> list[int]:
        """Places of those that a rank has failed to write or to read, and nothing of it stays noted."""
        failed: list[int] = np.flatnonzero(self._notes[list(slots)].any(axis=1)).tolist()
        if failed:
            self._notes[[slots[place] for place in failed]] = 0
        return failed

    def drop_name(self) -> None:
        """All ranks have mapped it: from now on it ends with the last process that does."""
        if self._has_name:
            self._has_name = False
            with suppress(FileNotFoundError):
                self._segment.path.unlink()

    def close(self) -> None:
        self.drop_name()
        self._notes = np.empty((0, 0), dtype=np.uint8)
        self.slots.close()
        self._segment.close()


class RankArena:
    """A rank's side."""

    def __init__(self, name: str, num_slots: int, num_ranks: int, rank: int) -> None:
        self._arena: HostArena = attach(name)
        self._num_ranks = num_ranks
        self._rank = rank
        self._notes = _notes(self._arena.view, num_slots, num_ranks)
        note_parts = _note_parts(num_slots, num_ranks, self._arena.slot_bytes)
        self.parts: Bytes2D = self._arena.view[note_parts:]
        """Of all slots and ranks."""

    def parts_of(self, slots: Sequence[int]) -> list[int]:
        """The rows of `parts` that are this rank's of these slots."""
        num_ranks, rank = self._num_ranks, self._rank
        return [slot * num_ranks + rank for slot in slots]

    def note_failed(self, slot: int) -> None:
        self._notes[slot, self._rank] = 1

    def close(self) -> None:
        self._notes = np.empty((0, 0), dtype=np.uint8)
        self.parts = np.empty((0, 0), dtype=np.uint8)
        self._arena.close()


def _note_parts(num_slots: int, num_ranks: int, part_bytes: int) -> int:
    return ceil_div(num_slots * num_ranks, part_bytes)


def _notes(parts: Bytes2D, num_slots: int, num_ranks: int) -> Bytes2D:
    return parts.reshape(-1)[: num_slots * num_ranks].reshape(num_slots, num_ranks)
