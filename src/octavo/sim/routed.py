"""`RoutedPlace`: the router's own index and costs over a simulated fleet, fed by the engines' events.

An engine's step may end after the next request's arrival. The router learns of it at its end, not before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import msgspec

from octavo.engine import published_plan
from octavo.events import AnyEvent, Expectation, PublishedGroup, PublishedPlan, external_hashes
from octavo.hashing import PLAIN
from octavo.offload import LoadSpeed
from octavo.router import FleetIndex, Placement, Prompt, SentRequest
from octavo.sim.engine import SimulatedEngine
from octavo.sim.outcomes import Outcome
from octavo.sim.traces import TraceRequest
from octavo.specs import ResumePoint

_LONG_PROMPT_BLOCKS = 1 << 20
TOLD_AFTER_S = 0.01
"""The age of what an engine tells of its load: it tells changes of that time in one line, and lines take their way."""


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
            engine.watchers.append(_Watcher(self, name, engine))

    def __call__(self, number: int, request: TraceRequest) -> int:
        self._hear(request.arrival_s)
        tokens = request.prompt()
        hashes = external_hashes(self._hasher.hash_tokens(tokens, PLAIN))
        found = self.index.read(hashes, len(tokens))
        prompt = Prompt(num_tokens=len(tokens), **found._asdict(), session=request.session or None)
        choice = self._placement.choose(prompt, self._names, request.arrival_s)
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

    def prefill_tokens(self, number: int) -> int:
        """The tokens that an open request was expected to compute."""
        return self._open[number].reservation.prefill_tokens

    def add_others(self, engine: str, *, requests: int = 0, prefill_tokens: int = 0) -> None:
        """An engine tells more that other routers have sent there, or less."""
        known = self._placement.loads[engine].others
        self._hear_of(engine, requests=known.requests + requests, prefill_tokens=known.prefill_tokens + prefill_tokens)

    def take_speeds(self, engine: str, speeds: Mapping[str, LoadSpeed]) -> None:
        """An engine tells how long its loads take."""
        self._hear_of(engine, load_speeds=dict(speeds))

    def _hear_of(self, engine: str, **told: Any) -> None:
        others = msgspec.structs.replace(self._placement.loads[engine].others, **told)
        self._placement.hear(engine, others)

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

    They share nothing: each learns of blocks by the engines' events, and of the others' requests by what the engines
    tell of their load.
    """

    def __init__(
        self, engines: Sequence[SimulatedEngine], *, num_routers: int, told_after_s: float | None = TOLD_AFTER_S
    ) -> None:
        """`told_after_s` is the age of what engines tell of their load; None if they tell nothing, as vLLM does."""
        self._places = [RoutedPlace(engines, seed=seed) for seed in range(num_routers)]
        self._chooser = Random(0)  # noqa: S311 - nothing secret hangs on it
        self._told_after_s = told_after_s
        self._sent: dict[int, tuple[RoutedPlace, str, int]] = {}
        """By request that is open: who sent it where, and the tokens to compute."""
        for engine in engines:
            engine.watchers.append(_LoadWatcher(self))

    def __call__(self, number: int, request: TraceRequest) -> int:
        place = self._chooser.choice(self._places)
        engine = place(number, request)
        self._sent[number] = place, str(engine), place.prefill_tokens(number)
        self._tell(number, request.arrival_s, requests=1, prefill_tokens=place.prefill_tokens(number))
        return engine

    def begun(self, number: int, now: float) -> None:
        """A request has its first token."""
        self._tell(number, now, prefill_tokens=-self._sent[number][-1])

    def ended(self, number: int, now: float) -> None:
        """A request is answered."""
        self._tell(number, now, requests=-1)
        del self._sent[number]

    def _tell(self, number: int, now: float, *, requests: int = 0, prefill_tokens: int = 0) -> None:
        if self._told_after_s is None:
            return
        sender, engine, _ = self._sent[number]
        for place in self._places:
            if place is not sender:
                news = partial(place.add_others, engine, requests=requests, prefill_tokens=prefill_tokens)
                place.tell(now + self._told_after_s, news)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    engine: str
    reservation: SentRequest
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class _Watcher:
    """Tells the routers what one engine does."""

    place: RoutedPlace
    name: str
    engine: SimulatedEngine

    def changed(self, now: float, events: Sequence[AnyEvent]) -> None:
        self.place.tell(now, partial(self.place.index.apply, self.name, events))

    def begun(self, now: float, outcome: Outcome) -> None:
        self.place.tell(now, partial(self.place.begun, outcome.number, now))
        if self.engine.offload is not None:
            self.place.tell(now, partial(self.place.take_speeds, self.name, self.engine.offload.load_speeds()))

    def ended(self, now: float, outcome: Outcome) -> None:
        self.place.tell(now, partial(self.place.ended, outcome.number))


@dataclass(frozen=True, slots=True)
class _LoadWatcher:
    """Tells the routers how far each other's requests are."""

    routers: SeveralRouters

    def changed(self, now: float, events: Sequence[AnyEvent]) -> None:
        """Blocks are no load."""

    def begun(self, now: float, outcome: Outcome) -> None:
        self.routers.begun(outcome.number, now)

    def ended(self, now: float, outcome: Outcome) -> None:
        self.routers.ended(outcome.number, now)


def _attention_only(plan: PublishedPlan) -> PublishedPlan:
    """The plan, as if only groups that need the whole prefix mattered for a resume."""
    return msgspec.structs.replace(plan, groups=[_if_whole_prefix(group) for group in plan.groups])


def _if_whole_prefix(group: PublishedGroup) -> PublishedGroup:
    end = _LONG_PROMPT_BLOCKS * group.block_size
    if group.spec().needed_blocks(ResumePoint(end, end)) == (range(_LONG_PROMPT_BLOCKS),):
        return group
    return PublishedGroup(kind="sliding_window", block_size=group.block_size, sliding_window=1)
