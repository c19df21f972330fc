"""The arena that the scheduler's process and those of all ranks share.

    notes    for each slot and rank: 8 bytes, the checksum of the chunk that begins in the slot, if one rank writes all
             of it; then 1 byte, not 0 if the rank failed to write or to read its share
    slot 0   [ pages of chunks, of all ranks ]
    slot 1   [ ... ]

The scheduler owns the segment. Its name is removed as soon as all ranks have mapped it, so that nothing stays behind
however the processes end.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from octavo.chunks import GroupOffloadConfig
from octavo.host import NO_CHECKSUM, PAGE_BYTES, HostArena, Segment, SlotPlan, attach, plan_slots
from octavo.ids import Slot
from octavo.specs import ceil_div

Bytes2D = npt.NDArray[np.uint8]

_CHECKSUM_BYTES = 8
_NOTE_BYTES = _CHECKSUM_BYTES + 1


def plan_shared(groups: Sequence[GroupOffloadConfig], memory_bytes: int, num_ranks: int) -> SlotPlan:
    """The slots of the memory."""
    return plan_slots(groups, memory_bytes, note_bytes=_NOTE_BYTES * num_ranks, other_bytes=PAGE_BYTES)


class SharedArena:
    """The scheduler's side of the arena."""

    def __init__(self, name: str, plan: SlotPlan, num_ranks: int) -> None:
        note_slots = _note_slots(plan, num_ranks)
        self._segment = Segment.create(
            name, SlotPlan(num_slots=note_slots + plan.num_slots, slot_bytes=plan.slot_bytes)
        )
        self._notes = _Notes(self._segment.arena.view, plan.num_slots, num_ranks)
        self._notes.clear()
        self.slots = self._segment.arena.after(note_slots)
        self._num_ranks = num_ranks
        self._has_name = True

    def take_failed(self, heads: Sequence[Slot]) -> list[int]:
        """The indices of the chunks that a rank failed to write or to read. Clears their notes."""
        has_failed = self._notes.has_failed
        failed: list[int] = np.flatnonzero(has_failed[list(heads)].any(axis=1)).tolist()
        if failed:
            has_failed[[heads[idx] for idx in failed]] = 0
        return failed

    def checksums(self, heads: Sequence[Slot]) -> list[int]:
        """The checksum of each chunk, if one rank writes all of it; the checksums of shares would not give that of the
        whole."""
        if self._num_ranks > 1:
            return []
        checksums: list[int] = self._notes.checksums[list(heads), 0].tolist()
        return checksums

    def drop_name(self) -> None:
        """All ranks have mapped the arena, so from now on it ends with the last process that maps it."""
        if self._has_name:
            self._has_name = False
            with suppress(FileNotFoundError):
                self._segment.path.unlink()

    def close(self) -> None:
        self.drop_name()
        self._notes.close()
        self.slots.close()
        self._segment.close()


class RankArena:
    """A rank's side of the arena."""

    def __init__(self, name: str, num_slots: int, num_ranks: int, rank: int) -> None:
        self._arena: HostArena = attach(name)
        self.num_ranks = num_ranks
        self.rank = rank
        self._notes = _Notes(self._arena.view, num_slots, num_ranks)
        plan = SlotPlan(num_slots=num_slots, slot_bytes=self._arena.slot_bytes)
        self.slots: Bytes2D = self._arena.view[_note_slots(plan, num_ranks) :]

    def note_failed(self, head: Slot) -> None:
        self._notes.has_failed[head, self.rank] = 1

    def note_checksum(self, head: Slot, checksum: int) -> None:
        self._notes.checksums[head, self.rank] = checksum

    def find_checksum(self, head: Slot) -> int | None:
        """None if no store has noted a checksum."""
        checksum = int(self._notes.checksums[head, self.rank])
        return None if checksum == NO_CHECKSUM else checksum

    def close(self) -> None:
        self._notes.close()
        self.slots = np.empty((0, 0), dtype=np.uint8)
        self._arena.close()


class _Notes:
    """The beginning of the segment, as one checksum and one byte for each slot and rank."""

    def __init__(self, segment: Bytes2D, num_slots: int, num_ranks: int) -> None:
        count = num_slots * num_ranks
        checksums, has_failed = np.split(segment.reshape(-1)[: count * _NOTE_BYTES], [count * _CHECKSUM_BYTES])
        self.checksums: npt.NDArray[np.uint64] = checksums.view(np.uint64).reshape(num_slots, num_ranks)
        self.has_failed: Bytes2D = has_failed.reshape(num_slots, num_ranks)

    def clear(self) -> None:
        self.checksums.fill(NO_CHECKSUM)
        self.has_failed.fill(0)

    def close(self) -> None:
        """Lets go of the segment. No slot has notes any more."""
        self.checksums, self.has_failed = np.empty((0, 0), dtype=np.uint64), np.empty((0, 0), dtype=np.uint8)


def _note_slots(plan: SlotPlan, num_ranks: int) -> int:
    return ceil_div(plan.num_slots * num_ranks * _NOTE_BYTES, plan.slot_bytes)
