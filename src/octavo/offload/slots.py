"""Which chunk lies in which slots: an index of keys, and chains of slots.

A chunk is known by the first of its slots, its *head*. What is known about it lies in arrays at that place, so that a
million chunks are a few flat buffers that the garbage collector has nothing to follow in:

    index        key -> head              256 dicts, by the key's first byte: none is ever slow to grow
    next_slot    [ 5 | -1 | .. | 1 | ..]  the chain of a chunk's slots, -1 at its end
    checksums    [ 0 where none was taken | ..]
    lengths      [ in bytes, where somebody asks for them | ..]
    readers      [ who needs the bytes where they are | ..]
    partial      head -> mask of blocks   of those few that have not all of them

Memory is looked at as little as can be: with a million chunks each look is a cache miss, and most of what a call costs.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from octavo.ids import OffloadKey
from octavo.offload.base import ALL_BLOCKS
from octavo.policies.sharding import Shards, count_keys, make_shards

NO_CHUNK = -1
"""As a head: the key is not in the index."""
NO_CHECKSUM = 0
"""A chunk that really has this one goes unverified: one in 2^64."""
_NO_SLOT = -1


class ChunkIndex:
    """A dict of key -> head whose every operation is quick: one dict of a million would stop the world to grow."""

    def __init__(self) -> None:
        self.shards: Shards[int] = make_shards()

    def find(self, keys: Iterable[OffloadKey]) -> list[int]:
        shards = self.shards
        return [shards[key[0]].get(key, NO_CHUNK) for key in keys]

    def get(self, key: OffloadKey) -> int:
        return self.shards[key[0]].get(key, NO_CHUNK)

    def add(self, key: OffloadKey, head: int) -> None:
        self.shards[key[0]][key] = head

    def pop(self, keys: Iterable[OffloadKey]) -> list[int]:
        """Forgets keys, and says where they were."""
        shards = self.shards
        return [shards[key[0]].pop(key, NO_CHUNK) for key in keys]

    def keys(self) -> list[OffloadKey]:
        return [OffloadKey(key) for shard in self.shards for key in shard]

    def __len__(self) -> int:
        return count_keys(self.shards)

    def __contains__(self, key: OffloadKey) -> bool:
        return key in self.shards[key[0]]


class SlotTable:
    """Slots, free or in chains, and what is known about the chunk in each chain."""

    def __init__(self, num_slots: int, next_slot: "memoryview[int] | None" = None) -> None:
        """`next_slot` may lie in memory that others see."""
        self.num_slots = num_slots
        self.next_slot: array[int] | memoryview[int] = (
            array("i", [_NO_SLOT]) * num_slots if next_slot is None else next_slot
        )
        self._is_flat = next_slot is None
        """No chain was ever longer than one slot."""
        self._has_checksums = False
        self.partial: dict[int, int] = {}
        self.checksums = array("Q", bytes(8 * num_slots))
        self.lengths = array("q", bytes(8 * num_slots))
        self.readers = array("i", bytes(4 * num_slots))
        self._free = array("i")
        self.free_all_but(())

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, counts: Sequence[int]) -> list[Sequence[int]]:
        """Slots for chunks of these many slots each. The caller has seen to it that they are free."""
        total = sum(counts)
        if not total:
            return []
        taken = self._free[-total:].tolist()
        del self._free[-total:]
        taken.reverse()  # ascending, at first: neighbours make one buffer
        if self._is_flat and total == len(counts):
            return [(slot,) for slot in taken]
        self._is_flat = False
        next_slot = self.next_slot
        chains: list[Sequence[int]] = []
        start = 0
        for count in counts:
            chain = taken[start : start + count]
            for slot, following in zip(chain, (*chain[1:], _NO_SLOT), strict=True):
                next_slot[slot] = following
            chains.append(chain)
            start += count
        return chains

    def mask(self, head: int) -> int:
        """The blocks that a chunk has."""
        return self.partial.get(head, ALL_BLOCKS)

    def masks(self, heads: Sequence[int]) -> list[int]:
        if not self.partial:
            return [ALL_BLOCKS] * len(heads)
        return [self.partial.get(head, ALL_BLOCKS) for head in heads]

    def describe(self, heads: Sequence[int], masks: Sequence[int], checksums: Sequence[int]) -> None:
        """What is known about the chunks that were written to these; no checksums means that none were taken."""
        if masks.count(ALL_BLOCKS) < len(masks):
            self.partial.update((head, mask) for head, mask in zip(heads, masks, strict=True) if mask != ALL_BLOCKS)
        if checksums or self._has_checksums:
            self._has_checksums = True
            own = self.checksums
            for head, checksum in zip(heads, checksums or [NO_CHECKSUM] * len(heads), strict=True):
                own[head] = checksum

    def chain(self, head: int) -> Sequence[int]:
        """The slots of a chunk, in order."""
        following = self.next_slot[head]
        if following == _NO_SLOT:
            return (head,)
        slots = [head]
        while following != _NO_SLOT:
            slots.append(following)
            following = self.next_slot[following]
        return slots

    def chains(self, heads: Iterable[int]) -> list[Sequence[int]]:
        if self._is_flat:
            return [(head,) for head in heads]
        next_slot = self.next_slot
        return [(head,) if next_slot[head] == _NO_SLOT else self.chain(head) for head in heads]

    def free(self, heads: Collection[int]) -> None:
        """These chunks' slots hold nothing any more."""
        if self.partial:
            for head in heads:
                self.partial.pop(head, None)
        if self._is_flat:
            self._free.extend(heads)
            return
        append, next_slot = self._free.append, self.next_slot
        for head in heads:
            slot = head
            while slot != _NO_SLOT:
                append(slot)
                slot = next_slot[slot]

    def free_all_but(self, heads: Iterable[int]) -> None:
        """All slots are free but the chains of these."""
        is_free = np.ones(self.num_slots, dtype=np.bool_)
        heads = list(heads)
        self.partial = {head: self.partial[head] for head in heads if head in self.partial}
        for head in heads:
            is_free[list(self.chain(head))] = False
        self._free = array("i", np.flatnonzero(is_free)[::-1].astype(np.int32).tobytes())

    def free_slots(self) -> list[int]:
        return self._free.tolist()
