"""`LinkedLists`: numbers in doubly linked lists, kept in two flat arrays.

    list 0    0 <-> 7 <-> 4 <-> 9 <-> 0        a list is a ring that begins with its own number

A number is in one list at most. Every operation takes constant time, and the garbage collector has nothing to follow.
"""

from array import array
from collections.abc import Iterator

_NOWHERE = -1


class LinkedLists:
    """Lists 0 to `num_lists` - 1 of numbers from `num_lists` on."""

    def __init__(self, num_lists: int) -> None:
        self.num_lists = num_lists
        self._next = array("i", range(num_lists))
        self._prev = array("i", range(num_lists))

    def grow(self) -> None:
        """Adds one number, in no list."""
        self._next.append(_NOWHERE)
        self._prev.append(_NOWHERE)

    def __contains__(self, number: int) -> bool:
        return self._next[number] != _NOWHERE

    def first(self, list_: int) -> int | None:
        number = self._next[list_]
        return None if number == list_ else number

    def append(self, list_: int, number: int) -> None:
        """Makes it the last; it must be in no list."""
        before = self._prev[list_]
        self._next[number], self._prev[number] = list_, before
        self._next[before] = self._prev[list_] = number

    def insert_after(self, before: int, number: int) -> None:
        """Puts it behind another number, or first in the list that `before` is; it must be in no list."""
        following = self._next[before]
        self._next[number], self._prev[number] = following, before
        self._prev[following] = self._next[before] = number

    def move(self, list_: int, number: int) -> None:
        """Makes it the last of this list, if it is in a list."""
        following, before = self._next[number], self._prev[number]
        if following != _NOWHERE:
            self._next[before], self._prev[following] = following, before
            last = self._prev[list_]
            self._next[number], self._prev[number] = list_, last
            self._next[last] = self._prev[list_] = number

    def move_first(self, list_: int, number: int) -> None:
        """Makes it the first of this list, if it is in a list."""
        following, before = self._next[number], self._prev[number]
        if following != _NOWHERE:
            self._next[before], self._prev[following] = following, before
            first = self._next[list_]
            self._next[number], self._prev[number] = first, list_
            self._prev[first] = self._next[list_] = number

    def remove(self, number: int) -> None:
        """Takes the number out of its list, if it is in one."""
        following, before = self._next[number], self._prev[number]
        if following != _NOWHERE:
            self._next[before], self._prev[following] = following, before
            self._next[number] = self._prev[number] = _NOWHERE

    def items(self, list_: int) -> Iterator[int]:
        number = self._next[list_]
        while number != list_:
            yield number
            number = self._next[number]

    def check_invariants(self) -> None:
        """For tests: checks that both arrays agree."""
        seen = [number for list_ in range(self.num_lists) for number in self.items(list_)]
        assert len(seen) == len(set(seen))
        for number, following in enumerate(self._next):
            assert following == _NOWHERE or self._prev[following] == number
        assert sorted(seen) == [n for n in range(self.num_lists, len(self._next)) if n in self]
