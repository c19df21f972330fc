"""The safety net, with full attention alone: the real tier follows the order that resumes more.

While a simple order leads, the real tier gives up what that rival's tier does not have (`rivals`). So it comes to hold
what the rival holds, whatever led before, and a change of the lead costs no more than one tier's content. While what
was learned leads, the real tier's own points say what goes.
"""

from collections.abc import Sequence

from octavo.chunks import OffloadKey
from octavo.policies.base import EvictionPolicy
from octavo.policies.point_table import PointTable
from octavo.policies.rivals import Contest, Order, units_in, units_of
from octavo.policies.stretches import StretchTable

_MOST_LOOKS = 16


class SafetyNet:
    """A contest of orders, and the points that go while a simple order leads."""

    def __init__(
        self,
        learned: EvictionPolicy,
        num_slots: int,
        tokens_per_chunk: int,
        stretches: StretchTable,
        points: PointTable,
    ) -> None:
        self._stretches, self._points = stretches, points
        self._contest = Contest(learned, num_slots, tokens_per_chunk, is_kept=self._is_there)
        self._has_begun = False
        """Until a writer makes its first promise there is nothing to compare."""

    @property
    def is_learned_best(self) -> bool:
        """True also until a writer makes its first promise."""
        return not self._has_begun or self._contest.leader is Order.LEARNED

    def resume(self, keys: Sequence[OffloadKey]) -> None:
        """A request resumes with these chunks."""
        if self._has_begun:
            self._contest.resume(keys)

    def stored(self, numbers: Sequence[int]) -> None:
        """These stretches have come."""
        if self._has_begun:
            per_unit = self._contest.chunks_per_unit
            self._contest.store([unit for number in numbers for unit in units_in(self._stretches, number, per_unit)])

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        if self._has_begun:
            self._contest.pin(keys)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        if self._has_begun:
            self._contest.unpin(keys)

    def serve(self, key: OffloadKey, promised_tokens: int) -> None:
        """A writer promises the point that ends with this chunk, and has promised this much of it before."""
        tip = self._stretches.find(key)
        if tip and self._stretches.is_complete(tip):
            self._has_begun = True
            num_promised = promised_tokens // self._contest.unit_tokens
            self._contest.serve(units_of(self._stretches, tip, self._contest.chunks_per_unit), num_promised)

    def gave_up(self, keys: Sequence[OffloadKey]) -> None:
        """The real tier no longer has these chunks."""
        if self._has_begun:
            self._contest.gave_up(keys)

    def make_room(self, num_slots: int) -> None:
        """The real tier is about to give up this much."""
        if self._has_begun:
            self._contest.shrink_to(self._stretches.num_slots - num_slots)

    def least(self, num_slots: int) -> tuple[int, int] | None:
        """A point that the leader's tier no longer has, and how many of its slots may go, if this many are wanted. None
        if no such point is found within the bounded search."""
        left = self._contest.rivals[self._contest.leader].left
        for _ in range(min(_MOST_LOOKS, left.num_slots)):
            key = left.oldest()
            assert key is not None, "some are left"
            found = self._end_above(OffloadKey(key), num_slots)
            if found:
                return found
            left.pop(key)
            if self._is_there(OffloadKey(key)):
                left.add(key, 1)
        return None

    def check_invariants(self) -> None:
        self._contest.check_invariants()

    def _is_there(self, key: OffloadKey) -> bool:
        number = self._stretches.find(key)
        return number > 0 and self._stretches.chunk_slots[number] > 0

    def _end_above(self, key: OffloadKey, num_slots: int) -> tuple[int, int] | None:
        """The end of the sequence that goes on from this unit, and its slots from the unit on, since what follows a
        missing unit cannot be resumed. A unit goes only in part if nothing follows it."""
        stretches, per_unit = self._stretches, self._contest.chunks_per_unit
        if not self._is_there(key):
            return None
        number = stretches.find(key)
        tip = stretches.end_above(number)
        point = stretches.points[tip]
        if not point or stretches.is_pinned(tip) or self._points.is_weighed(point):
            return None
        index = stretches.starts[number] + stretches.keys[number].index(key)
        if (index + 1) % per_unit and stretches.keys[tip][-1] != key:
            return None
        end, chunk_slots = stretches.starts[tip] + len(stretches.keys[tip]), stretches.chunk_slots[tip]
        wanted = (end - -(-num_slots // chunk_slots)) // per_unit * per_unit
        return point, (end - max(index // per_unit * per_unit, wanted)) * chunk_slots
