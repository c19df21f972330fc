"""`Placement`: which engine a request should go to. Plain data; the caller brings the time and the randomness.

The least cost wins: the expected time to the first token, and the time that computing takes from others.

    cost = (prefill tokens that were sent there and have no answer yet + 2 * own tokens left to compute
            - 1/2 * own tokens that are left although their attention is there) / rate

The last part is an investment: where recurrent state is missing at the end of a shared prefix, the request makes a
checkpoint there, and those who come later can resume it. Requests that share a new prefix follow the first of them,
while its engine has no more waiting than they save.

A prompt counts whole until its first token, though a part of it is computed before. So waits are overstated, and
requests lean away from busy engines. In simulated fleets the slowest first tokens come sooner for it; with the running
part subtracted a few more tokens were resumed.

The rate of an engine is learned from its answers, and is the fleet's until it has many: rates that differ by chance
must not lead requests away from what is cached for them. Equal engines: the one with the longest attention prefix; then
the one that the session had last; then by chance. An engine takes a bounded number of requests.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from octavo.server import Load

_FIRST_RATE = 2000.0
"""Prefill tokens per second, until an engine has answered."""
_KEPT_OF_ENGINE, _KEPT_OF_FLEET = 0.95, 0.99
"""The share of earlier observations in a rate, after a new one."""
_TOKENS_FOR_AN_OWN_RATE = 16384
"""The weight of the fleet's rate in an engine's rate, in tokens that the engine has computed."""
_FEWEST_TOKENS = 64
"""Shorter prefills say little about the rate."""
_WORTH_OF_BRANCH = 0.5
"""The worth of a token that a new checkpoint spares later requests, relative to a token of this request."""
_MOST_SESSIONS = 1 << 16
"""The most sessions that are remembered. Beyond that the one that was asked for longest ago is forgotten."""
_SPARE_REQUESTS = 6
"""Open requests that any engine may have beside its share. Few requests decode together at hardly more than the cost of
one, so on a quiet fleet a popular prefix is no reason to compute it once more."""
_SHARE_OF_LATER = 0.75
"""The share of an engine's bound that requests of a priority above 0 may fill; the rest is for other requests."""
_ALIKE_S = 0.005
"""Costs that differ by less are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request's question: how much of it each engine could resume."""

    num_tokens: int
    resumes: Mapping[str, int]
    branches: Mapping[str, int] = field(default_factory=dict)
    """How much each engine could resume if recurrent state were everywhere."""
    session: str | None = None
    """The client's name for the requests that belong together."""

    def num_tokens_left(self, engine: str) -> int:
        """The tokens that an engine would have to compute."""
        return self.num_tokens - self.resumes.get(engine, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where a request goes, and why."""

    engine: str
    resumed_tokens: int
    expected_s: float
    weighed: Mapping[str, float] = field(default_factory=dict)
    """Per engine that could have got the request: the expected seconds to the first token."""


@dataclass(slots=True, kw_only=True, eq=False)
class Reservation:
    """A request that was sent to an engine."""

    load: "EngineLoad"
    prefill_tokens: int
    tokens_ahead: int
    sent_at: float
    has_begun: bool = False


@dataclass(slots=True, kw_only=True)
class _Computed:
    """Prefill tokens of answers, and the seconds that they took; older answers count less and less."""

    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, num_tokens: int, seconds: float, *, kept: float) -> None:
        self.tokens = kept * self.tokens + num_tokens
        self.seconds = kept * self.seconds + seconds


@dataclass(slots=True, kw_only=True)
class EngineLoad:
    """What was sent to an engine, by this router and by others, and what the router learned of it."""

    fleet: _Computed
    own: _Computed = field(default_factory=_Computed)
    num_requests: int = 0
    prefill_tokens: int = 0
    """The prefill tokens of requests that have no first token yet."""
    others: Load = field(default_factory=Load)
    """The part of both that others have sent, as far as the engine tells."""

    def hear(self, others: Load) -> None:
        """The engine tells what others have sent."""
        self.num_requests += others.requests - self.others.requests
        self.prefill_tokens += others.prefill_tokens - self.others.prefill_tokens
        self.others = others

    @property
    def rate(self) -> float:
        """Prefill tokens per second: a mean of the fleet's and the engine's own, which counts more the more the engine
        has computed."""
        return 1.0 / self.seconds_per_token(self.fleet.seconds / self.fleet.tokens)

    def seconds_per_token(self, of_fleet: float) -> float:
        """The inverse of `rate`, given that of the fleet."""
        if not self.own.tokens:
            return of_fleet
        drawn_s = _TOKENS_FOR_AN_OWN_RATE * of_fleet
        return (self.own.seconds + drawn_s) / (self.own.tokens + _TOKENS_FOR_AN_OWN_RATE)


class Placement:
    """The loads of all engines, as one router sees them."""

    def __init__(self, random: Random, *, imbalance: float = 1.5, most_per_engine: int | None = None) -> None:
        self.loads: dict[str, EngineLoad] = {}
        self._computed = _Computed(tokens=1.0, seconds=1.0 / _FIRST_RATE)
        """The computed tokens of all engines."""
        self._random = random
        self._most_per_engine = math.inf if most_per_engine is None else most_per_engine
        self._engine_of: OrderedDict[str, str] = OrderedDict()
        """Session -> the engine that had its last request."""
        self._imbalance = imbalance
        """No engine gets more than this multiple of the mean number of open requests, and `_SPARE_REQUESTS`."""

    def add(self, engine: str) -> None:
        self.loads.setdefault(engine, EngineLoad(fleet=self._computed))

    def remove(self, engine: str) -> None:
        self.loads.pop(engine, None)

    def hear(self, engine: str, others: Load) -> None:
        """An engine, which may have left, tells what others have sent there."""
        if engine in self.loads:
            self.loads[engine].hear(others)

    def choose(self, prompt: Prompt, engines: Collection[str], *, priority: int = 0) -> Choice | None:
        """The choice; None if no engine may take the request. `priority`: in vLLM's sense, smaller is earlier."""
        bound = self._most_per_engine * (_SHARE_OF_LATER if priority > 0 else 1)
        able = {name: load for name in engines if (load := self.loads[name]).num_requests < bound}
        if not able:
            return None
        most = self._imbalance * sum(load.num_requests for load in able.values()) / len(able) + _SPARE_REQUESTS
        costs, weighed = self._weigh(prompt, able)
        balanced = {name: cost for name, cost in costs.items() if able[name].num_requests < most}
        highest = min(balanced.values()) + _ALIKE_S
        alike = [name for name, cost in balanced.items() if cost < highest]
        longest = max(prompt.branches.get(name, 0) for name in alike)
        equal = [name for name in alike if prompt.branches.get(name, 0) == longest]
        last = None if prompt.session is None else self._engine_of.get(prompt.session)
        engine = last if last in equal else self._random.choice(equal)
        return Choice(
            engine=engine,
            resumed_tokens=prompt.resumes.get(engine, 0),
            expected_s=weighed[engine],
            weighed=weighed,
        )

    def expected_s(self, prompt: Prompt, engine: str) -> float:
        """The expected time to the first token if the engine gets the prompt now: for what waits there, and for its own
        tokens."""
        return self._weigh(prompt, {engine: self.loads[engine]})[1][engine]

    def send(self, choice: Choice, prompt: Prompt, now: float) -> Reservation:
        """The request goes to the engine. `end` must follow."""
        load = self.loads[choice.engine]
        prefill_tokens = prompt.num_tokens - choice.resumed_tokens
        reservation = Reservation(
            load=load, prefill_tokens=prefill_tokens, tokens_ahead=load.prefill_tokens, sent_at=now
        )
        load.num_requests += 1
        load.prefill_tokens += prefill_tokens
        if prompt.session is not None:
            self._engine_of[prompt.session] = choice.engine
            self._engine_of.move_to_end(prompt.session)
            if len(self._engine_of) > _MOST_SESSIONS:
                self._engine_of.popitem(last=False)
        return reservation

    def first_token(self, reservation: Reservation, now: float) -> None:
        """The engine has begun to answer."""
        if reservation.has_begun:
            return
        self._no_more_prefill(reservation)
        load, seconds = reservation.load, now - reservation.sent_at
        num_tokens = reservation.tokens_ahead + reservation.prefill_tokens
        if num_tokens >= _FEWEST_TOKENS and seconds > 0:
            load.own.add(num_tokens, seconds, kept=_KEPT_OF_ENGINE)
            self._computed.add(num_tokens, seconds, kept=_KEPT_OF_FLEET)

    def end(self, reservation: Reservation) -> None:
        """The request has ended, in whatever way."""
        self._no_more_prefill(reservation)
        reservation.load.num_requests -= 1

    def _weigh(self, prompt: Prompt, able: Mapping[str, EngineLoad]) -> tuple[dict[str, float], dict[str, float]]:
        """Per engine: its cost, and `expected_s`. It calls few functions, since every request asks for every engine."""
        costs: dict[str, float] = {}
        expected: dict[str, float] = {}
        of_fleet = self._computed.seconds / self._computed.tokens
        resumes, branches, num_tokens = prompt.resumes, prompt.branches, prompt.num_tokens
        for name, load in able.items():
            token_s = load.seconds_per_token(of_fleet)
            resumed = resumes.get(name, 0)
            left = num_tokens - resumed
            branch = max(0, branches.get(name, 0) - resumed)
            expected[name] = (load.prefill_tokens + left) * token_s
            costs[name] = expected[name] + (left - _WORTH_OF_BRANCH * branch) * token_s
        return costs, expected

    def _no_more_prefill(self, reservation: Reservation) -> None:
        if not reservation.has_begun:
            reservation.load.prefill_tokens -= reservation.prefill_tokens
        reservation.has_begun = True
