"""Who resumes more, with full attention alone: what was learned, or a simpler order?

Three rivals play a tier as large as the real one without its bytes: by last use (LRU), recency against frequency (ARC),
and by the index. They are told whatever the real tier is told, at the same moments, and make room when it does. So each
holds what the real tier would hold if it had followed that order, save that a prompt that came in parts is, as a whole,
as new as its promise. `safety_net` has the real tier follow the leader.

    unit    what a rival stores and gives up: a chunk, or some hundred tokens' in a large tier, so that a rival knows
            one key where the tier knows many
    fresh   units that were stored, or lie behind one that was, and were not promised since: their request has not
            resumed them, and when it promises they do not count
    left    units that the real tier has and a rival has not: what follows that rival gives up first
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from math import sqrt

from octavo.chunks import OffloadKey, PromisedPoint, StoredChunk, get_offload_block_hash
from octavo.policies.arc import ARCPolicy
from octavo.policies.base import EvictionPolicy
from octavo.policies.lru import LRUPolicy
from octavo.policies.stretch_columns import StretchColumns
from octavo.tables import RecencyOrder, ShardedDict

_UNIT_TOKENS = 512
_MOST_UNITS = 512
_UNITS_PER_PART = 64
_DEVIATIONS = 1.5
"""How many times what chance brings about an order must be ahead to lead."""
_MOST_BEHIND = 2.0
"""In leads that an order needs. None counts as farther behind, so that the lead can change when the traffic does."""


class Order(IntEnum):
    """The orders in which a tier can give up points."""

    LEARNED = 0
    BY_USE = 1
    ADAPTIVE = 2


class Rival:
    """A tier without bytes, which follows one order."""

    def __init__(
        self,
        policy: EvictionPolicy,
        num_slots: int,
        unit_tokens: int,
        *,
        is_kept: Callable[[OffloadKey], bool] = lambda _: False,
    ) -> None:
        """`is_kept`: whether the real tier has a chunk."""
        self.policy = policy
        self.left = RecencyOrder()
        """The units that went, by their last chunks, in the order in which they went."""
        self._unit_tokens, self._is_kept = unit_tokens, is_kept
        self._num_slots = self._num_free = num_slots
        self._slots = ShardedDict(0)
        """By unit. The rivals get the same units, so these tables grow in one call: each in small parts."""
        self._fresh: dict[OffloadKey, None] = {}
        self._readers: dict[OffloadKey, int] = {}
        """By unit: how many read it."""

    def __contains__(self, key: OffloadKey) -> bool:
        """Whether it has the unit that ends with this chunk."""
        return key in self._slots

    def resume(self, ends: Sequence[OffloadKey]) -> None:
        """A request resumes with the units that end with these chunks."""
        num_there = next((index for index, key in enumerate(ends) if key not in self._slots), len(ends))
        self.policy.touch(ends[:num_there])
        for key in ends[:num_there]:
            self._fresh.pop(key, None)

    def store(self, units: Sequence[StoredChunk]) -> None:
        """A request has stored these units. It would have resumed with those that are here, if all before them are."""
        found, new = [], []
        for unit in units:
            if unit.key not in self._slots:
                new.append(unit)
            elif unit.parent is None or (unit.parent in self._slots and unit.parent not in self._fresh):
                found.append(unit.key)
                self._fresh.pop(unit.key, None)
            else:
                self._fresh[unit.key] = None
        self.policy.touch(found)
        self._store(new, ())
        self._fresh |= {unit.key: None for unit in new if unit.key in self._slots}

    def serve(self, units: Sequence[StoredChunk], num_promised: int) -> int:
        """A request promises this prefix, of which it has promised the first units before. Returns the slots that it
        would have resumed beyond those. They all are as new as if they had come at once, so that the last go first."""
        slots, fresh = self._slots, self._fresh
        is_there = [unit.key in slots and unit.key not in fresh for unit in units]
        num_there = is_there.index(False) if False in is_there else len(units)
        new = [unit for unit in units[num_there:] if unit.key not in slots]
        came_at_once = len(new) == len(units) - num_promised <= _UNITS_PER_PART
        if self._store(new, [unit.key for unit in units if unit.key in slots]):
            tip = get_offload_block_hash(units[-1].key)
            self.policy.promise(PromisedPoint(num_tokens=len(units) * self._unit_tokens, block_hash=tip))
        if not came_at_once:
            part = [unit.key for unit in units[num_promised:] if unit.key in slots]
            self.policy.pin(part)
            self.policy.unpin(part)
        for unit in units:
            fresh.pop(unit.key, None)
        return sum([unit.num_slots for unit in units[num_promised:num_there]])

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        ends = [key for key in keys if key in self._slots]
        self.policy.pin(ends)
        for key in ends:
            self._readers[key] = self._readers.get(key, 0) + 1

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        """Units that came while the real tier's were being read are where the order puts what was read, too."""
        ends = [key for key in keys if key in self._slots]
        self.policy.pin([key for key in ends if key not in self._readers])
        self.policy.unpin(ends)
        for key in ends:
            num_readers = self._readers.pop(key, 1) - 1
            if num_readers:
                self._readers[key] = num_readers

    def gave_up(self, keys: Sequence[OffloadKey]) -> None:
        """The real tier no longer has these chunks. Those that were removed from outside have no readers any more."""
        if self.left.num_slots:
            self.left.drop(keys)
        if self._readers:
            for key in keys:
                self.policy.unpin([key] * self._readers.pop(key, 0))

    def shrink_to(self, num_slots: int) -> None:
        """Gives up what is more than this, as far as nobody reads it."""
        self._make_room(self._num_slots - self._num_free - num_slots)

    def _make_room(self, num_slots: int) -> bool:
        """Gives up this much more; False if it cannot."""
        if num_slots <= 0:
            return True
        victims = self.policy.evict(num_slots)
        for key in victims or ():
            self._num_free += self._slots.pop(key)
            self._fresh.pop(key, None)
            if self._is_kept(key):
                self.left.add(key, 1)
        return victims is not None

    def _store(self, new: Sequence[StoredChunk], kept: Sequence[OffloadKey]) -> bool:
        """Stores as much as fits beside these units. Whether everything fits."""
        for start in range(0, len(new), _UNITS_PER_PART):
            part = new[start : start + _UNITS_PER_PART]
            num_slots = sum([unit.num_slots for unit in part])
            if num_slots > self._num_free:
                self.policy.pin(kept)
                has_room = self._make_room(num_slots - self._num_free)
                self.policy.unpin(kept)
                if not has_room:
                    for unit in new[start:]:
                        if unit.key not in self.left:
                            self.left.add(unit.key, 1)
                    return False
            self.policy.insert(part)
            kept = [*kept, *(unit.key for unit in part)]
            for unit in part:
                self._slots[unit.key] = unit.num_slots
                self.left.pop(unit.key)
            self._num_free -= num_slots
        return True

    def check_invariants(self) -> None:
        self.policy.check_invariants()
        slots = dict(self._slots.items())
        assert self._num_free == self._num_slots - sum(slots.values())
        assert self._fresh.keys() <= slots.keys()
        assert self._readers.keys() <= slots.keys()
        self.left.check_invariants()
        assert not any(key in slots for key in self.left)
        assert all(map(self._is_kept, map(OffloadKey, self.left))), "the real tier has what a rival has not"


