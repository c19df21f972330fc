"""Who resumes more, with full attention alone: what was learned, or a simpler order?

Three rivals play a tier as large as the real one without its bytes, over the prefixes that requests ask for and store:
by last use (LRU), recency against frequency (ARC), and by the index. `safety_net` has the real tier follow the leader.

    unit    what a rival stores and gives up: a chunk, or some hundred tokens' in a large tier, so that a rival knows
            one key where the tier knows many
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

_UNIT_TOKENS = 512
_MOST_UNITS = 512
_UNITS_PER_PART = 64
_DEVIATIONS = 2.0
"""How many times what chance brings about an order must be ahead to lead."""
_MOST_BEHIND = 2.0
"""In leads that an order needs. None counts as farther behind, so that the lead can change when the traffic does."""
_MOST_RECENT = 256
"""Requests whose promises are awaited. Beyond this number the oldest is forgotten."""


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
        self.left: dict[OffloadKey, None] = {}
        """The units that went, by their last chunks, in the order in which they went."""
        self._unit_tokens, self._is_kept = unit_tokens, is_kept
        self._num_free = num_slots
        self._slots: dict[OffloadKey, int] = {}
        self._used: dict[OffloadKey, None] = {}
        """The last units that requests were seen to use and that promised nothing yet."""

    def resume(self, ends: Sequence[OffloadKey]) -> None:
        """A request asks for the units that end with these chunks. As in the real tier, they are used before room is
        made."""
        num_there = next((index for index, key in enumerate(ends) if key not in self._slots), len(ends))
        if num_there:
            self.policy.touch(ends[:num_there])
            _note(self._used, ends[num_there - 1])

    def were_read(self, keys: Sequence[OffloadKey]) -> None:
        """A load or a store is done with these chunks. They are where the order puts what was read."""
        ends = [key for key in keys if key in self._slots]
        self.policy.pin(ends)
        self.policy.unpin(ends)

    def serve(self, units: Sequence[StoredChunk], num_promised: int) -> int:
        """A request asks for this prefix, and stores it. Its first units were counted when it promised them. Returns
        the slots that it resumes beyond those."""
        slots = self._slots
        there = next((index for index, unit in enumerate(units) if unit.key not in slots), len(units))
        num_used = _take_last(self._used, units)
        resumed = units[num_promised:there]
        if resumed and there > num_used:
            self.policy.touch([unit.key for unit in (resumed if num_promised else units[:there])])
        new = [unit for unit in units[there:] if unit.key not in slots]
        if self._store(new, [unit.key for unit in units if unit.key in slots]):
            tip = get_offload_block_hash(units[-1].key)
            self.policy.promise(PromisedPoint(num_tokens=len(units) * self._unit_tokens, block_hash=tip))
        else:
            self.left |= {unit.key: None for unit in new if unit.key not in slots}
        return sum([unit.num_slots for unit in resumed])

    def make_room(self, num_slots: int) -> bool:
        """Gives up this much more; False if it cannot."""
        victims = self.policy.evict(num_slots)
        for key in victims or ():
            self._num_free += self._slots.pop(key)
            if self._is_kept(key):
                self.left[key] = None
        return victims is not None

    def _store(self, new: Sequence[StoredChunk], kept: Sequence[OffloadKey]) -> bool:
        """Stores as much as fits. Whether everything fits."""
        for start in range(0, len(new), _UNITS_PER_PART):
            part = new[start : start + _UNITS_PER_PART]
            needed = sum([unit.num_slots for unit in part])
            if needed > self._num_free:
                self.policy.pin(kept)
                has_room = self.make_room(needed - self._num_free)
                self.policy.unpin(kept)
                if not has_room:
                    return False
            self.policy.insert(part)
            kept = [*kept, *(unit.key for unit in part)]
            for unit in part:
                self._slots[unit.key] = unit.num_slots
                self.left.pop(unit.key, None)
            self._num_free -= needed
        return True


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
        """A request resumes with these chunks."""
        ends = keys[self.chunks_per_unit - 1 :: self.chunks_per_unit]
        for rival in self.rivals.values():
            rival.resume(ends)

    def were_read(self, keys: Sequence[OffloadKey]) -> None:
        for rival in self.rivals.values():
            rival.were_read(keys)

    def gave_up(self, keys: Sequence[OffloadKey]) -> None:
        """The real tier no longer has these chunks."""
        for rival in self.rivals.values():
            if rival.left:
                for key in keys:
                    rival.left.pop(key, None)

    def serve(self, units: Sequence[StoredChunk], num_promised: int) -> None:
        """A request promises this prefix, of which it has promised the first units before."""
        resumed = {order: rival.serve(units, num_promised) for order, rival in self.rivals.items()}
        self._longest = max(self._longest, sum([unit.num_slots for unit in units]))
        self._judge(resumed)

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


def _note(keys: dict[OffloadKey, None], key: OffloadKey) -> None:
    keys[key] = None
    if len(keys) > _MOST_RECENT:
        del keys[next(iter(keys))]


def _take_last(keys: dict[OffloadKey, None], units: Sequence[StoredChunk]) -> int:
    """The number of these units up to the last one that is noted. Removes the notes of all of them."""
    noted = [index for index, unit in enumerate(units, 1) if unit.key in keys]
    for index in noted:
        del keys[units[index - 1].key]
    return noted[-1] if noted else 0


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
