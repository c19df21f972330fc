"""Who holds each stretch of chunks, and what follows from it (see `stretches`).

    points, and in a prefix group the stretches that follow  --hold-->  a stretch  --holds-->  the one before

A stretch that nobody holds any more is unneeded. Where one holder is left, the point that it belongs to frees more than
before when it goes; and where a point comes or goes, the next one saves fewer tokens or more. Such points are noted, so
that their worth is reckoned anew.
"""

from collections.abc import Iterator, Mapping, Sequence

from octavo.policies.stretch_columns import Links, StretchColumns
from octavo.tables import LinkedLists

UNNEEDED, IDLE, _NUM_LISTS = 0, 1, 2


class HeldStretches(StretchColumns):
    """The holders of stretches, and the lists of those that nobody reads."""

    def __init__(self, links: Mapping[bytes, Links]) -> None:
        """`links`: by the last four bytes of a key, which name its group."""
        super().__init__(links, first_number=_NUM_LISTS)
        self._lists = LinkedLists(_NUM_LISTS)
        """One list of unneeded stretches, and one of all other idle stretches, the longest idle first."""
        self.changed: set[int] = set()
        """Points that may hold more or less for themselves than when they were last reckoned, or save more or less.
        Point 0 stands for none."""

    def _grow(self) -> None:
        super()._grow()
        self._lists.grow()

    def add_point(self, number: int, point: int) -> None:
        """A point ends with this stretch of a prefix group, and holds it."""
        self.points[number] = point
        self._count_holder(number, self.holders[number])
        self.changed.add(self.next_point(number))

    def remove_point(self, number: int, point: int) -> None:
        """A point no longer holds this stretch, which it may have ended with."""
        if self.points[number] == point:
            self.points[number] = 0
        if self.in_prefix[number]:
            self._uncount_holder(number)
        else:
            self.release(number, point)

    def hold(self, number: int, holder: int) -> None:
        """Adds a holder: in a prefix group a stretch that follows, else a point."""
        other = self.holders[number]
        self.holders[number] = other ^ holder
        self._count_holder(number, other)

    def release(self, number: int, holder: int) -> None:
        """Removes a holder, which `hold` added."""
        self.holders[number] ^= holder
        self._uncount_holder(number)

    def only_point(self, number: int) -> int:
        """The point that alone holds this stretch; 0 if there is none."""
        if self.num_holders[number] != 1:
            return 0
        return self.point_above(number) if self.in_prefix[number] else self.holders[number]

    def only_points(self, numbers: Sequence[int]) -> list[int]:
        """`only_point` of each of these. The way to a point may be long, and is walked once for all stretches on it."""
        known: dict[int, int] = {}
        return [
            self._only_point_with(known, number) if self.in_prefix[number] else self.only_point(number)
            for number in numbers
        ]

    def _only_point_with(self, known: dict[int, int], number: int) -> int:
        passed = []
        while number not in known and self.num_holders[number] == 1 and not self.points[number]:
            passed.append(number)
            number = self.holders[number]
        point = known[number] if number in known else self.only_point(number)
        known.update(dict.fromkeys([*passed, number], point))
        return point

    def idle(self) -> Iterator[int]:
        """The stretches that somebody holds and nobody reads, the longest idle first."""
        return self._lists.items(IDLE)

    def _count_holder(self, number: int, other: int) -> None:
        num_holders = self.num_holders[number] = self.num_holders[number] + 1
        if num_holders == 1:
            self._lists.move(IDLE, number)
        elif num_holders == 2:
            if not self.in_prefix[number]:
                self.changed.add(other)
            else:
                self.changed.add(self.points[number] if not other else self.point_above(other))

    def _uncount_holder(self, number: int) -> None:
        num_holders = self.num_holders[number] = self.num_holders[number] - 1
        if num_holders:
            self._note_change(number)
        elif self.chunk_slots[number]:
            self._lists.move_first(UNNEEDED, number)  # it goes first
        else:
            self._forget(number)

    def _note_change(self, number: int) -> None:
        """Notes that the point which alone holds this stretch may now hold more or less for itself, or that the next
        one saves more or less."""
        if self.num_holders[number] == 1:
            own = self.points[number] if self.in_prefix[number] else self.holders[number]
            self.changed.add(own or self.next_point(number))

    def _forget(self, number: int, *, is_indexed: bool = True) -> None:
        """Forgets a stretch that nobody holds."""
        before, self.befores[number] = self.befores[number], 0
        if is_indexed:
            for key in self.keys[number]:
                self._numbers.pop(key)
        if not self.chunk_slots[number]:
            self.num_holes -= 1
        self._lists.remove(number)
        self.keys[number], self.parents[number] = (), None
        self.chunk_slots[number] = self.in_prefix[number] = 0
        self._free.append(number)
        if before:
            self.release(before, number)
