"""`EngineLoad`: what was sent to an engine and waits there, and how it would come to the next first token.

waiting     requests whose first token somebody will tell. Of the first of them it is seen what is overdue
untold      requests whose first token nobody will tell: they wait until it is due
computed    tokens and seconds of answers, from which the rate is learned
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from octavo.events import MEDIUM_STORAGE, Reach, reach_of
from octavo.http import Load
from octavo.offload import MEMORY, LoadSpeed, first_token_s
from octavo.router.index import Points

_TOKENS_FOR_AN_OWN_RATE = 16384
"""The weight of the fleet's rate in an engine's rate, in tokens that the engine has computed."""
_FIRST_TRY_S = 10.0
_UNTOLD = (0.0, 0.05, 0.25, 0.5)
"""By `Reach`: the time of a loaded token as a part of that of computing it, where the engine tells no speed. Assumed,
not measured; below 1, as engines try loads that they have not measured."""


class Way(NamedTuple):
    """How an engine would come to the first token."""

    resumed_tokens: int
    loading_s: float
    """The seconds of the loads for it, without those that are queued before them."""
    first_token_s: float


_QUICKEST = itemgetter(2)


@dataclass(slots=True, kw_only=True, eq=False)
class SentRequest:
    """A request that was sent to an engine."""

    load: "EngineLoad"
    prefill_tokens: int
    tokens_ahead: int
    loading_s: float
    computing_share: float
    """The part of the time to its first token in which tokens are expected to be computed, and not only loaded."""
    sent_at: float
    due_at: float
    """When its first token is expected."""
    has_begun: bool = False


@dataclass(slots=True, kw_only=True)
class Computed:
    """Prefill tokens of answers, and the seconds that they took; older answers count less and less."""

    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, num_tokens: int, seconds: float, *, kept: float) -> None:
        self.tokens = kept * self.tokens + num_tokens
        self.seconds = kept * self.seconds + seconds


@dataclass(slots=True, kw_only=True)
class EngineLoad:
    """What was sent to an engine, by this router and by others, and what the router learned of it."""

    fleet: Computed
    own: Computed = field(default_factory=Computed)
    num_requests: int = 0
    prefill_tokens: int = 0
    """The prefill tokens of requests that have no first token yet."""
    loading_s: float = 0.0
    """The seconds that loads of requests take that have no first token yet."""
    overdue_s: float = 0.0
    """By how much the first token is late that is to come next."""
    _waiting: deque[SentRequest] = field(default_factory=deque)
    """Requests whose first token will be told, in the order in which they were sent. Some may have it."""
    _untold: deque[SentRequest] = field(default_factory=deque)
    """Requests whose first token nobody will tell."""
    _sent_at: float = -math.inf
    """When the latest request was sent."""
    _overtaken_at: float = -math.inf
    """When the latest request was sent that has its first token. Earlier ones may wait because they are less urgent."""
    others: Load = field(default_factory=Load)
    """The part of requests and tokens that others have sent, as far as the engine tells."""
    speeds: Sequence[LoadSpeed | None] = (None,) * len(Reach)
    """Of its loads by `Reach`, as far as the engine tells."""

    def hear(self, others: Load) -> None:
        """The engine tells what others have sent, and how fast it loads."""
        self.num_requests += others.requests - self.others.requests
        self.prefill_tokens += others.prefill_tokens - self.others.prefill_tokens
        self.others = others
        self.speeds = speeds_by_reach(others.load_speeds)

    def add(self, sent: SentRequest, *, is_told: bool) -> None:
        """The request is sent. `is_told`: whether somebody will tell of its first token."""
        self.look(sent.sent_at)
        self._sent_at = sent.sent_at
        self.num_requests += 1
        self.prefill_tokens += sent.prefill_tokens
        self.loading_s += sent.loading_s
        (self._waiting if is_told else self._untold).append(sent)

    def begin(self, sent: SentRequest) -> None:
        """The request has its first token, or will have none: nobody waits for it any more."""
        if not sent.has_begun:
            sent.has_begun = True
            self.prefill_tokens -= sent.prefill_tokens
            self.loading_s -= sent.loading_s

    def overtake(self, sent: SentRequest) -> None:
        self._overtaken_at = max(self._overtaken_at, sent.sent_at)

    def look(self, now: float) -> None:
        """Sees what is overdue. A first token that nobody tells is taken to come when it is due. The request that waits
        may alone be at fault, so the engine is tried again: after 20 s, and whenever that time has doubled since."""
        waiting, untold = self._waiting, self._untold
        while untold and (untold[0].has_begun or untold[0].due_at <= now):
            self.begin(untold.popleft())
        while waiting and (waiting[0].has_begun or waiting[0].sent_at < self._overtaken_at):
            waiting.popleft()
        self.overdue_s = 0.0
        if waiting:
            late_s, tried_s = now - waiting[0].due_at, self._sent_at - waiting[0].due_at
            if 0.0 < late_s < 2 * max(_FIRST_TRY_S, tried_s):
                self.overdue_s = late_s

    def way(self, points: Points, num_tokens: int, token_s: float) -> Way:
        """The quickest way to the first token of a prompt that is partly on slower media. The ways are those of
        `LoadChooser`: load all, load what is in memory, compute."""
        on_device, in_memory, on_disk, everywhere = points
        ahead_s = self.prefill_tokens * token_s + self.overdue_s
        best = Way(on_device, 0.0, ahead_s + (num_tokens - on_device) * token_s)
        loads_s = 0.0
        if in_memory > on_device:
            loads_s = self._load_s(Reach.MEMORY, in_memory - on_device, token_s)
            best = min(best, self._way(in_memory, loads_s, ahead_s, (num_tokens - in_memory) * token_s), key=_QUICKEST)
        if everywhere > in_memory:
            loads_s += self._load_s(Reach.LOCAL, on_disk - in_memory, token_s)
            loads_s += self._load_s(Reach.SHARED, everywhere - on_disk, token_s)
            best = min(
                best, self._way(everywhere, loads_s, ahead_s, (num_tokens - everywhere) * token_s), key=_QUICKEST
            )
        return best

    def _way(self, resumed: int, loads_s: float, ahead_s: float, computing_s: float) -> Way:
        return Way(resumed, loads_s, first_token_s(self.loading_s + loads_s, ahead_s, computing_s))

    def _load_s(self, reach: Reach, num_tokens: int, token_s: float) -> float:
        if not num_tokens:
            return 0.0
        told = self.speeds[reach]
        return _UNTOLD[reach] * token_s * num_tokens if told is None else told.seconds_for(num_tokens)

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


def speeds_by_reach(speeds: Mapping[str, LoadSpeed]) -> Sequence[LoadSpeed | None]:
    """Of several media that are equally far, the slowest counts."""
    found: list[LoadSpeed | None] = [None] * len(Reach)
    for medium, speed in sorted(speeds.items(), key=lambda told: told[1].per_token_s):
        found[Reach.MEMORY if medium == MEMORY else reach_of(MEDIUM_STORAGE, medium)] = speed
    return found
