"""`RoutedPlace`: the router's own index and costs over a simulated fleet, fed by the engines' events.

An engine's step may end after the next request's arrival. The router learns of it at its end, not before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

import msgspec

from octavo.engine import published_plan
from octavo.events import AnyEvent, Expectation, PublishedGroup, PublishedPlan, external_hashes
from octavo.hashing import PLAIN
from octavo.router import FleetIndex, Placement, Prompt, Reservation
from octavo.sim.engine import SimulatedEngine
from octavo.sim.outcomes import Outcome
from octavo.sim.traces import TraceRequest
from octavo.specs import ResumePoint

_LONG_PROMPT_BLOCKS = 1 << 20


class RoutedPlace:
    """Sends each request where `octavo route` would.

    Without `knows_all_groups` the index counts full attention only, like routers that look for the longest prefix;
    costs are the same.
    """

    def __init__(self, engines: Sequence[SimulatedEngine], *, knows_all_groups: bool = True, seed: int = 0) -> None:
        plan = published_plan(engines[0].manager.config)
        self.index = FleetIndex.of_plan(plan if knows_all_groups else _attention_only(plan))
        self._hasher = engines[0].manager.hasher
        self._placement = Placement(Random(seed))  # noqa: S311 - nothing secret hangs on it
        self._names = [str(number) for number in range(len(engines))]
        self._open: dict[int, _Sent] = {}
        """Open requests by their number in the trace."""
        self._news: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of what the engines told, by the time when the router learns of it."""
        self._order = count()
        for name, engine in zip(self._names, engines, strict=True):
            self.index.add_engine(name)
            self._placement.add(name)
            engine.watchers.append(_Watcher(self, name))

    def __call__(self, number: int, request: TraceRequest) -> int:
        self._hear(request.arrival_s)
        tokens = request.prompt()
        hashes = external_hashes(self._hasher.hash_tokens(tokens, PLAIN))
        resumes, branches = self.index.read(hashes, len(tokens))
        prompt = Prompt(num_tokens=len(tokens), resumes=resumes, branches=branches, session=request.session or None)
        choice = self._placement.choose(prompt, self._names)
        assert choice is not None, "no bound of requests is set"
        self._open[number] = _Sent(
            engine=choice.engine,
            reservation=self._placement.send(choice, prompt, request.arrival_s),
            expectation=self.index.expect(choice.engine, hashes, len(tokens)),
        )
        return int(choice.engine)

    def tell(self, when: float, news: Callable[[], None]) -> None:
        """Queues something that the router learns at that time."""
        heappush(self._news, (when, next(self._order), news))

    def begun(self, number: int, when: float) -> None:
        """A request has its first token. Another router may have sent it."""
        if number in self._open:
            self._placement.first_token(self._open[number].reservation, when)

    def ended(self, number: int) -> None:
        """A request is answered."""
        sent = self._open.pop(number, None)
        if sent is not None:
            self._placement.end(sent.reservation)
            self.index.expect_no_more(sent.engine, sent.expectation)

    def _hear(self, now: float) -> None:
        while self._news and self._news[0][0] <= now:
            heappop(self._news)[-1]()


class SeveralRouters:
    """Several routers side by side; each request meets one of them by chance.

    They share nothing: each learns of blocks by the engines' events, and knows only its own requests.
    """

    def __init__(self, engines: Sequence[SimulatedEngine], *, num_routers: int) -> None:
        self._places = [RoutedPlace(engines, seed=seed) for seed in range(num_routers)]
        self._chooser = Random(0)  # noqa: S311 - nothing secret hangs on it

    def __call__(self, number: int, request: TraceRequest) -> int:
        return self._chooser.choice(self._places)(number, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    engine: str
    reservation: Reservation
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class _Watcher:
    """Tells the routers what one engine does."""

    place: RoutedPlace
    name: str

    def changed(self, now: float, events: Sequence[AnyEvent]) -> None:
        self.place.tell(now, partial(self.place.index.apply, self.name, events))

    def begun(self, now: float, outcome: Outcome) -> None:
        self.place.tell(now, partial(self.place.begun, outcome.number, now))

    def ended(self, now: float, outcome: Outcome) -> None:
        self.place.tell(now, partial(self.place.ended, outcome.number))


def _attention_only(plan: PublishedPlan) -> PublishedPlan:
    """The plan, as if only groups that need the whole prefix mattered for a resume."""
    return msgspec.structs.replace(plan, groups=[_if_whole_prefix(group) for group in plan.groups])


def _if_whole_prefix(group: PublishedGroup) -> PublishedGroup:
    end = _LONG_PROMPT_BLOCKS * group.block_size
    if group.spec().needed_blocks(ResumePoint(end, end)) == (range(_LONG_PROMPT_BLOCKS),):
        return group
    return PublishedGroup(kind="sliding_window", block_size=group.block_size, sliding_window=1)
