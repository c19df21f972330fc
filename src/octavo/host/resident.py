"""The chunks that are in one arena: index, slots, readers and eviction policy, kept in step.

    free --allocate--> being written --publish--> resident --drop, evict, replace--> free
                             `--abandon--> free         `-- while it has readers: an orphan, then free

A *reader* needs a chunk's bytes to stay in their slots: a load, or a write to a tier. The policy never evicts a chunk
that has readers. Such a chunk can still be dropped: its bytes were wrong, a copy with more blocks came, or everything
was reset. Then no lookup finds it any more, and its slots become free when the last reader ends.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice

from octavo.chunks import ALL_BLOCKS, ChangeLog, Departures, Leaving, OffloadKey, StoredChunk, TierChanges
from octavo.host.slots import NO_CHUNK, SlotTable
from octavo.ids import Slot
from octavo.policies import POLICIES, EvictionPolicy
from octavo.tables import Discards, ShardedDict

MEMORY = "memory"
"""The arena's medium, as changes name it."""
_ITEMS_OF_A_CHUNK = 4
"""In index and policy, rounded up."""
_ITEMS_PER_CALL = 2048
"""Freed of what was discarded, in half a millisecond or so."""
_KEYS_TOLD_PER_CALL = 512
"""Keys of an announcement that one call tells: to make events of them takes 1 to 4 ms of an engine's step."""


