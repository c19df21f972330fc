"""Least recently used: a chunk's worth is its last use, whatever its group."""

from collections.abc import Sequence
from typing import cast

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk
from octavo.policies.base import EvictionPolicy
from octavo.policies.pinned import PinnedChunks
from octavo.tables import Part, RecencyOrder, RecencyTable


class LRUPolicy(EvictionPolicy):
    """Gives up the chunks whose last use is longest ago. Chunks of one call count as used from the last to the first,
    so that a sequence is given up from its end: a chunk without its ancestors is worth nothing. Reading counts as a
    use: a chunk that is unpinned is the newest."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int) -> None:
        self._start()

    def _start(self) -> None:
        self._table = RecencyTable()
        self._idle = RecencyOrder(self._table)
        self._pinned = PinnedChunks()

    def clear(self) -> Sequence[Part]:
        parts = [*self._idle.parts(), *self._table.parts(), *self._pinned.parts()]
        self._start()
        return parts

    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        tail_first = chunks[::-1]
        self._idle.extend([chunk.key for chunk in tail_first], [chunk.num_slots for chunk in tail_first])

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._idle.renew(reversed(keys))

    def promise(self, point: PromisedPoint) -> None:
        """LRU ignores promises."""

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            num_slots = self._idle.pop(key)
            if num_slots is None:
                self._pinned.add_reader(key)
            else:
                self._pinned.add(key, num_slots)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        for key in reversed(keys):
            num_slots = self._pinned.remove_reader(key)
            if num_slots:
                self._idle.add(key, num_slots)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if self._idle.pop(key) is None:
                self._pinned.forget(key)

    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        if self._idle.num_slots < num_slots:
            return None
        keys, _ = self._idle.pop_oldest(num_slots)
        return cast("list[OffloadKey]", keys)

    def check_invariants(self) -> None:
        self._idle.check_invariants()
        assert not any(key in self._idle for key in self._pinned)
