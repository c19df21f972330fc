"""Which chunk lies in which slots: an index of keys, and chains of slots.

A chunk is known by the first of its slots, its *head*. What is known about it lies in arrays at that index, so that a
million chunks are a few flat buffers that the garbage collector has nothing to follow in:

    index        key -> head              a `ShardedDict`: it never stops its caller to grow
    next_slot    [ 5 | -1 | .. | 1 | ..]  the chain of a chunk's slots, -1 at its end
    checksums    [ 0 where none was taken | ..]
    readers      [ who needs the bytes where they are | ..]
    partial      head -> mask of blocks   of those few that have not all of them
    tenants      head -> tenant           of those that are somebody's

Memory is looked at as little as can be: with a million chunks each look is a cache miss, and most of what a call costs.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from octavo.chunks import ALL_BLOCKS
from octavo.ids import Slot
from octavo.tables import Part

NO_CHUNK = Slot(-1)
"""As a head: the key is not in the index."""
NO_CHECKSUM = 0
"""A chunk that really has this one goes unverified: one in 2^64."""
_NO_SLOT = Slot(-1)


class SlotTable:
    """Slots, free or in chains, and what is known about the chunk in each chain."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.next_slot = array("i", [_NO_SLOT]) * num_slots
        self._is_flat = True
        """No chain was ever longer than one slot."""
        self._has_checksums = False
        self._has_old_readers = False
        """Numbers of readers from before everything was freed, of slots that are not listed."""
        self.partial: dict[Slot, int] = {}
        self.tenants: dict[Slot, bytes] = {}
        self.checksums = array("Q", bytes(8 * num_slots))
        self.readers = array("i", bytes(4 * num_slots))
        self._free = array("i")
        """Those that are listed; the end is taken first."""
        self._num_listed = 0
        """Slots from here on are free and not in `_free`, but for those that are kept."""
        self._is_kept = np.zeros(num_slots, dtype=np.bool_)
        self._num_kept = 0
        """From `_num_listed` on."""

    @property
    def num_free(self) -> int:
        return len(self._free) + self.num_slots - self._num_listed - self._num_kept

    def take(self, counts: Sequence[int]) -> list[Sequence[Slot]]:
        """Slots for chunks; `counts` has the number of slots of each. The caller has seen that they are free."""
        total = sum(counts)
        if not total:
            return []
        if total > len(self._free):
            self._list_free(total - len(self._free))
        taken: list[Slot] = self._free[-total:].tolist()  # type: ignore[assignment]
        del self._free[-total:]
        taken.reverse()  # ascending, at first: neighbours make one buffer
        if self._is_flat and total == len(counts):
            return [(slot,) for slot in taken]
        self._is_flat = False
        next_slot = self.next_slot
        chains: list[Sequence[Slot]] = []
        start = 0
        for count in counts:
            chain = taken[start : start + count]
            for slot, following in zip(chain, (*chain[1:], _NO_SLOT), strict=True):
                next_slot[slot] = following
            chains.append(chain)
            start += count
        return chains

    def mask(self, head: Slot) -> int:
        """The blocks that a chunk has."""
        return self.partial.get(head, ALL_BLOCKS)

    def masks(self, heads: Sequence[Slot]) -> list[int]:
        if not self.partial:
            return [ALL_BLOCKS] * len(heads)
        return [self.partial.get(head, ALL_BLOCKS) for head in heads]

    def describe(
        self, heads: Sequence[Slot], masks: Sequence[int], checksums: Sequence[int], tenants: Sequence[bytes] = ()
    ) -> None:
        """Notes what is known about the chunks that were written to these slots. Empty `checksums`: none were taken.
        Empty `tenants`: the chunks belong to no tenant."""
        self.tenants.update((head, tenant) for head, tenant in zip(heads, tenants, strict=False) if tenant)
        if masks.count(ALL_BLOCKS) < len(masks):
            self.partial.update((head, mask) for head, mask in zip(heads, masks, strict=True) if mask != ALL_BLOCKS)
        if checksums or self._has_checksums:
            self._has_checksums = True
            own = self.checksums
            for head, checksum in zip(heads, checksums or [NO_CHECKSUM] * len(heads), strict=True):
                own[head] = checksum

    def chain(self, head: Slot) -> Sequence[Slot]:
        """The slots of a chunk, in order."""
        following = self.next_slot[head]
        if following == _NO_SLOT:
            return (head,)
        slots = [head]
        while following != _NO_SLOT:
            slots.append(Slot(following))
            following = self.next_slot[following]
        return slots

    def chains(self, heads: Iterable[Slot]) -> list[Sequence[Slot]]:
        if self._is_flat:
            return [(head,) for head in heads]
        next_slot = self.next_slot
        return [(head,) if next_slot[head] == _NO_SLOT else self.chain(head) for head in heads]

    def free(self, heads: Collection[Slot]) -> None:
        """These chunks' slots hold nothing any more."""
        if self.partial:
            for head in heads:
                self.partial.pop(head, None)
        if self.tenants:
            for head in heads:
                self.tenants.pop(head, None)
        if self._is_flat:
            self._free.extend(heads)
            return
        append, next_slot = self._free.append, self.next_slot
        for head in heads:
            slot = head
            while slot != _NO_SLOT:
                append(slot)
                slot = Slot(next_slot[slot])

    def free_all_but(self, kept: Mapping[Slot, int]) -> list[Part]:
        """All slots are free but these heads' chains, and nobody reads a chunk but the readers given by head. Work in
        proportion to these: free slots are listed as they are taken. What is to be freed piecemeal."""
        heads, partial, tenants = list(kept), self.partial, self.tenants
        self.partial = {head: partial[head] for head in heads if head in partial}
        self.tenants = {}
        self._is_kept = np.zeros(self.num_slots, dtype=np.bool_)  # pages of zeros, which cost nothing until used
        self._num_kept = self._num_listed = 0
        self._free = array("i")
        self._has_old_readers = True
        for head in heads:
            chain = self.chain(head)
            self._is_kept[list(chain)] = True
            self._num_kept += len(chain)
            self.readers[head] = kept[head]
        return [partial, tenants]

    def _list_free(self, count: int) -> None:
        """Puts the next slots that are free, in ascending order, behind those that are listed. The caller has seen to
        it that there are as many."""
        found: list[int] = []
        while len(found) < count:
            first, end = self._num_listed, min(self._num_listed + count - len(found), self.num_slots)
            slots = list(range(first, end))
            if self._num_kept:
                slots = (np.flatnonzero(~self._is_kept[first:end]) + first).tolist()
                self._num_kept -= end - first - len(slots)
            found += slots
            self._num_listed = end
        if self._has_old_readers:
            for slot in found:
                self.readers[slot] = 0
        found.reverse()
        self._free = array("i", found) + self._free

    def is_listed(self, slot: Slot) -> bool:
        """Whether it is or was in use since everything was last freed."""
        return slot < self._num_listed or bool(self._is_kept[slot])

    def free_slots(self) -> list[Slot]:
        unlisted = np.flatnonzero(~self._is_kept[self._num_listed :]) + self._num_listed
        return [Slot(slot) for slot in (*self._free, *unlisted.tolist())]
