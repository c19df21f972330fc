"""Metrics for Prometheus, in a registry of their own. Counters are read from the engine when somebody asks."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.engine import EngineSnapshot
from octavo.server.offload_view import OffloadReport, transfer_counts, view_tiers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
_BETWEEN_TOKENS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)

_Labelled = Iterable[tuple[tuple[str, ...], float]]


class Latencies:
    """Times as clients see them: the queue and the network's backlog included."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.first_token = Histogram(
            "octavo_time_to_first_token_seconds",
            "From the request to its first token.",
            buckets=_FIRST_TOKEN_S,
            registry=registry,
        )
        self._between_tokens = Histogram(
            "octavo_inter_token_latency_seconds",
            "From a token to the next one.",
            buckets=_BETWEEN_TOKENS_S,
            registry=registry,
        )
        self.whole_request = Histogram(
            "octavo_request_seconds",
            "From the request to its end, of those that got a token.",
            buckets=_REQUEST_S,
            registry=registry,
        )

    def note_tokens(self, num_tokens: int, seconds: float) -> None:
        """Tokens that came at once took equally long each."""
        for _ in range(num_tokens):
            self._between_tokens.observe(seconds / num_tokens)


class ServerMetrics:
    """One server's metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.latencies = Latencies(self._registry)
        self._answers = Counter(
            "octavo_http_answers", "Answers, by path and status.", ["path", "status"], registry=self._registry
        )
        self.clients_gone = Counter(
            "octavo_clients_gone", "Clients that went away before their answer ended.", registry=self._registry
        )

    def count_answer(self, path: str, status: int) -> None:
        """`path` is a route, not what a client made up."""
        self._answers.labels(path, str(status)).inc()

    def render(self, snapshot: EngineSnapshot | None, offload: OffloadReport | None) -> bytes:
        """Everything as text; without the engine's part if there is no engine any more."""
        families: list[Metric] = [_gauge("octavo_engine_up", "Whether the engine lives.", float(snapshot is not None))]
        families += [] if snapshot is None else _of_engine(snapshot)
        families += [] if offload is None else _of_offload(offload)
        now = CollectorRegistry()
        now.register(_Given(families))
        return generate_latest(self._registry) + generate_latest(now)


class _Given(Collector):
    """Families that are there already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _of_engine(snapshot: EngineSnapshot) -> list[Metric]:
    counters = snapshot.counters
    return [
        _gauge("octavo_requests_running", "Sequences that are being computed.", snapshot.num_running),
        _gauge("octavo_requests_waiting", "Sequences that wait for their turn.", snapshot.num_waiting),
        _count("octavo_requests", "Requests that came in.", counters.requests),
        _count("octavo_prompt_tokens", "Tokens of prompts that came in.", counters.prompt_tokens),
        _count("octavo_prefill_tokens_computed", "Prompt tokens computed.", counters.prefill_tokens_computed),
        _count("octavo_output_tokens", "Tokens sampled.", counters.output_tokens),
        _count("octavo_tokens_asked", "Tokens that started sequences might have resumed.", counters.tokens_asked),
        _counts("octavo_tokens_resumed", "Tokens resumed, by medium.", "medium", counters.tokens_resumed),
        _counts(
            "octavo_tokens_missed",
            "Tokens not resumed for what a group lacked.",
            "group",
            {str(group): tokens for group, tokens in counters.tokens_missed_by_group.items()},
        ),
        _counts("octavo_choices_finished", "Outputs that ended, by reason.", "reason", counters.choices_finished),
        _count("octavo_preemptions", "Sequences that gave up their pages.", counters.preemptions),
        _gauge("octavo_engine_stalled", "Whether no request gets further.", float(snapshot.is_stalled)),
        _count("octavo_engine_stalls", "Times that no request got further.", counters.stalls),
        _count("octavo_steps", "Steps that computed something.", counters.steps),
        _count("octavo_failed_steps", "Steps that failed.", counters.failed_steps),
        _count("octavo_forward_seconds", "Time in the model.", counters.forward_s),
        _count("octavo_step_seconds", "Time in steps, the model included.", counters.step_s),
        *_of_pool(snapshot),
    ]


def _of_pool(snapshot: EngineSnapshot) -> list[Metric]:
    sheets = {"free": snapshot.free_sheets, "leased": snapshot.num_sheets - snapshot.free_sheets}
    pages = (
        ((str(index), state), float(getattr(page_class, f"{state}_pages")))
        for index, page_class in enumerate(snapshot.classes)
        for state in ("held", "cached", "free")
    )
    blocks = (
        ((str(group.group_idx), group.kind, state), float(getattr(group, f"{state}_blocks")))
        for group in snapshot.groups
        for state in ("held", "indexed")
    )
    return [
        _gauge("octavo_pool_sheet_bytes", "Size of a sheet.", snapshot.sheet_bytes),
        _gauges(
            "octavo_pool_sheets",
            "Sheets of the pool.",
            ("state",),
            (((state,), float(number)) for state, number in sheets.items()),
        ),
        _gauges("octavo_pool_pages", "Pages of leased sheets.", ("page_class", "state"), pages),
        _gauges("octavo_pool_blocks", "Blocks in the pool, by group.", ("group", "kind", "state"), blocks),
    ]


def _of_offload(report: OffloadReport) -> list[Metric]:
    tiers = view_tiers(report)
    counters = CounterMetricFamily("octavo_tier_events", "What happened on a tier.", labels=("medium", "event"))
    for tier in tiers:
        for name, number in tier.counters.items():
            counters.add_metric((tier.medium, name), number)
    return [
        _by_medium("octavo_tier_bytes", "Bytes in use.", ((tier.medium, tier.bytes_used) for tier in tiers)),
        _by_medium("octavo_tier_budget_bytes", "Bytes allowed.", ((tier.medium, tier.bytes_budget) for tier in tiers)),
        _by_medium("octavo_tier_chunks", "Chunks held.", ((tier.medium, tier.num_chunks) for tier in tiers)),
        _by_medium("octavo_tier_up", "0: degraded, and off for now.", ((tier.medium, tier.is_ok) for tier in tiers)),
        counters,
        _blocks_loaded(report),
        _counts("octavo_offload", "Loads and stores of the device.", "event", transfer_counts(report)),
    ]


def _blocks_loaded(report: OffloadReport) -> Metric:
    family = CounterMetricFamily(
        "octavo_blocks_loaded", "Blocks brought to the device, by group and medium.", labels=("group", "medium")
    )
    for (group_idx, medium), blocks in report.stats.loaded_blocks.items():
        family.add_metric((str(group_idx), medium), blocks)
    return family


def _by_medium(name: str, about: str, values: Iterable[tuple[str, float]]) -> Metric:
    return _gauges(name, about, ("medium",), (((medium,), value) for medium, value in values))


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _gauges(name: str, about: str, labels: tuple[str, ...], values: _Labelled) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def _count(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def _counts(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, about, labels=(label,))
    for label_value, value in values.items():
        family.add_metric((label_value,), value)
    return family
