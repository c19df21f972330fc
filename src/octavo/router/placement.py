"""`Placement`: which engine a request should go to. Plain data; the caller brings the time and the randomness.

The least cost wins: the expected time to the first token, and the time for which others are expected to wait.

    ahead       = prefill tokens that were sent there and have no answer yet / rate + what the next answer is overdue
    computing   = own tokens left / rate
    first token = max(ahead, loads) + computing
    cost        = first token + toll * (own tokens left - 1/2 * those of them whose attention is there) / rate
    toll        = requests per second and engine * (ahead + 1/2 * computing) / (1 - computing's share of the time)

The toll is what queueing theory says of a line: who comes until all this is computed waits for it, or for a part of it.
So a quiet fleet lets each request have its first token as soon as can be, and a busy one computes little twice.

What is not on the device must be loaded, and an engine loads only what it would not compute sooner. The router makes
the same choice by the same price (`octavo.offload.first_token_s`), from the speeds that the engine tells: the tokens
left are those of the quickest way. Loads that were sent to an engine queue there.

The attention counts as an investment: where recurrent state is missing at the end of a shared prefix, the request makes
a checkpoint there, and those who come later can resume it. Requests that share a new prefix follow the first of them,
while its engine has no more waiting than they save.

A prompt counts whole until its first token, though a part of it is computed before. So waits are overstated, and
requests lean away from busy engines. In simulated fleets the slowest first tokens come sooner for it; with the running
part subtracted a few more tokens were resumed. Where an answer does not come when it should, there is more to compute
than was thought, as an engine with too many long prompts has evicted what they were to resume, or the engine stands
still: what comes next waits at least as long again. Such an engine is tried anew, ever more rarely.

The rate of an engine is learned from its answers, and is the fleet's until it has many: rates that differ by chance
must not lead requests away from what is cached for them. Equal engines: the one with the longest attention prefix; then
the one that the session had last; then by chance. An engine takes a bounded number of requests.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from octavo.http import Load
from octavo.router.engine_load import Computed, EngineLoad, SentRequest, Way
from octavo.router.index import Points

_FIRST_RATE = 2000.0
"""Prefill tokens per second, until an engine has answered."""
_KEPT_OF_ENGINE, _KEPT_OF_FLEET = 0.95, 0.99
"""The share of earlier observations in a rate, after a new one."""
_FEWEST_TOKENS = 64
"""Shorter prefills say little about the rate."""
_WORTH_OF_BRANCH = 0.5
"""The worth of a token that a new checkpoint spares later requests, relative to a token of this request."""
_MOST_SESSIONS = 1 << 16
"""The most sessions that are remembered. Beyond that the one that was asked for longest ago is forgotten."""
_IMBALANCE = 1.5
"""No engine gets more than this multiple of the mean number of open requests, and `_SPARE_REQUESTS`."""
_SPARE_REQUESTS = 6
"""Open requests that any engine may have beside its share. Few requests decode together at hardly more than the cost of
one, so on a quiet fleet a popular prefix is no reason to compute it once more."""
_SHARE_OF_LATER = 0.75
"""The share of an engine's bound that requests of a priority above 0 may fill; the rest is for other requests."""
_KEPT_OF_ARRIVALS = 0.99
_LONGEST_GAP_S = 60.0
"""A night without requests says little of the morning."""
_MOST_BUSY = 0.8
"""The largest share of the time that computing is taken to fill. Beyond that queues grow without a bound."""
_ALIKE_S = 0.005
"""Costs that differ by less are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request's question: how much of it each engine could resume."""

    num_tokens: int
    resumes: Mapping[str, int]
    branches: Mapping[str, int] = field(default_factory=dict)
    """How much each engine could resume if recurrent state were everywhere."""
    loads: Mapping[str, Points] = field(default_factory=dict)
    """Of engines that would have to load: how much they could resume, the more media the more."""
    session: str | None = None
    """The client's name for the requests that belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Where a request goes, and why."""

    engine: str
    resumed_tokens: int
    expected_s: float
    loading_s: float = 0.0
    """The seconds of the loads for it, without those that are queued before them."""
    weighed: Mapping[str, float] = field(default_factory=dict)
    """Per engine that could have got the request: the expected seconds to the first token."""


