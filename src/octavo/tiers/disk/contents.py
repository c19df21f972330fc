"""`Contents`: which keys the tier has, and where; on the engine's thread.

A key is *indexed* once its record is written. Until then it is *pending*; a key whose record is being moved to a newer
segment is pending too, and a miss for that while. Writes land in the order of their locations, so the last one counts.

After `announce`, a key is *untold* until it is told as stored. Some know it from before, so its removal is told all the
same.
"""

from collections.abc import Collection, Iterable, Sequence

from octavo.chunks import ChangeLog, OffloadKey, TierChanges
from octavo.tables import Discards, ShardedDict
from octavo.tiers.disk.operations import PlannedRecord
from octavo.tiers.disk.segment import ENTRY_BITS, ENTRY_MASK, Segment, split_location

_NOWHERE = 0
"""A location that stands for none: segments count from 1."""

_KEYS_FORGOTTEN_PER_CALL = 2048
"""Keys that one call forgets after a reset, so that no call pays for all keys at once."""
_ENTRIES_TOLD_PER_CALL = 512
"""Entries of an announcement that one call tells."""


class Contents:
    """The index, the segments that it points into, and what has changed since the last `take_changes`."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self._index = ShardedDict(_NOWHERE)
        self._pending: dict[OffloadKey, tuple[int, int]] = {}
        """Key -> the locations of the first write under way that still counts, and of the last one."""
        self._moving: set[OffloadKey] = set()
        """Pending keys that nobody was told are gone."""
        self._changes = ChangeLog()
        self._retired = Discards()
        """Keys of former indexes whose removal is still to be told."""
        self._untold: dict[int, range] = {}
        """Segment number -> the entries whose keys are still to be announced."""

    def __len__(self) -> int:
        return len(self._index)

    def held(self, keys: Sequence[OffloadKey]) -> list[int]:
        segments = self.segments
        return [
            segments[location >> ENTRY_BITS].held[location & ENTRY_MASK] if location else 0
            for location in self._index.find(keys)
        ]

    def lengths(self, keys: Sequence[OffloadKey]) -> list[int]:
        segments = self.segments
        return [
            segments[location >> ENTRY_BITS].lengths[location & ENTRY_MASK] if location else 0
            for location in self._index.find(keys)
        ]

    def find(self, key: OffloadKey) -> tuple[Segment, int] | None:
        location = self._index.get(key)
        if location == _NOWHERE:
            return None
        number, entry = split_location(location)
        return self.segments[number], entry

    def owned_by(self, tenants: Collection[bytes]) -> list[tuple[OffloadKey, bytes, int]]:
        """The keys of these tenants, with tenant and bytes, in the order of the log."""
        found = []
        for segment in self.segments.values():
            if not any(segment.tenants):
                continue
            for entry, key in enumerate(segment.keys):
                tenant = segment.tenant(entry)
                if tenant in tenants and self.is_at(segment, entry):
                    found.append((key, tenant, segment.lengths[entry]))
        return found

    def adopt(self, segment: Segment) -> None:
        """Indexes the records that were found on disk. Of two records of a key the one with the later sequence number
        counts."""
        self.segments[segment.number] = segment
        segment.num_live = len(segment.keys)
        shards = self._index.shards
        for here, key in enumerate(segment.keys, segment.location(0)):
            there = shards[key[0]].setdefault(key, here)
            if there == here:
                continue
            number, entry = split_location(there)
            other = self.segments[number]
            if other.sequences[entry] < segment.sequences[here & ENTRY_MASK]:
                self._index[key] = here
                other.num_live -= 1
            else:
                segment.num_live -= 1

    # Writes under way

    def expect(self, record: PlannedRecord) -> None:
        """A write of this key is planned."""
        record.segment.num_pending += 1
        first, _ = self._pending.get(record.key, (record.location, 0))
        self._pending[record.key] = first, record.location

    def is_pending(self, key: OffloadKey) -> bool:
        return key in self._pending

    def start_move(self, key: OffloadKey) -> None:
        """The key's record is being written again elsewhere. Until that has landed, the key is a miss."""
        is_told = self._is_told(key)
        if not self._unindex(key):
            return
        if is_told:
            self._moving.add(key)
        else:
            self._changes.removed([key])

    def land(self, record: PlannedRecord, *, is_written: bool) -> None:
        """A write has ended. One that was removed or reset meanwhile is forgotten.

        It is never an untold entry: what is pending when an announcement begins is told when it lands."""
        key, location = record.key, record.location
        record.segment.num_pending -= 1
        first, last = self._pending.get(key, (location + 1, 0))
        if location < first:
            return
        if location == last:
            del self._pending[key]
        is_known = key in self._moving
        self._moving.discard(key)
        if is_written:
            former, is_told = self.find(key), self._is_told(key)
            self._unindex(key)
            self._index[key] = location
            record.segment.num_live += 1
            if not former and not is_known:
                self._changes.stored([key])
            elif former and (not is_told or former[0].held[former[1]] != record.segment.held[record.entry]):
                self._changes.replaced([key])
        elif is_known:
            self._changes.removed([key])

    # What goes

    def remove(self, keys: Iterable[OffloadKey]) -> None:
        for key in keys:
            self._pending.pop(key, None)
            was_moving = key in self._moving
            self._moving.discard(key)
            if self._unindex(key) or was_moving:
                self._changes.removed([key])

    def forget_at(self, segment: Segment, entries: Iterable[int]) -> int:
        """Forgets the keys that the index still finds at these entries. Returns their number."""
        forgotten = self._keys_at(segment, entries)
        self._index.pop_all(forgotten)
        self._changes.removed(forgotten)
        segment.num_live -= len(forgotten)
        return len(forgotten)

    def is_at(self, segment: Segment, entry: int) -> bool:
        return self._index.get(segment.keys[entry]) == segment.location(entry)

    def _keys_at(self, segment: Segment, entries: Iterable[int]) -> list[OffloadKey]:
        """The keys of these entries that the index finds there."""
        start, entries = segment.location(0), list(entries)
        keys = [segment.keys[entry] for entry in entries]
        found = zip(keys, entries, self._index.find(keys), strict=True)
        return [key for key, entry, location in found if location == start | entry]

    def reset(self) -> None:
        """Forgets everything at once; the changes follow in small portions, by `settle`."""
        self._changes.removed(list(self._moving))
        self._retired.add(self._index.shards)
        self._index = ShardedDict(_NOWHERE)
        self.segments = {}
        self._pending.clear()
        self._moving.clear()
        self._untold.clear()

    @property
    def is_settled(self) -> bool:
        return not self._retired

    def settle(self) -> None:
        """Does a bounded part of the work that a reset left."""
        keys = self._retired.take_keys(_KEYS_FORGOTTEN_PER_CALL)
        self._changes.removed([key for key in keys if key not in self._index])

    def announce(self) -> None:
        """Tells all keys anew, a portion with each `take_changes`, together with the other changes."""
        self._changes.removed(list(self._moving))  # they are told when they land
        self._moving.clear()
        self._changes.is_announcing = True
        self._untold = {
            number: range(len(segment.keys) - segment.num_pending) for number, segment in self.segments.items()
        }

    def take_changes(self) -> TierChanges:
        self._tell(_ENTRIES_TOLD_PER_CALL)
        self._changes.is_announcing = bool(self._untold)
        changes, _ = self._changes.take()
        return changes._replace(has_more=self._changes.is_announcing or not self.is_settled)

    def _tell(self, most_entries: int) -> None:
        """Announces the keys of the next entries."""
        while self._untold and most_entries > 0:
            number, entries = next(iter(self._untold.items()))
            segment, portion, rest = self.segments.get(number), entries[:most_entries], entries[most_entries:]
            most_entries -= len(portion)
            if segment is not None:
                self._changes.stored(self._keys_at(segment, portion))
            if segment is not None and rest:
                self._untold[number] = rest
            else:
                del self._untold[number]

    def _is_told(self, key: OffloadKey) -> bool:
        """Whether no announcement waits to tell where the key is."""
        number, entry = split_location(self._index.get(key))
        return entry not in self._untold.get(number, ())

    def _unindex(self, key: OffloadKey) -> bool:
        """Whether the key was there."""
        location = self._index.pop(key)
        if location != _NOWHERE:
            self.segments[location >> ENTRY_BITS].num_live -= 1
        return location != _NOWHERE

    def check_invariants(self) -> None:
        """For tests: every indexed key lies where the index says, and is counted there."""
        live = dict.fromkeys(self.segments, 0)
        for key, location in self._index.items():
            number, entry = split_location(location)
            assert self.segments[number].keys[entry] == key
            live[number] += 1
        assert live == {number: segment.num_live for number, segment in self.segments.items()}
        assert len(self._index) == sum(live.values())
        assert self._moving <= self._pending.keys()
