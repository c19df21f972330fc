"""The bytes of a naive memory, as names: every slot of every page says which prefix of which request it holds.

`Prefixes` gives the names. Two requests share one exactly where their KV must be the same.
"""

from collections.abc import Hashable
from typing import NamedTuple

STATE_SLOT = -1
"""The slot in a page of recurrent state, which belongs to no token."""


class Slot(NamedTuple):
    """The content of one slot of a page."""

    group: int
    prefix: int
    weights: int


class Prefixes:
    """Numbers all prefixes of all kinds of requests. A prefix's number stands for all that its KV depends on."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Hashable], int] = {}
        self._parents: list[int] = []

    def root(self, what_it_depends_on: Hashable) -> int:
        return self.child(-1, what_it_depends_on)

    def child(self, parent: int, token: Hashable) -> int:
        number = self._numbers.setdefault((parent, token), len(self._parents))
        if number == len(self._parents):
            self._parents.append(parent)
        return number

    def last(self, prefix: int, count: int) -> list[int]:
        """The last `count` prefixes up to this one, the shortest first."""
        path = []
        for _ in range(count):
            path.append(prefix)
            prefix = self._parents[prefix]
        return path[::-1]


class NaiveDevice:
    """The bytes of all pages. A page that was never written has no slots."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, int], dict[int, Slot]] = {}

    def copy(self, page_class: int, source: int, destination: int) -> None:
        self.pages[page_class, destination] = dict(self.pages.get((page_class, source), {}))

    def write(self, page_class: int, row: int, slot: int, content: Slot) -> None:
        self.pages.setdefault((page_class, row), {})[slot] = content

    def read(self, page_class: int, row: int, slot: int) -> Slot | None:
        return self.pages.get((page_class, row), {}).get(slot)
