"""What is known of each stretch of chunks, by its number, and walks from one to the next (see `stretches`).

A chunk is one dictionary entry, the number of its stretch; what is known of a stretch lies in arrays at that number.
Each holder is a number: of the stretches that follow, or of points. Of those that hold a stretch the exclusive or is
kept; so when one is left, it is known which.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from enum import Enum

from octavo.chunks import OffloadKey
from octavo.tables import ShardedDict


class Links(Enum):
    """What the link from a chunk to the chunk before it in its group means."""

    NONE = "none"
    """No link is kept: a resume needs one chunk at most."""
    RUN = "run"
    """A resume needs a few chunks, which are found through the links."""
    PREFIX = "prefix"
    """A resume needs all chunks: a stretch holds the one before it."""


class StretchColumns:
    """The columns of all stretches, by number, and how stretches hang together. Number 0 stands for none."""

    def __init__(self, links: Mapping[bytes, Links], first_number: int) -> None:
        """`links`: by the last four bytes of a key, which name its group."""
        self._links = links
        self._numbers = ShardedDict(0)
        """Chunk -> the number of its stretch."""
        self.find: Callable[[OffloadKey], int] = self._numbers.get
        """The number of a chunk's stretch; 0 if the chunk is unknown."""
        self.keys: list[tuple[OffloadKey, ...]] = [()] * first_number
        self.parents: list[OffloadKey | None] = [None] * first_number
        """The chunk before the first one of the stretch."""
        self.chunk_slots = array("i", [0] * first_number)
        """The slots of each chunk; 0 for a hole."""
        self.starts = array("i", [0] * first_number)
        """The position of the first chunk in its sequence."""
        self.num_holders = array("i", [0] * first_number)
        self.holders = array("i", [0] * first_number)
        """The exclusive or of all holders: in a prefix group the stretches that follow, else points."""
        self.befores = array("i", [0] * first_number)
        """In a prefix group the stretch before, which this one holds; else 0."""
        self.in_prefix = array("b", [0] * first_number)
        """1 in a prefix group."""
        self.num_holes = 0
        self.points = array("i", [0] * first_number)
        """The point that ends with the stretch; 0 if there is none. In a prefix group it is one of the holders."""
        self._free = array("i")

    def slots_of(self, number: int) -> int:
        return self.chunk_slots[number] * len(self.keys[number])

    def before(self, number: int) -> int:
        """The stretch before this one; 0 if there is none or it is not there."""
        if self.in_prefix[number]:
            return self.befores[number]
        parent = self.parents[number]
        return 0 if parent is None else self._numbers.get(parent)

    def down(self, number: int) -> Iterator[int]:
        """A stretch and those before it, as far as they are there."""
        while number:
            yield number
            number = self.before(number)

    def is_complete(self, number: int) -> bool:
        """Whether all chunks of the sequence up to the end of this stretch of a prefix group are there: a hole stands
        where one is not."""
        if not self.num_holes:
            return number > 0
        while number and self.chunk_slots[number]:
            if self.parents[number] is None:
                return True
            number = self.befores[number]
        return False

    def point_below(self, number: int) -> int:
        """The next point before a stretch of a prefix group; 0, which has no tokens, if there is none."""
        befores, points = self.befores, self.points
        number = befores[number]
        while number and not points[number]:
            number = befores[number]
        return points[number]

    def parts_below(self, number: int) -> bool:
        """Whether other sequences part from this one between a stretch of a prefix group and the next point before."""
        number = self.befores[number]
        while number and not self.points[number]:
            if self.num_holders[number] > 1:
                return True
            number = self.befores[number]
        return False

    def has_run(self, key: OffloadKey | None, count: int) -> bool:
        """Whether the last `count` chunks up to this one are there."""
        while count > 0:
            number = 0 if key is None else self._numbers.get(key)
            if key is None or not number or not self.chunk_slots[number]:
                return False
            count -= self.keys[number].index(key) + 1
            key = self.parents[number]
        return True

    def point_above(self, number: int) -> int:
        """The point that alone holds a stretch of a prefix group, or what follows it; 0 if there is none."""
        while self.num_holders[number] == 1:
            if self.points[number]:
                return self.points[number]
            number = self.holders[number]
        return 0

    def next_point(self, number: int) -> int:
        """The next point after the end of a stretch of a prefix group, if the sequence does not part before it; else
        0. Others may follow it."""
        while self.num_holders[number] - (self.points[number] > 0) == 1:
            number = self.holders[number]
            if self.points[number]:
                return self.points[number]
        return 0

    def end_above(self, number: int) -> int:
        """The end of the only sequence that goes on from a stretch of a prefix group; 0 if there are several."""
        while self.num_holders[number] - (self.points[number] > 0) == 1:
            number = self.holders[number]
        return number if self.num_holders[number] == 1 else 0

    def exclusive_slots(self, number: int) -> int:
        """The slots that become free when the only holder of a stretch goes and nobody reads them: its own, and in a
        prefix group those of the stretches before that it alone holds."""
        num_slots = 0
        while number and self.num_holders[number] == 1:
            num_slots += self.chunk_slots[number] * len(self.keys[number])
            number = self.befores[number]
        return num_slots

    def shared_slots(self, number: int) -> int:
        """The part of a stretch in the slots that it keeps together with others, down to the next point before it. All
        have equal parts: where two sequences go on from 20 chunks, each has ten."""
        before, num_sharing, num_slots = number, self.num_holders[number], 0.0
        while (before := self.befores[before]) and not self.points[before]:
            num_sharing *= self.num_holders[before]
            if num_sharing > 1:
                num_slots += self.chunk_slots[before] * len(self.keys[before]) / num_sharing
        return round(num_slots)

    def slots_per_holder(self, number: int) -> float:
        """The part of each holder in a stretch."""
        return self.slots_of(number) / self.num_holders[number]

    def _new_number(self) -> int:
        """The number of a new stretch, with empty columns."""
        if self._free:
            number = self._free.pop()
            self.num_holders[number] = self.holders[number] = self.points[number] = 0
            return number
        self._grow()
        return len(self.keys) - 1

    def _grow(self) -> None:
        """Adds one number to all columns."""
        for array_ in (
            self.chunk_slots,
            self.starts,
            self.num_holders,
            self.holders,
            self.points,
            self.befores,
            self.in_prefix,
        ):
            array_.append(0)
        self.keys.append(())
        self.parents.append(None)

    # ---- for tests ---------------------------------------------------------------------------------------------

    def numbers(self) -> set[int]:
        return {number for _, number in self._numbers.items()}

    def check_columns(self) -> None:
        numbers = self.numbers()
        assert all(self._numbers.get(key) == number for number in numbers for key in self.keys[number])
        assert len(self._numbers) == sum(len(self.keys[number]) for number in numbers)
        assert not numbers & set(self._free)
        assert self.num_holes == sum(not self.chunk_slots[number] for number in numbers)
        for number in numbers:
            assert self.in_prefix[number] == (self._links[self.keys[number][-1][-4:]] is Links.PREFIX)
            before = self.befores[number]
            assert (before > 0) == (self.in_prefix[number] and self.parents[number] is not None)
            assert not before or self.parents[number] == self.keys[before][-1]
