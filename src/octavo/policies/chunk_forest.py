"""What a tier holds, how chunks hang together, and how many reasons there are to keep each.

held     by a resume point that needs it, or, in a group whose resumes need the whole prefix, by the chunk after it
unneeded held by nothing: the first to be given up, oldest first; then its parent may be unneeded, and so on up
hole     held, and not there: it was removed, or has not arrived. Its holders stand, and it heals when it is inserted

prefix group   a0 <- a1 <- a2 <- a3*          `<-`: held by.  `*`: held by a resume point
                      ^--- b2 <- b3*
window group   w0    w1    w2*   w3*          linked too, so that a point finds its window, but nobody is held

Nearly all chunks are like a0: of a prefix group, as large as others of it, and held once. These are *ordinary*: only
their parents are written down, as each dictionary of a million keys costs a call some cache misses per key.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, cast

from octavo.chunks import OffloadKey, StoredChunk
from octavo.policies.pinned import PinnedChunks
from octavo.tables import Part, RecencyOrder, RecencyTable, ShardedDict

_HOLD_BITS = 32
_HOLDS = (1 << _HOLD_BITS) - 1


class Links(Enum):
    """What a chunk's link to the chunk before it in its group means."""

    NONE = "none"
    """Not kept: a resume needs one chunk at most."""
    RUN = "run"
    """A resume needs a few, which are found through it."""
    PREFIX = "prefix"
    """A resume needs all: a chunk holds the one before it."""


class Stretch(NamedTuple):
    """Chunks that entered together, each the parent of the next."""

    parent: OffloadKey | None
    """Of the first; None too where links are not kept."""
    last: StoredChunk
    num_slots: int