class Contest:
    """Compares how much the orders resume. ARC leads until another order has resumed more."""

    def __init__(
        self,
        learned: EvictionPolicy,
        num_slots: int,
        tokens_per_chunk: int,
        *,
        is_kept: Callable[[OffloadKey], bool] = lambda _: False,
    ) -> None:
        self.chunks_per_unit = chunks_per_unit(num_slots, tokens_per_chunk)
        self.unit_tokens = self.chunks_per_unit * tokens_per_chunk
        policies = {
            Order.LEARNED: learned,
            Order.BY_USE: LRUPolicy((), num_slots),
            Order.ADAPTIVE: ARCPolicy((), num_slots),
        }
        self.rivals = {
            order: Rival(policy, num_slots, tokens_per_chunk, is_kept=is_kept) for order, policy in policies.items()
        }
        self._longest = 0
        self.leader = Order.ADAPTIVE
        self._ahead = dict.fromkeys(Order, 0.0)
        """By how many slots each order has resumed more than the leader, since that leads."""
        self._squares = dict.fromkeys(Order, 0.0)
        """The squares of what was added to that, request by request."""

    def resume(self, keys: Sequence[OffloadKey]) -> None:
        """A request resumes with these chunks, which are the first ones of its sequence."""
        ends = list(keys[self.chunks_per_unit - 1 :: self.chunks_per_unit])
        ends += keys[-1:] if len(keys) % self.chunks_per_unit else ()
        for rival in self.rivals.values():
            rival.resume(ends)

    def store(self, units: Sequence[StoredChunk]) -> None:
        """The real tier has stored these units."""
        if units:
            for rival in self.rivals.values():
                rival.store(units)

    def serve(self, units: Sequence[StoredChunk], num_promised: int) -> None:
        """A request promises this prefix, of which it has promised the first units before."""
        resumed = {order: rival.serve(units, num_promised) for order, rival in self.rivals.items()}
        self._longest = max(self._longest, sum([unit.num_slots for unit in units]))
        self._judge(resumed)

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        for rival in self.rivals.values():
            rival.pin(keys)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        for rival in self.rivals.values():
            rival.unpin(keys)

    def gave_up(self, keys: Sequence[OffloadKey]) -> None:
        for rival in self.rivals.values():
            rival.gave_up(keys)

    def shrink_to(self, num_slots: int) -> None:
        """The real tier makes room, and holds this much then."""
        for rival in self.rivals.values():
            rival.shrink_to(num_slots)

    def check_invariants(self) -> None:
        for rival in self.rivals.values():
            rival.check_invariants()

    def _judge(self, resumed: Mapping[Order, int]) -> None:
        """Notes how much of a request each order has resumed."""
        for order in Order:
            more = resumed[order] - resumed[self.leader]
            if more:
                self._squares[order] += more * more
                least = -_MOST_BEHIND * self._lead_needed(order)
                self._ahead[order] = max(least, self._ahead[order] + more)
        best = max(Order, key=lambda order: self._ahead[order] - self._lead_needed(order))
        if self._ahead[best] > self._lead_needed(best):
            self.leader = best
            self._ahead = dict.fromkeys(Order, 0.0)
            self._squares = dict.fromkeys(Order, 0.0)

    def _lead_needed(self, order: Order) -> float:
        """More than chance brings about, and more than one prompt, so that no single request decides."""
        return _DEVIATIONS * sqrt(self._squares[order]) + self._longest


