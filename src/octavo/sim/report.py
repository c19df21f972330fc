"""The results of a simulation, as data."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.sim.engine import SimConfig, SimulatedEngine
from octavo.sim.outcomes import Outcome
from octavo.sim.speeds import Speeds

DEVICE = "device"
_OVERLOAD = 1.2
_A_WHILE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Tokens that were computed again, though requests had computed them before."""

    cause: str
    group: str
    """The kind and number of the first group that lacked a block; empty if none did."""
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimReport:
    """The results of the whole trace, or of the part that was served."""

    is_whole: bool
    num_requests: int
    prompt_tokens: int
    output_tokens: int
    seen_tokens: int
    """Prompt tokens that requests had computed before: no cache could resume more."""
    resumed_tokens: Mapping[str, int]
    """Resumed tokens by medium."""
    lost: Sequence[Lost]
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    arrivals_s: float
    """Seconds from the first request's arrival to the last one's."""
    duration_s: float
    """Seconds from the first request's arrival to the last one's end."""
    loaded_tokens: int
    """Tokens that were resumed from other media than the device."""
    loaded_s: float
    """Seconds that computing these tokens would have taken."""
    bytes_stored: Mapping[str, int]
    bytes_loaded: Mapping[str, int]
    bytes_used: Mapping[str, int]
    """Bytes on each medium at the end, over all engines."""
    preemptions: int

    @property
    def is_overloaded(self) -> bool:
        """Whether the engines were too slow for the requests, so that these waited longer and longer."""
        return self.is_whole and self.duration_s > _OVERLOAD * self.arrivals_s + _A_WHILE_S

    @property
    def resumed_share(self) -> float:
        return sum(self.resumed_tokens.values()) / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def seen_share(self) -> float:
        return self.seen_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def make_report(config: SimConfig, engines: Sequence[SimulatedEngine], *, is_whole: bool) -> SimReport:
    outcomes = [outcome for engine in engines for outcome in engine.outcomes if outcome.end_s is not None]
    ttfts = np.array([outcome.ttft_s for outcome in outcomes if outcome.ttft_s is not None] or [0.0])
    arrivals = [outcome.asked.arrival_s for outcome in outcomes]
    first = min(arrivals, default=0.0)
    resumed: Counter[str] = Counter()
    for outcome in outcomes:
        resumed.update(outcome.resumed)
    return SimReport(
        is_whole=is_whole,
        num_requests=len(outcomes),
        prompt_tokens=sum(outcome.asked.num_prompt_tokens for outcome in outcomes),
        output_tokens=sum(outcome.asked.num_output_tokens for outcome in outcomes),
        seen_tokens=sum(outcome.num_seen_tokens for outcome in outcomes),
        resumed_tokens=dict(resumed),
        lost=_losses(config, outcomes),
        ttft_mean_s=float(ttfts.mean()),
        ttft_p50_s=float(np.percentile(ttfts, 50)),
        ttft_p99_s=float(np.percentile(ttfts, 99)),
        arrivals_s=max(arrivals, default=0.0) - first,
        duration_s=max((outcome.end_s or 0.0 for outcome in outcomes), default=first) - first,
        loaded_tokens=sum(resumed.values()) - resumed[DEVICE],
        loaded_s=sum(_loaded_s(outcome, config.speeds) for outcome in outcomes),
        bytes_stored=_sum(engine.bytes_stored() for engine in engines),
        bytes_loaded=_sum(engine.bytes_loaded() for engine in engines),
        bytes_used=_sum(engine.bytes_used() for engine in engines),
        preemptions=sum(engine.counters.preemptions for engine in engines),
    )


def _loaded_s(outcome: Outcome, speeds: Speeds) -> float:
    """Seconds that computing the request's loaded tokens would have taken. They follow those of the device."""
    return speeds.prefill_s(outcome.resumed.get(DEVICE, 0), outcome.num_resumed_tokens)


def _losses(config: SimConfig, outcomes: Sequence[Outcome]) -> list[Lost]:
    tokens: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        if outcome.cause is not None:
            group = outcome.lost_group
            name = "" if group is None else f"{group} {config.plan.groups[group].kind}"
            tokens[outcome.cause, name] += outcome.num_lost_tokens
    return [Lost(cause=cause, group=group, num_tokens=count) for (cause, group), count in tokens.most_common()]


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
