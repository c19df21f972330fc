"""What offloading counts, through vLLM's own way to Prometheus, under the names that Octavo's server uses."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from prometheus_client import REGISTRY
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata, OffloadingMetricMetadata

from octavo.chunks import HintKind, HintOutcome
from octavo.offload import MEMORY, OffloadStatus
from octavo.tiers import CHUNK_EVENTS, TierState
from octavo.units import counted, format_bytes

_BYTES, _BUDGET, _CHUNKS, _UP = "octavo_tier_bytes", "octavo_tier_budget_bytes", "octavo_tier_chunks", "octavo_tier_up"
_EVENTS, _INCIDENTS = "octavo_tier_events", "octavo_tier_incidents"
_HINTS, _GIVEN_UP = "octavo_hints", "octavo_loads_given_up"
_MEDIUM = ("medium",)

DEFINITIONS: Mapping[str, OffloadingMetricMetadata] = {
    _BYTES: OffloadingGaugeMetadata("Bytes in use.", _MEDIUM),
    _BUDGET: OffloadingGaugeMetadata("Bytes allowed.", _MEDIUM),
    _CHUNKS: OffloadingGaugeMetadata("Chunks held.", _MEDIUM),
    _UP: OffloadingGaugeMetadata("0: degraded, and off for now.", _MEDIUM),
    _EVENTS: OffloadingCounterMetadata("Chunks, by what happened to them.", ("medium", "event")),
    _INCIDENTS: OffloadingCounterMetadata("Times that something happened to the tier itself.", ("medium", "event")),
    _HINTS: OffloadingCounterMetadata(
        "Hints on resume points, by kind and by what became of them.", ("kind", "outcome")
    ),
    _GIVEN_UP: OffloadingCounterMetadata(
        "Loads of requests that were not waited for: too slow to be worth it, in whole or in part.", ("reason",)
    ),
}


def unregister_metrics() -> None:
    """Removes the metrics of an earlier engine in this process. vLLM removes only those with its own prefix before it
    registers them again."""
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001 - as vLLM does
        if getattr(collector, "_name", None) in DEFINITIONS:
            REGISTRY.unregister(collector)


class SharedPromMetrics(KVConnectorPromMetrics):
    """A connector's metrics for Prometheus, of which another connector may have some too.

    vLLM registers the metrics of one class of connectors after the other, and refuses a name that is there. So these
    are made when the first stats come, when all others are there, and each name that is there serves both.
    """

    def __init__(
        self,
        make: Callable[..., KVConnectorPromMetrics],
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        """`make` takes the other arguments."""
        super().__init__(vllm_config, dict(metric_types), labelnames, per_engine_labelvalues)
        shared = {kind: _found_or_made(of_logger) for kind, of_logger in metric_types.items()}
        self._make = partial(make, vllm_config, shared, labelnames, per_engine_labelvalues)
        self._made: KVConnectorPromMetrics | None = None

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        if self._made is None:
            self._made = self._make()
        self._made.observe(transfer_stats_data, engine_idx)


def _found_or_made(of_logger: Any) -> Callable[..., Any]:
    """Makes a metric of this class, unless there is one with its name."""

    def metric(**described: Any) -> Any:
        found = REGISTRY._names_to_collectors.get(described["name"])  # noqa: SLF001 - as vLLM does
        return found if isinstance(found, of_logger) else of_logger(**described)

    return metric


class MetricsOfTiers:
    """Statuses as vLLM's stats: gauges as they are, counters as their growth since the last call."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, ...], int] = {}

    def stats(
        self,
        status: OffloadStatus,
        own_counters: Mapping[str, int],
        hints: Mapping[tuple[HintKind, HintOutcome], int],
        loads_given_up: Mapping[str, int],
    ) -> OffloadingConnectorStats:
        stats = OffloadingConnectorStats()
        memory = status.bytes_used, status.bytes_budget, status.num_chunks, 1
        self._tell(stats, MEMORY, memory, {**status.counters, **own_counters})
        for medium, tier in status.tiers:
            is_up = int(tier.state is TierState.OK)
            self._tell(stats, medium, (tier.bytes_used, tier.bytes_budget, tier.num_chunks, is_up), tier.counters)
        for (kind, outcome), count in hints.items():
            self._count(stats, _HINTS, (kind, outcome), count)
        for reason, count in loads_given_up.items():
            self._count(stats, _GIVEN_UP, (reason,), count)
        return stats

    def _tell(
        self,
        stats: OffloadingConnectorStats,
        medium: str,
        gauges: tuple[int, int, int, int],
        counters: Mapping[str, int],
    ) -> None:
        for name, value in zip((_BYTES, _BUDGET, _CHUNKS, _UP), gauges, strict=True):
            stats.set_gauge(name, value, (medium,))
        for event, count in counters.items():
            self._count(stats, _EVENTS if event in CHUNK_EVENTS else _INCIDENTS, (medium, event), count)

    def _count(self, stats: OffloadingConnectorStats, name: str, labels: tuple[str, ...], count: int) -> None:
        known = (name, *labels)
        if (new := count - self._told.get(known, 0)) > 0:
            self._told[known] = count
            stats.increase_counter(name, new, labels)


def sum_up(status: OffloadStatus) -> str:
    """What there is to keep chunks in, nearest first, and how many are there already."""
    media = [(MEMORY, status.bytes_budget, status.num_chunks)]
    media += [(medium, tier.bytes_budget, tier.num_chunks) for medium, tier in status.tiers]
    return "; ".join(_sum_up_medium(*medium) for medium in media)


def _sum_up_medium(medium: str, bytes_budget: int, num_chunks: int) -> str:
    """A shared store has no budget of this engine's."""
    return f"{medium} of {format_bytes(bytes_budget)} with {counted(num_chunks, 'chunk')}" if bytes_budget else medium
