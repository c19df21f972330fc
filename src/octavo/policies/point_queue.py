"""Resume points in the order in which they are given up: the least worth for its age first.

Points of about equal worth wait in one queue, the one used longest ago at its head; so the one to give up is a head,
and heads are few. Worth is kept in classes of half a power of two.

    score = worth / age       age in slots that were stored since the last use
"""

from collections.abc import Callable, Sequence
from math import log2

from octavo.tables import Part, RecencyOrder, RecencyTable

_CLASSES_PER_DOUBLING = 2
_MAX_CLASS = 60


def worth_class(worth: float) -> int:
    """Bounded, so that the heads are few whatever the worth."""
    return max(-_MAX_CLASS, min(_MAX_CLASS, round(_CLASSES_PER_DOUBLING * log2(worth))))


class PointQueue:
    """Names of points by class of worth and last use."""

    def __init__(self, last_use_of: Callable[[bytes], int]) -> None:
        self._last_use_of = last_use_of
        self._table = RecencyTable()
        self._orders: dict[int, RecencyOrder] = {}
        self._heads: dict[int, tuple[bytes, int]] = {}
        """The head of each order with its last use, where it is known."""

    def parts(self) -> Sequence[Part]:
        return [*self._table.parts(), *(part for order in self._orders.values() for part in order.parts())]

    def add(self, name: bytes, class_: int) -> None:
        """As the one of its class that was used last."""
        order = self._orders.get(class_)
        if order is None:
            order = self._orders[class_] = RecencyOrder(self._table)
        order.add(name, 1)

    def remove(self, name: bytes, class_: int) -> None:
        self._orders[class_].pop(name)
        if self._heads.get(class_, (b"", 0))[0] == name:
            del self._heads[class_]

    def worst(self, now: int) -> bytes | None:
        """The point to give up first."""
        worst, least = None, float("inf")
        for class_, order in self._orders.items():
            if not order.num_slots:
                continue
            name, last_use = self._heads.get(class_) or self._find_head(class_, order)
            score = 2.0 ** (class_ / _CLASSES_PER_DOUBLING) / (now - last_use + 1)
            if score < least:
                worst, least = name, score
        return worst

    def _find_head(self, class_: int, order: RecencyOrder) -> tuple[bytes, int]:
        name = order.oldest()
        assert name is not None, "the order is not empty"
        head = self._heads[class_] = name, self._last_use_of(name)
        return head

    def check_invariants(self, classes: dict[bytes, int]) -> None:
        """`classes`: of every point that waits here."""
        assert {name: class_ for class_, order in self._orders.items() for name in order} == classes
        assert all(self._orders[class_].oldest() == name for class_, (name, _) in self._heads.items())
        for order in self._orders.values():
            order.check_invariants()
