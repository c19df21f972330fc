"""The safety net, with full attention alone: is what was learned better than a simpler order?

Three rivals play a tier as large as the real one without its bytes, over the prefixes that requests ask for and store:
by last use (LRU), recency against frequency (ARC), and by the index. The real tier gives up in the order of the one
whose requests resumed more of late.

    unit    what a rival stores and gives up: a chunk, or some hundred tokens' in a large tier, so that a rival knows
            one key where the tier knows many
"""

from collections.abc import Sequence
from enum import IntEnum

from octavo.chunks import OffloadKey, PromisedPoint, StoredChunk, get_offload_block_hash
from octavo.policies.arc import ARCPolicy
from octavo.policies.base import EvictionPolicy
from octavo.policies.lru import LRUPolicy
from octavo.policies.stretch_columns import StretchColumns

_UNIT_TOKENS = 512
_MOST_UNITS = 512
_UNITS_PER_PART = 64
_MEMORY = 0.99
"""A request counts half after 70 others."""
_LEAD = 1.005
"""Another must resume so many times as much to take the lead."""
_MOST_RECENT = 256
"""Requests whose next promise is told from another request's. At more the oldest is forgotten."""


class Order(IntEnum):
    """In which a tier gives up points."""

    LEARNED = 0
    BY_USE = 1
    ADAPTIVE = 2


class Rival:
    """A tier without bytes."""

    def __init__(self, policy: EvictionPolicy, num_slots: int, unit_tokens: int) -> None:
        self._unit_tokens = unit_tokens
        self.policy = policy
        self.resumed = 0.0
        """Slots, those of late."""
        self._num_free = num_slots
        self._slots: dict[OffloadKey, int] = {}

    def serve(self, units: Sequence[StoredChunk], num_counted: int) -> None:
        """A request asks for this prefix, and stores it. The first of its units were counted when it promised them."""
        slots = self._slots
        there = next((index for index, unit in enumerate(units) if unit.key not in slots), len(units))
        resumed = units[num_counted:there]
        if resumed:
            self.policy.touch([unit.key for unit in units[: there if not num_counted else 0] or resumed])
        new = [unit for unit in units[there:] if unit.key not in slots]
        if self._store(new, [unit.key for unit in units if unit.key in slots]):
            tip = get_offload_block_hash(units[-1].key)
            self.policy.promise(PromisedPoint(num_tokens=len(units) * self._unit_tokens, block_hash=tip))
        self.resumed = self.resumed * _MEMORY + sum([unit.num_slots for unit in resumed])

    def _store(self, new: Sequence[StoredChunk], kept: Sequence[OffloadKey]) -> bool:
        """Stores as much as fits; whether all does."""
        for start in range(0, len(new), _UNITS_PER_PART):
            part = new[start : start + _UNITS_PER_PART]
            needed = sum([unit.num_slots for unit in part])
            if needed > self._num_free:
                self.policy.pin(kept)
                victims = self.policy.evict(needed - self._num_free)
                self.policy.unpin(kept)
                if victims is None:
                    return False
                self._num_free += sum([self._slots.pop(key) for key in victims])
            self.policy.insert(part)
            kept = [*kept, *(unit.key for unit in part)]
            self._slots |= {unit.key: unit.num_slots for unit in part}
            self._num_free -= needed
        return True


class Contest:
    """Who resumes more of late."""

    def __init__(self, learned: EvictionPolicy, num_slots: int, unit_tokens: int) -> None:
        self._adaptive = ARCPolicy((), num_slots)
        policies = {Order.LEARNED: learned, Order.BY_USE: LRUPolicy((), num_slots), Order.ADAPTIVE: self._adaptive}
        self._rivals = {order: Rival(policy, num_slots, unit_tokens) for order, policy in policies.items()}
        self._recent: dict[OffloadKey, None] = {}
        """The last units of requests that may promise more."""
        self.leader = Order.LEARNED

    @property
    def most_fresh_slots(self) -> float:
        """What those that never came back ought to have, while the adaptive order leads."""
        return self._adaptive.target_slots

    def resume(self, keys: Sequence[OffloadKey]) -> None:
        """A request resumes with these: what it promises is another request's than what was promised before."""
        for key in self._recent.keys() & set(keys):
            del self._recent[key]

    def serve(self, units: Sequence[StoredChunk]) -> None:
        counted = [index for index, unit in enumerate(units, 1) if unit.key in self._recent]
        for index in counted:
            del self._recent[units[index - 1].key]
        self._recent[units[-1].key] = None
        if len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        for rival in self._rivals.values():
            rival.serve(units, counted[-1] if counted else 0)
        best = max(self._rivals, key=lambda order: self._rivals[order].resumed)
        if self._rivals[best].resumed > self._rivals[self.leader].resumed * _LEAD:
            self.leader = best


def chunks_per_unit(num_slots: int, tokens_per_chunk: int) -> int:
    """So that rivals of a large tier know few keys, and those of a small one are exact."""
    return max(1, min(_UNIT_TOKENS // tokens_per_chunk, num_slots // _MOST_UNITS))


def units_of(stretches: StretchColumns, tip: int, per_unit: int) -> list[StoredChunk]:
    """The prefix that ends with a stretch, in units. All but the last end at the same places in every sequence."""
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