@dataclass(slots=True, kw_only=True)
class _Arrivals:
    """The requests of the last time, and what they bring to compute; older ones count less and less."""

    last: float | None = None
    requests: float = 1.0
    computing_s: float = 0.0
    seconds: float = 1.0

    def add(self, now: float, *, requests: float, computing_s: float) -> None:
        """Together with this request others may have come through other routers."""
        kept, since_s = _KEPT_OF_ARRIVALS, 0.0 if self.last is None else min(_LONGEST_GAP_S, now - self.last)
        self.last = now
        self.requests = kept * self.requests + requests
        self.computing_s = kept * self.computing_s + requests * computing_s
        self.seconds = kept * self.seconds + since_s

    def toll_per_s(self, num_engines: int) -> float:
        """What a second that an engine computes costs others, per second until it is done."""
        busy = min(_MOST_BUSY, self.computing_s / self.seconds / num_engines)
        return self.requests / self.seconds / num_engines / (1 - busy)


class Placement:
    """The loads of all engines, as one router sees them."""

    def __init__(self, random: Random, *, most_per_engine: int | None = None) -> None:
        self.loads: dict[str, EngineLoad] = {}
        self._computed = Computed(tokens=1.0, seconds=1.0 / _FIRST_RATE)
        """The computed tokens of all engines."""
        self._arrivals = _Arrivals()
        self._hears_first_tokens: bool | None = None
        """Whether anybody tells of them, as not every proxy does. None until one has been told, or a request has ended
        without."""
        self._random = random
        self._most_per_engine = math.inf if most_per_engine is None else most_per_engine
        self._engine_of: OrderedDict[str, str] = OrderedDict()
        """Session -> the engine that had its last request."""

    def add(self, engine: str) -> None:
        self.loads.setdefault(engine, EngineLoad(fleet=self._computed))

    def remove(self, engine: str) -> None:
        self.loads.pop(engine, None)

    def hear(self, engine: str, others: Load) -> None:
        """An engine, which may have left, tells what others have sent there."""
        if engine in self.loads:
            self.loads[engine].hear(others)

    def choose(self, prompt: Prompt, engines: Collection[str], now: float, *, priority: int = 0) -> EngineChoice | None:
        """The choice; None if no engine may take the request. `priority`: in vLLM's sense, smaller is earlier."""
        bound = self._most_per_engine * (_SHARE_OF_LATER if priority > 0 else 1)
        able = {name: load for name in engines if (load := self.loads[name]).num_requests < bound}
        if not able:
            return None
        most = _IMBALANCE * sum(load.num_requests for load in able.values()) / len(able) + _SPARE_REQUESTS
        costs, weighed = self._weigh(prompt, able, now)
        balanced = {name: cost for name, cost in costs.items() if able[name].num_requests < most}
        highest = min(balanced.values()) + _ALIKE_S
        alike = [name for name, cost in balanced.items() if cost <= highest]
        longest = max(prompt.branches.get(name, 0) for name in alike)
        equal = [name for name in alike if prompt.branches.get(name, 0) == longest]
        last = None if prompt.session is None else self._engine_of.get(prompt.session)
        engine = last if last in equal else self._random.choice(equal)
        way = self.way(prompt, engine)
        return EngineChoice(
            engine=engine,
            resumed_tokens=way.resumed_tokens,
            expected_s=way.first_token_s,
            loading_s=way.loading_s,
            weighed=weighed,
        )

    def way(self, prompt: Prompt, engine: str) -> Way:
        """How the engine would come to the first token if it gets the prompt now, after what waits there."""
        load, points, resumed = self.loads[engine], prompt.loads.get(engine), prompt.resumes.get(engine, 0)
        token_s = load.seconds_per_token(self._computed.seconds / self._computed.tokens)
        if points is None:
            return Way(resumed, 0.0, load.overdue_s + (load.prefill_tokens + prompt.num_tokens - resumed) * token_s)
        return load.way(points, prompt.num_tokens, token_s)

    def send(self, choice: EngineChoice, prompt: Prompt, now: float, *, is_told: bool = True) -> SentRequest:
        """The request goes to the engine. `end` must follow. `is_told`: whether `first_token` will."""
        load = self.loads[choice.engine]
        prefill_tokens = prompt.num_tokens - choice.resumed_tokens
        computing_s = (load.prefill_tokens + prefill_tokens) / load.rate
        waits_s = max(0.0, load.loading_s + choice.loading_s - load.prefill_tokens / load.rate)
        sent = SentRequest(
            load=load,
            prefill_tokens=prefill_tokens,
            tokens_ahead=load.prefill_tokens,
            loading_s=choice.loading_s,
            computing_share=computing_s / (computing_s + waits_s) if choice.loading_s else 1.0,
            sent_at=now,
            due_at=now + choice.expected_s,
        )
        through_all = (1 + load.num_requests) / (1 + load.num_requests - load.others.requests)
        self._arrivals.add(now, requests=through_all, computing_s=prefill_tokens / load.rate)
        load.add(sent, is_told=is_told and self._hears_first_tokens is not False)
        if prompt.session is not None:
            self._engine_of[prompt.session] = choice.engine
            self._engine_of.move_to_end(prompt.session)
            if len(self._engine_of) > _MOST_SESSIONS:
                self._engine_of.popitem(last=False)
        return sent

    def first_token(self, sent: SentRequest, now: float) -> None:
        """The engine has begun to answer."""
        self._hears_first_tokens = True
        if sent.has_begun:
            return
        sent.load.begin(sent)
        sent.load.overtake(sent)
        load, seconds = sent.load, (now - sent.sent_at) * sent.computing_share
        num_tokens = sent.tokens_ahead + sent.prefill_tokens
        if num_tokens >= _FEWEST_TOKENS and seconds > 0:
            load.own.add(num_tokens, seconds, kept=_KEPT_OF_ENGINE)
            self._computed.add(num_tokens, seconds, kept=_KEPT_OF_FLEET)

    def end(self, sent: SentRequest) -> None:
        """The request has ended, in whatever way."""
        if self._hears_first_tokens is None:
            self._hears_first_tokens = False
        sent.load.begin(sent)
        sent.load.num_requests -= 1

    def _weigh(
        self, prompt: Prompt, able: Mapping[str, EngineLoad], now: float
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Per engine: its cost, and `expected_s`. It calls few functions, since every request asks for every engine."""
        costs: dict[str, float] = {}
        expected: dict[str, float] = {}
        of_fleet = self._computed.seconds / self._computed.tokens
        toll_per_s = self._arrivals.toll_per_s(len(able))
        resumes, branches, loads, num_tokens = prompt.resumes, prompt.branches, prompt.loads, prompt.num_tokens
        for name, load in able.items():
            if load.num_requests or load.overdue_s:
                load.look(now)
            token_s = load.seconds_per_token(of_fleet)
            resumed = resumes.get(name, 0)
            branch = max(0, branches.get(name, 0) - resumed)
            ahead_s = load.prefill_tokens * token_s + load.overdue_s
            if name in loads:
                resumed, _, expected[name] = load.way(loads[name], num_tokens, token_s)
            else:
                expected[name] = ahead_s + (num_tokens - resumed) * token_s
            left = num_tokens - resumed
            toll = toll_per_s * (ahead_s + left * token_s / 2)
            costs[name] = expected[name] + toll * (left - _WORTH_OF_BRANCH * branch) * token_s
        return costs, expected