class ChunkForest:
    """The chunks of a tier with their parents, holders and readers."""

    def __init__(self, links: Mapping[bytes, Links]) -> None:
        """`links` by the last four bytes of a key, which name its group."""
        self._links = links
        self._entries = ShardedDict(0)
        """Slots (none for a hole), and holders, of all that are not ordinary."""
        self._parents = ShardedDict[OffloadKey | None](None)
        """Of every linked chunk. A hole of a prefix group is not in here, so that it holds nothing."""
        self._ordinary: dict[bytes, int] = {}
        """By prefix group: the entry of an ordinary chunk. Its slots are those of the first that came."""
        self._unneeded_table = RecencyTable()
        self._unneeded = RecencyOrder(self._unneeded_table)
        self._pinned = PinnedChunks()
        self._num_pinned = 0
        self._exposed: list[OffloadKey] = []
        self.num_idle_slots = 0

    def parts(self) -> Sequence[Part]:
        own = [*self._entries.parts(), *self._parents.parts(), *self._pinned.parts()]
        return [*own, *self._unneeded_table.parts(), *self._unneeded.parts()]

    def slots_of(self, key: OffloadKey) -> int:
        """Zero for a hole and for the unknown."""
        return self._entry(key) >> _HOLD_BITS

    def look_up(self, key: OffloadKey) -> tuple[int, int, OffloadKey | None]:
        """Slots, holders and parent."""
        parents, entry = self._parents.shards[key[0]], self._entries.get(key)
        if not entry:
            entry = self._ordinary[key[-4:]] if key in parents else 0
        return entry >> _HOLD_BITS, entry & _HOLDS, parents.get(key)

    def holders_of(self, key: OffloadKey) -> int:
        return self._entry(key) & _HOLDS

    def _entry(self, key: OffloadKey) -> int:
        entry = self._entries.shards[key[0]].get(key)
        if entry is None:
            return self._ordinary[key[-4:]] if key in self._parents.shards[key[0]] else 0
        return entry

    def _put_entry(self, key: OffloadKey, entry: int) -> None:
        if entry == self._ordinary.get(key[-4:]) and key in self._parents:
            self._entries.pop(key)
        else:
            self._entries[key] = entry

    def parent_of(self, key: OffloadKey) -> OffloadKey | None:
        return self._parents.get(key)

    def pinned_keys(self) -> Iterator[OffloadKey]:
        return iter(self._pinned)

    def insert(self, chunks: Sequence[StoredChunk]) -> list[Stretch]:
        """The stretches that `chunks` are made of."""
        stretches: list[Stretch] = []
        start, last_key, links = 0, b"", Links.NONE
        for index, chunk in enumerate(chunks):
            key = chunk.key
            if chunk.parent != last_key or links is Links.NONE:
                if index:
                    stretches.append(self._enter(chunks[start:index], links))
                start, links = index, self._links[key[-4:]]
            last_key = key
        if chunks:
            stretches.append(self._enter(chunks[start:], links))
        return stretches

    def _enter(self, chunks: Sequence[StoredChunk], links: Links) -> Stretch:
        """Makes entries of a stretch, or fills the holes that wait for it."""
        keys, slots = [chunk[0] for chunk in chunks], [chunk[1] for chunk in chunks]
        parent = None if links is Links.NONE else chunks[0].parent
        is_prefix = links is Links.PREFIX
        if is_prefix:
            self._ordinary.setdefault(keys[0][-4:], slots[0] << _HOLD_BITS | 1)
        self._fill(keys[:-1], slots, num_holders=is_prefix)  # by the next one
        self._fill(keys[-1:], slots[-1:], num_holders=0)
        if links is not Links.NONE:
            parents = self._parents.shards
            for key, key_before in zip(keys, (parent, *keys[:-1]), strict=True):
                parents[key[0]][key] = key_before
        self.num_idle_slots += sum(slots)
        if parent is not None and is_prefix:
            self.hold(parent)
        return Stretch(parent=parent, last=chunks[-1], num_slots=sum(slots))

    def _fill(self, keys: Sequence[OffloadKey], slots: Sequence[int], *, num_holders: int) -> None:
        entries, slots_before, new_entry = self._entries.shards, -1, 0
        ordinary = self._ordinary.get(keys[0][-4:]) if keys and num_holders else None
        for key, num_slots in zip(keys, slots, strict=False):
            if num_slots != slots_before:  # equal entries are one object
                slots_before, new_entry = num_slots, num_slots << _HOLD_BITS | num_holders
            shard = entries[key[0]]
            if key in shard:  # a hole
                entry = shard[key] = new_entry + shard[key]
            elif new_entry == ordinary:
                continue
            else:
                entry = shard[key] = new_entry
            if not entry & _HOLDS:
                self._unneeded.add(key, num_slots)

    def hold(self, key: OffloadKey) -> None:
        entry = self._entry(key)
        self._put_entry(key, entry + 1)
        if not entry & _HOLDS:
            self._unneeded.pop(key)

    def release(self, key: OffloadKey) -> None:
        """The opposite of `hold`."""
        entry = self._entry(key) - 1
        if not entry:  # a hole that nobody waits for
            self._entries.pop(key)
            self._parents.pop(key)
            return
        self._put_entry(key, entry)
        holders = entry & _HOLDS
        if holders == 1:
            self._exposed.append(key)
        elif not holders and key not in self._pinned:
            self._unneeded.add(key, entry >> _HOLD_BITS)

    def take_exposed(self) -> list[OffloadKey]:
        """Chunks that lost a holder since the last call and had one left then."""
        exposed, self._exposed = self._exposed, []
        return exposed

    def renew_unneeded(self, keys: Sequence[OffloadKey]) -> None:
        if self._unneeded.num_slots:
            self._unneeded.renew(reversed(keys))

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        pinned, has_unneeded = self._pinned, self._unneeded.num_slots > 0
        num_slots = num_new = 0
        for key in keys:
            if key in pinned.shards[key[0]]:
                pinned.add_reader(key)
                continue
            slots_of_key = self._entry(key) >> _HOLD_BITS
            pinned.add(key, slots_of_key)
            num_slots += slots_of_key
            num_new += 1
            if has_unneeded:
                self._unneeded.pop(key)
        self.num_idle_slots -= num_slots
        self._num_pinned += num_new

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        for key in reversed(keys):
            num_slots = self._pinned.remove_reader(key)
            if num_slots:
                self._num_pinned -= 1
                self.num_idle_slots += num_slots
                if not self.holders_of(key):
                    self._unneeded.add(key, num_slots)

    def is_idle(self, key: OffloadKey) -> bool:
        return self.slots_of(key) > 0 and key not in self._pinned

    def remove(self, key: OffloadKey) -> None:
        """The chunk is gone. While it is held it is a hole."""
        if key in self._pinned:
            self._pinned.forget(key)
            self._num_pinned -= 1
        else:
            self.num_idle_slots -= self.slots_of(key)
        holders = self.holders_of(key)
        if not holders:
            self._unneeded.pop(key)
            self._entries.pop(key)
        else:
            self._put_entry(key, holders)
        is_prefix = self._links[key[-4:]] is Links.PREFIX
        if is_prefix or not holders:
            parent = self._parents.pop(key)
            if is_prefix and parent is not None:
                self.release(parent)

    def pop_unneeded(self, num_slots: int) -> tuple[list[OffloadKey], int]:
        """Gives up unneeded chunks, the oldest first, and what becomes unneeded thereby, until `num_slots` are free or
        none is left: the victims and their slots."""
        keys, slots = self._unneeded.pop_oldest(num_slots)
        victims = cast("list[OffloadKey]", keys)
        missing = num_slots - sum(slots)
        for parent in [self._forget(key) for key in victims]:
            if parent is not None:
                missing -= self._pop_chain(parent, missing, victims)
        self.num_idle_slots -= num_slots - missing
        return victims, num_slots - missing

    def _pop_chain(self, first: OffloadKey, num_slots: int, victims: list[OffloadKey]) -> int:
        """Gives up what hung on a victim alone: its parent, that one's parent and so on, until `num_slots` are free.
        The slots of these."""
        entries, parents, append = self._entries.shards, self._parents.shards, victims.append
        pinned = self._pinned.shards if self._num_pinned else None
        ordinary_slots, missing = self._ordinary[first[-4:]] >> _HOLD_BITS, num_slots
        key: OffloadKey | None = first
        while key is not None and missing > 0:
            index = key[0]
            if pinned and key in pinned[index]:
                break
            shard = entries[index]
            if key in shard:
                entry = shard[key]
                if entry & _HOLDS != 1 or not entry >> _HOLD_BITS:
                    break
                del shard[key]
                missing -= entry >> _HOLD_BITS
            else:
                missing -= ordinary_slots
            append(key)
            key = parents[index].pop(key)
        if key is not None:
            self.release(key)
        return num_slots - missing

    def _forget(self, key: OffloadKey) -> OffloadKey | None:
        """An unneeded chunk is gone. The chunk that it held."""
        self._entries.pop(key)
        parent = self._parents.pop(key)
        return parent if parent is not None and self._links[key[-4:]] is Links.PREFIX else None

    def check_invariants(self, held_by_points: Mapping[OffloadKey, int]) -> None:
        self._unneeded.check_invariants()
        parents = {OffloadKey(key): parent for key, parent in self._parents.items()}
        entries = {OffloadKey(key): self._entry(OffloadKey(key)) for key in self._entries}
        entries |= {key: self._entry(key) for key in parents}
        holders = dict(held_by_points)
        for key, parent in parents.items():
            assert self._links[key[-4:]] is not Links.NONE
            if self._links[key[-4:]] is Links.PREFIX:
                assert self.slots_of(key), "a hole holds its parent"
                if parent is not None:
                    holders[parent] = holders.get(parent, 0) + 1
        assert holders == {key: entry & _HOLDS for key, entry in entries.items() if entry & _HOLDS}
        assert all(self.slots_of(key) or self.holders_of(key) for key in entries)
        pinned = set(self._pinned)
        assert len(pinned) == self._num_pinned
        idle = {key for key in entries if self.slots_of(key) and key not in pinned}
        assert self.num_idle_slots == sum(map(self.slots_of, idle))
        assert set(self._unneeded) == {key for key in idle if not self.holders_of(key)}
        assert all(self._pinned[key] == self.slots_of(key) for key in pinned)
