"""The points that somebody has given a weight: retained ones count for more, demoted ones for less.

They wait apart from the others. Whoever gives up a point compares the least of these with the least of the others.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol


class Judge(Protocol):
    """What is known of points apart from their weights."""

    def value_of(self, point: int, *, by_use: bool) -> float:
        """The smaller the value, the sooner the point is given up."""

    def can_go(self, point: int) -> bool:
        """Whether something becomes free at once when the point is given up."""

    def idle_turns(self, point: int) -> float:
        """How often the tier has stored its capacity since the point was used."""


class WeighedPoints:
    """Weights by point, and a heap of points by value times weight.

    Values change as time passes: the heap is made anew a bounded number of times while the tier stores its capacity
    once, which takes time in proportion to the number of weights. The caller bounds that.

    A point that is not used while the tier stores its capacity `weight` times goes first: so no weight lasts for ever.
    """

    def __init__(self, judge: Judge, last_use: Sequence[int]) -> None:
        self._judge, self._last_use = judge, last_use
        self.wanted: dict[bytes, float] = {}
        """The weight of each name that has one, whether its point is there or not."""
        self.weights: dict[int, float] = {}
        """By point: of those that have one."""
        self._heap: list[tuple[float, int, int]] = []
        """(value, last use for which the value holds, point)."""
        self._made_for: tuple[int, bool] | None = None
        """The turn and the order for which the heap was made."""

    def weight_of(self, point: int) -> float:
        return self.weights.get(point, 1.0)

    def want(self, name: bytes, weight: float) -> None:
        """Points of this name that come later get this weight too."""
        if weight == 1.0:
            self.wanted.pop(name, None)
        else:
            self.wanted[name] = weight

    def put(self, point: int, weight: float) -> None:
        self.weights[point] = weight
        self._made_for = None

    def forget(self, point: int) -> None:
        self.weights.pop(point, None)

    def changed(self, point: int) -> None:
        """The point was used, or may free something from now on."""
        if self._made_for is None:
            return
        if len(self._heap) > 2 * len(self.weights):
            self._made_for = None
            return
        heappush(self._heap, self._entry(point, by_use=self._made_for[1]))

    def least(self, turn: int, *, by_use: bool) -> int | None:
        """The least point of those that would free something. Values are computed anew at each turn."""
        if self._made_for != (turn, by_use):
            self._made_for = turn, by_use
            self._heap = [self._entry(point, by_use=by_use) for point in self.weights if self._judge.can_go(point)]
            heapify(self._heap)
        while self._heap:
            _, last_use, point = self._heap[0]
            if point in self.weights and self._last_use[point] == last_use and self._judge.can_go(point):
                return point
            heappop(self._heap)
        return None

    def any_one(self) -> int:
        """A point that would free nothing; others may free something once it has gone."""
        return next(iter(self.weights))

    def value_of(self, point: int, *, by_use: bool) -> float:
        weight = self.weights.get(point)
        if weight is not None and self._judge.idle_turns(point) >= weight:
            return 0.0
        return self._judge.value_of(point, by_use=by_use) * (1.0 if weight is None else weight)

    def _entry(self, point: int, *, by_use: bool) -> tuple[float, int, int]:
        return self.value_of(point, by_use=by_use), self._last_use[point], point
