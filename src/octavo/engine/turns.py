"""`Turns`: in which order waiting choices start. Tenants share the seats, so one with many waiting holds up no other.

    first       choices that gave way, the oldest first
    then        of the tenant with the fewest seats, and among such tenants of the one served least recently,
                the first to arrive

A choice takes seats from those of its tenant behind it, whether it runs or waits, so all come in turns:

    a has 2 running, and a3 a4 a5 wait; b1 b2 b3 of b arrive:    b1 b2 a3 b3 a4 a5
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import merge
from itertools import chain, islice
from math import inf

from octavo.engine.request import Choice

_Place = tuple[int, float, int]
"""Seats of the tenant, its last start, and the arrival."""


class Turns:
    """Knows which tenant was served when."""

    def __init__(self) -> None:
        self._num_starts = 0
        self._last_starts: dict[str | None, int] = {}
        """By tenant; 0 before the first. There are as many as the server's file names."""

    def arrived(self, choice: Choice) -> None:
        """The choice begins to wait."""
        self._last_starts.setdefault(choice.request.tenant, 0)

    def started(self, choice: Choice) -> None:
        """The choice starts, for the first time or again."""
        request = choice.request
        self._num_starts += 1
        self._last_starts[request.tenant] = self._num_starts
        if not request.has_started:
            request.start = self._num_starts

    def first(self, count: int, waiting: Mapping[Choice, None], running: Iterable[Choice]) -> list[Choice]:
        """The first of the waiting choices, which are in the order of their age."""
        if len(self._last_starts) < 2:
            return list(islice(waiting, count))
        by_tenant: dict[str | None, list[Choice]] = {}
        gave_way: list[Choice] = []
        for choice in waiting:
            if choice.request.has_started:
                gave_way.append(choice)
            else:
                by_tenant.setdefault(choice.request.tenant, []).append(choice)
        seats: Counter[str | None] = Counter()
        for choice in chain(running, gave_way):
            seats[choice.request.tenant] += choice.num_seats
        queues = (self._places(queue[:count], seats[tenant]) for tenant, queue in by_tenant.items())
        ordered = (choice for _, choice in merge(*queues, key=lambda place: place[0]))
        return list(islice(chain(gave_way, ordered), count))

    def _places(self, queue: Iterable[Choice], num_seats: int) -> list[tuple[_Place, Choice]]:
        places: list[tuple[_Place, Choice]] = []
        for choice in queue:
            request = choice.request
            last = inf if places else self._last_starts[request.tenant]
            places.append(((num_seats, last, request.arrival), choice))
            num_seats += choice.num_seats
        return places
