"""`History`: the last ten minutes of a server's work, a point every five seconds, for its page."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from octavo.server.metrics import ServerMetrics, counts_by_bound
from octavo.server.offload_view import Seen

_EVERY_S = 5.0
_MOST_POINTS = 120


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The work between two looks. Values that were not measured are None."""

    seconds: float
    computed_tokens: int
    resumed_tokens: int
    output_tokens: int
    first_token_s: tuple[float, float] | None
    """The median, and what 95 of 100 were faster than, as Prometheus reckons them from buckets."""
    between_tokens_s: tuple[float, float] | None
    loaded_bytes: dict[str, int]
    """Medium -> bytes."""
    stored_bytes: int
    preemptions: int
    errors: int
    """Answers of 500 and above, and steps that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    time: float
    computed: int
    resumed: int
    output: int
    first_token: Mapping[float, float]
    between_tokens: Mapping[float, float]
    loaded: Mapping[str, int]
    stored: int
    preemptions: int
    errors: int


class History:
    """Points, the oldest first. The oldest are forgotten."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self.points: deque[Point] = deque(maxlen=_MOST_POINTS)
        self._metrics = metrics
        self._before: _Totals | None = None

    async def keep(self, look: Callable[[], Awaitable[Seen | None]]) -> None:
        """Adds a point at each interval. Ends when there is no engine any more."""
        while (seen := await look()) is not None:
            self.note(seen, self._metrics.latencies.clock())
            await asyncio.sleep(_EVERY_S)

    def note(self, seen: Seen, now: float) -> None:
        """Adds what happened since the last time."""
        before, self._before = self._before, self._totals(seen, now)
        if before is not None and now > before.time:
            self.points.append(_point(before, self._before))

    def _totals(self, seen: Seen, now: float) -> _Totals:
        engine, offload = seen
        counters, latencies = engine.counters, self._metrics.latencies
        loaded: dict[str, int] = {}
        for (group_idx, medium), blocks in ({} if offload is None else offload.stats.loaded_blocks).items():
            loaded[medium] = loaded.get(medium, 0) + blocks * engine.groups[group_idx].page_bytes
        return _Totals(
            time=now,
            computed=counters.prefill_tokens_computed,
            resumed=sum(counters.tokens_resumed.values()),
            output=counters.output_tokens,
            first_token=counts_by_bound(latencies.first_token),
            between_tokens=counts_by_bound(latencies.between_tokens),
            loaded=loaded,
            stored=0 if offload is None else offload.stats.stored_bytes,
            preemptions=counters.preemptions,
            errors=counters.failed_steps + self._metrics.num_errors(),
        )


def _point(before: _Totals, now: _Totals) -> Point:
    return Point(
        seconds=now.time - before.time,
        computed_tokens=now.computed - before.computed,
        resumed_tokens=now.resumed - before.resumed,
        output_tokens=now.output - before.output,
        first_token_s=_median_and_p95(before.first_token, now.first_token),
        between_tokens_s=_median_and_p95(before.between_tokens, now.between_tokens),
        loaded_bytes={medium: number - before.loaded.get(medium, 0) for medium, number in now.loaded.items()},
        stored_bytes=now.stored - before.stored,
        preemptions=now.preemptions - before.preemptions,
        errors=now.errors - before.errors,
    )


def _median_and_p95(before: Mapping[float, float], now: Mapping[float, float]) -> tuple[float, float] | None:
    """The median and the 95th percentile of the observations between two states of a histogram with cumulative
    counts."""
    counts = [(bound, number - before[bound]) for bound, number in now.items()]
    return (quantile(counts, 0.5), quantile(counts, 0.95)) if counts[-1][1] else None


def quantile(counts: Sequence[tuple[float, float]], share: float) -> float:
    """The value below which this share of observations lies, with an even spread within a bucket. The last bucket has
    no end, so its beginning counts."""
    rank, lower, below = share * counts[-1][1], 0.0, 0.0
    for bound, number in counts:
        if number >= rank:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (number - below)
        lower, below = bound, number
    return lower