class ResidentChunks:
    """What is in an arena, and may be given up for what."""

    def __init__(
        self,
        num_slots: int,
        policy: EvictionPolicy,
        *,
        keeps_idle: bool,
        logs_changes: bool,
        departures: Departures | None,
    ) -> None:
        """`keeps_idle`: whether chunks without readers stay. `departures` is told what is given up, and how."""
        self.departures = departures
        self.index = ShardedDict(NO_CHUNK)
        self.table = SlotTable(num_slots)
        self.changes = ChangeLog() if logs_changes else None
        self.num_evicted = 0
        self._policy = policy
        self._rule = POLICIES.name_of(type(policy))
        """What is said of an eviction."""
        self._keeps_idle = keeps_idle
        self._orphans: set[Slot] = set()
        self.discards = Discards()
        """Of a former index: keys whose removal is still to be told."""
        self._untold: Iterator[OffloadKey] | None = None
        """Keys that are still to be announced, if they are there by then."""

    # ---- finding ------------------------------------------------------------------------------------------------

    def masks(self, keys: Sequence[OffloadKey]) -> list[int]:
        """By key: the blocks that are held, 0 where there are none."""
        heads, partial = self.index.find(keys), self.table.partial
        if not partial:
            return [0 if head == NO_CHUNK else ALL_BLOCKS for head in heads]
        return [0 if head == NO_CHUNK else partial.get(head, ALL_BLOCKS) for head in heads]

    # ---- writing ------------------------------------------------------------------------------------------------

    def allocate(self, counts: Sequence[int], protect: Sequence[OffloadKey] = ()) -> list[Sequence[Slot]] | None:
        """Slots for chunks; `counts` has the number of slots of each. Evicts other chunks where that is needed, but
        none of `protect`. Atomic: None, and nothing has changed, if there is no room."""
        missing = sum(counts) - self.table.num_free
        if missing > 0 and not self._evict(missing, protect):
            return None
        return self.table.take(counts)

    def abandon(self, heads: Iterable[Slot]) -> None:
        """Writing these failed."""
        self.table.free(list(heads))

    def orphan(self, heads: Iterable[Slot]) -> None:
        """The job that writes these chunks was given up, but may still write. They have one reader, and their slots
        become free when it is removed."""
        for head in heads:
            self.table.readers[head] = 1
            self._orphans.add(head)

    def publish(
        self,
        chunks: Sequence[StoredChunk],
        heads: Sequence[Slot],
        masks: Sequence[int],
        checksums: Sequence[int],
        tenants: Sequence[bytes] = (),
    ) -> None:
        """These chunks are written, and resident from now on. They replace those that had their keys."""
        self.free_discarded(_ITEMS_OF_A_CHUNK * len(chunks))  # or it might come to more chunks than the arena holds
        shards = self.index.shards
        keys = [chunk.key for chunk in chunks]
        replaced = []
        for key, head in zip(keys, heads, strict=True):
            if shards[key[0]].setdefault(key, head) != head:
                replaced.append(key)
        if replaced:
            self.drop(replaced)
            for key, head in zip(keys, heads, strict=True):
                self.index[key] = head
        self.table.describe(heads, masks, checksums, tenants)
        self._policy.insert(chunks)
        if self.changes is not None:
            self.changes.stored(keys)
            self.changes.replaced(replaced)

    # ---- reading ------------------------------------------------------------------------------------------------

    def add_readers(self, keys: Sequence[OffloadKey], heads: Sequence[Slot]) -> None:
        """Keeps these chunks in their slots until `remove_readers` was called as often."""
        readers = self.table.readers
        for head in heads:
            readers[head] += 1
        self._policy.pin(keys)

    def remove_readers(self, keys: Sequence[OffloadKey], heads: Sequence[Slot]) -> None:
        """Each of these chunks has one reader fewer."""
        readers = self.table.readers
        for head in heads:
            readers[head] -= 1
        if self._orphans:
            keys = self._without_orphans(keys, heads)
        self._policy.unpin(keys)
        if not self._keeps_idle:
            self.drop_idle(keys)

    def drop_idle(self, keys: Sequence[OffloadKey]) -> None:
        """Drops the chunks among these that have no readers."""
        readers = self.table.readers
        found = zip(keys, self.index.find(keys), strict=True)
        self.drop([key for key, head in dict(found).items() if head != NO_CHUNK and not readers[head]])

    def drop(self, keys: Sequence[OffloadKey], how: Leaving | None = None) -> None:
        """These are not to be found any more. Unknown ones are fine. `how`: what is told to who follows departures."""
        keys = [key for key in dict.fromkeys(keys) if key in self.index]
        if how is not None and self.departures is not None:
            self.departures.note(keys, MEMORY, how)
        self._policy.remove(keys)
        heads = self.index.pop_all(keys)
        readers = self.table.readers
        self._orphans.update(head for head in heads if readers[head])
        self._tell_removed(keys, heads)
        self.table.free([head for head in heads if not readers[head]])

    # ---- all of it ----------------------------------------------------------------------------------------------

    def clear(
        self, heads_being_written: Iterable[Slot], heads_being_read: Iterable[Slot], *, tells_each: bool = False
    ) -> None:
        """Forgets every chunk. A slot that is being written or read stays taken until its writer or reader ends.
        `heads_being_read` names a chunk once for each reader. All other readers have given up, and do not call
        `remove_readers`. With `tells_each` the changes name all chunks, and no clear."""
        readers = Counter(heads_being_read)
        self._orphans = set(readers)
        if self.changes is not None and not tells_each:
            self.changes.cleared()
        elif self.changes is not None:
            keys = list(map(OffloadKey, self.index))
            self._tell_removed(keys, self.index.find(keys))
        self.discards.add(self.index.shards)
        self.discards.add(self._policy.clear())
        self.index = ShardedDict(NO_CHUNK)
        self._untold = None
        self.discards.add(self.table.free_all_but({**dict.fromkeys(heads_being_written, 0), **readers}))

    def announce(self) -> None:
        """Tells all chunks anew, a portion with each `take_changes`."""
        if self.changes is not None:
            self.changes.is_announcing = True
        if self.index:
            self._untold = map(OffloadKey, chain.from_iterable(map(list, self.index.shards)))

    @property
    def has_more_changes(self) -> bool:
        """Whether the next `take_changes` goes on with an announcement."""
        return self._untold is not None

    def take_changes(self) -> tuple[TierChanges, bool]:
        """The changes since the last call, and whether all was cleared before them. Only with `logs_changes`."""
        assert self.changes is not None
        if self._untold is not None:
            portion = list(islice(self._untold, _KEYS_TOLD_PER_CALL))
            heads = self.index.find(portion)
            self.changes.stored([key for key, head in zip(portion, heads, strict=True) if head != NO_CHUNK])
            if len(portion) < _KEYS_TOLD_PER_CALL:
                self._untold = None
        self.changes.is_announcing = self._untold is not None
        return self.changes.take()

    def free_discarded(self, num_items: int = _ITEMS_PER_CALL) -> None:
        """Frees a part of the tables that a reset has discarded."""
        if self.discards:
            self.discards.free(num_items)

    def check_invariants(self, heads_being_written: Collection[Slot]) -> None:
        """For tests: each slot is free, or in one chain."""
        self._policy.check_invariants()
        heads = [head for shard in self.index.shards for head in shard.values()]
        busy = [slot for head in (*heads, *self._orphans, *heads_being_written) for slot in self.table.chain(head)]
        assert sorted(busy + self.table.free_slots()) == list(range(self.table.num_slots))
        readers = self.table.readers
        listed = [count for slot, count in enumerate(readers) if self.table.is_listed(Slot(slot))]
        assert all(readers[head] > 0 for head in self._orphans)
        assert sum(listed) == sum(readers[head] for head in (*heads, *self._orphans))
        assert min(listed, default=0) >= 0
        assert self._keeps_idle or all(readers[head] > 0 for head in heads)

    def _evict(self, num_slots: int, protect: Sequence[OffloadKey]) -> bool:
        if protect:
            self._policy.pin(protect)
        victims = self._policy.evict(num_slots)
        if protect:
            self._policy.unpin(protect)
        if victims is None:
            return False
        heads = self.index.pop_all(victims)
        self._tell_removed(victims, heads)
        self.table.free(heads)
        self.num_evicted += len(victims)
        if self.departures is not None:
            self.departures.note(victims, MEMORY, Leaving.EVICTED, rule=self._rule, by=self.departures.by)
        return True

    def _tell_removed(self, keys: Sequence[OffloadKey], heads: Sequence[Slot]) -> None:
        """Chunks with a part of their blocks were never told to be there: if all of one comes within this step, that is
        to be told."""
        if self.changes is None:
            return
        if partial := self.table.partial:
            self.changes.replaced([key for key, head in zip(keys, heads, strict=True) if head in partial])
            keys = [key for key, head in zip(keys, heads, strict=True) if head not in partial]
        self.changes.removed(keys)

    def _without_orphans(self, keys: Sequence[OffloadKey], heads: Sequence[Slot]) -> list[OffloadKey]:
        """Frees orphans whose last reader has gone; the keys of the others, which are resident."""
        orphans, readers = self._orphans, self.table.readers
        resident = [key for key, head in zip(keys, heads, strict=True) if head not in orphans]
        done = {head for head in heads if head in orphans and not readers[head]}
        self._orphans -= done
        self.table.free(done)
        return resident
