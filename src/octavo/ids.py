"""Ids of the core, as `NewType`s, so that one is never taken for another."""

from collections.abc import Iterable, Iterator
from typing import NewType, TypeVar, cast

BlockHash = NewType("BlockHash", bytes)
"""Names a block's tokens, all tokens before it, and whose request they are: see `octavo.hashing`."""

Row = NewType("Row", int)
"""A row of a page class on the device: where a block of a group lies."""

NO_ROW = Row(-1)
"""In place of a row: this block of the chunk is not wanted."""

Slot = NewType("Slot", int)
"""A slot of the arena in host memory. A chunk of several slots is known by the first, its head."""

GroupIdx = NewType("GroupIdx", int)
"""A group's index in the plan. 0 and None differ: None is "no group"."""

_T = TypeVar("_T")


def enumerate_groups(of_groups: Iterable[_T]) -> Iterator[tuple[GroupIdx, _T]]:
    """`enumerate` over something that has one item per group, in the plan's order."""
    return cast("Iterator[tuple[GroupIdx, _T]]", enumerate(of_groups))
