"""Adaptive replacement: recency against frequency, weighed by what the recent past regretted.

N. Megiddo, D. S. Modha: ARC: A Self-Tuning, Low Overhead Replacement Cache. FAST 2003. Names are the paper's:

    b1 [ghosts]  <-- t1 [used once]        t1 is given up while it is larger than the target p, else t2
    b2 [ghosts]  <-- t2 [used again]       a hit in b1 raises p, one in b2 lowers it

Deviations, all intended:
- Sizes are slots, since chunks differ in size: p, the lists and their bounds; a ghost counts what its chunk had.
- Room is made before the newcomer is named, so p moves when it is inserted, after the replacement that the paper
  makes depend on it; its tie rule (a hit in b2 while t1 is exactly p) has nothing to decide on.
- A chunk in use (pinned) is in no list, and comes back as the newest of its own.
- A hit in b1 or b2 is an insertion of that key. A touch of a ghost changes nothing: its store will follow, or not.
"""

from collections.abc import Sequence
from typing import cast

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk
from octavo.policies.base import EvictionPolicy
from octavo.policies.pinned import PinnedChunks
from octavo.tables import Part, RecencyOrder, RecencyTable


class ARCPolicy(EvictionPolicy):
    """Two orders of idle chunks, two of ghosts, and the target for the slots of chunks that were used once."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int) -> None:
        self._capacity = num_slots
        self._start()

    def _start(self) -> None:
        table = self._table = RecencyTable()
        self._t1, self._t2 = RecencyOrder(table), RecencyOrder(table)
        self._b1, self._b2 = RecencyOrder(table), RecencyOrder(table)
        self._p = 0.0
        self._pinned = PinnedChunks()
        """Keeps slots * 2 for each pinned chunk, + 1 if it belongs to t2."""

    def clear(self) -> Sequence[Part]:
        orders = (self._t1, self._t2, self._b1, self._b2)
        parts = [part for order in orders for part in order.parts()]
        parts += [*self._table.parts(), *self._pinned.parts()]
        self._start()
        return parts

    @property
    def target_slots(self) -> float:
        """The paper's p: the slots that chunks used once ought to have."""
        return self._p

    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        tail_first = chunks[::-1]
        if self._b1.num_slots or self._b2.num_slots:
            tail_first = [chunk for chunk in tail_first if not self._is_regretted(chunk)]
        self._t1.extend([chunk.key for chunk in tail_first], [chunk.num_slots for chunk in tail_first])

    def _is_regretted(self, chunk: StoredChunk) -> bool:
        """Whether the chunk was given up too early. If so, it is in t2 now, and p has moved."""
        b1_slots, b2_slots = self._b1.num_slots, self._b2.num_slots
        if self._b1.pop(chunk.key) is not None:
            self._p = min(self._capacity, self._p + chunk.num_slots * max(1.0, b2_slots / b1_slots))
        elif self._b2.pop(chunk.key) is not None:
            self._p = max(0.0, self._p - chunk.num_slots * max(1.0, b1_slots / b2_slots))
        else:
            return False
        self._t2.add(chunk.key, chunk.num_slots)
        return True

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for key in reversed(keys):
            num_slots = self._t1.pop(key)
            if num_slots is not None:
                self._t2.add(key, num_slots)
            elif key in self._pinned:
                self._pinned.replace(key, self._pinned[key] | 1)
            else:
                self._t2.renew((key,))

    def promise(self, point: PromisedPoint) -> None:
        """ARC ignores promises."""

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if (num_slots := self._t1.pop(key)) is not None:
                self._pinned.add(key, num_slots << 1)
            elif (num_slots := self._t2.pop(key)) is not None:
                self._pinned.add(key, num_slots << 1 | 1)
            else:
                self._pinned.add_reader(key)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        for key in reversed(keys):
            value = self._pinned.remove_reader(key)
            if value is not None:
                order = self._t2 if value & 1 else self._t1
                order.add(key, value >> 1)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if self._t1.pop(key) is None and self._t2.pop(key) is None:
                self._pinned.forget(key)

    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        if self._t1.num_slots + self._t2.num_slots < num_slots:
            return None
        victims: list[OffloadKey] = []
        missing = num_slots
        missing -= self._replace(self._t1, self._b1, min(missing, self._t1.num_slots - int(self._p)), victims)
        missing -= self._replace(self._t2, self._b2, missing, victims)
        self._replace(self._t1, self._b1, missing, victims)
        self._trim_ghosts()
        return victims

    def _replace(self, order: RecencyOrder, ghosts: RecencyOrder, num_slots: int, victims: list[OffloadKey]) -> int:
        """Gives up the oldest chunk of one order. Returns the slots that become free."""
        if num_slots <= 0:
            return 0
        keys, slots = order.move_oldest(num_slots, ghosts)
        victims += cast("list[OffloadKey]", keys)
        return sum(slots)

    def _trim_ghosts(self) -> None:
        """Keeps the paper's bounds: t1 and b1 together within the capacity, all four within twice the capacity."""
        t1, t2, b1, b2 = (order.num_slots for order in (self._t1, self._t2, self._b1, self._b2))
        self._b1.pop_oldest(t1 + b1 - self._capacity)
        self._b2.pop_oldest(t1 + t2 + self._b1.num_slots + b2 - 2 * self._capacity)

    def check_invariants(self) -> None:
        orders = (self._t1, self._t2, self._b1, self._b2)
        for order in orders:
            order.check_invariants()
        keys = [key for order in orders for key in order] + list(self._pinned)
        assert len(keys) == len(set(keys))
        assert 0 <= self._p <= self._capacity
