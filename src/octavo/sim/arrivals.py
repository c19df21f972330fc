"""`Arrivals`: who comes next, at times that the trace tells, or some time after another request's end."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf

from octavo.events import AnyEvent
from octavo.sim.outcomes import Outcome
from octavo.sim.traces import TraceRequest


class Arrivals:
    """The requests of a trace that have not come. As a watcher it hears which have ended."""

    def __init__(self, requests: Sequence[TraceRequest]) -> None:
        self._requests = requests
        numbers = {request.place: number for number, request in enumerate(requests) if request.place}
        self._followers: defaultdict[int, list[int]] = defaultdict(list)
        self._due: list[tuple[float, int]] = []
        for number, request in enumerate(requests):
            before = numbers.get(request.follows)
            if before is None:  # or left out, as it was too long
                self._due.append((request.arrival_s, number))
            else:
                self._followers[before].append(number)
        heapify(self._due)

    @property
    def next_s(self) -> float:
        """When the next one comes, as far as is known; infinity if nobody does."""
        return self._due[0][0] if self._due else inf

    @property
    def depends_on_ends(self) -> bool:
        """Whether an end may bring somebody sooner."""
        return bool(self._followers)

    def take(self) -> tuple[int, TraceRequest]:
        """The next one, with its number, at the time at which it comes."""
        arrival_s, number = heappop(self._due)
        return number, replace(self._requests[number], arrival_s=arrival_s)

    def changed(self, now: float, events: Sequence[AnyEvent]) -> None:
        """Blocks bring nobody."""

    def begun(self, now: float, outcome: Outcome) -> None:
        """First tokens bring nobody."""

    def ended(self, now: float, outcome: Outcome) -> None:
        """Those who waited for it come some time later."""
        for number in self._followers.pop(outcome.number, ()):
            heappush(self._due, (now + self._requests[number].delay_s, number))