def chunks_per_unit(num_slots: int, tokens_per_chunk: int) -> int:
    """The chunks of a unit: more in a large tier, so that its rivals know few keys, and one in a small tier, so that
    they are exact."""
    return max(1, min(_UNIT_TOKENS // tokens_per_chunk, num_slots // _MOST_UNITS))


def units_of(stretches: StretchColumns, tip: int, per_unit: int) -> list[StoredChunk]:
    """The prefix that ends with a stretch, in units. All units but the last end at the same places in every
    sequence."""
    ends: list[tuple[OffloadKey, int]] = []
    for number in stretches.down(tip):
        keys, start = stretches.keys[number], stretches.starts[number]
        if not ends:
            ends.append((keys[-1], start + len(keys)))
        last = (start + len(keys)) // per_unit * per_unit
        ends += [(keys[end - start - 1], end) for end in range(last, start, -per_unit) if end != ends[0][1]]
    units: list[StoredChunk] = []
    parent, start = None, 0
    for key, end in reversed(ends):
        units.append(StoredChunk(key, (end - start) * stretches.chunk_slots[tip], len(units), parent))
        parent, start = key, end
    return units


def units_in(stretches: StretchColumns, number: int, per_unit: int) -> list[StoredChunk]:
    """The whole units that end in a stretch; none if the unit before them is not known."""
    keys, start = stretches.keys[number], stretches.starts[number]
    first = start // per_unit * per_unit + per_unit
    ends = range(first, start + len(keys) + 1, per_unit)
    parent = _chunk_at(stretches, number, first - per_unit - 1) if ends else None
    units: list[StoredChunk] = []
    if first > per_unit and parent is None:
        return units
    for end in ends:
        key = keys[end - start - 1]
        units.append(StoredChunk(key, per_unit * stretches.chunk_slots[number], end // per_unit - 1, parent))
        parent = key
    return units


def _chunk_at(stretches: StretchColumns, number: int, index: int) -> OffloadKey | None:
    """The chunk at this place of the sequence that goes on to a stretch; None if it cannot be told."""
    while number and stretches.chunk_slots[number]:
        start = stretches.starts[number]
        if index >= start - 1:
            return stretches.keys[number][index - start] if index >= start else stretches.parents[number]
        number = stretches.before(number)
    return None
