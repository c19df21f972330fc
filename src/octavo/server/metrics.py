"""Metrics for Prometheus, in a registry of their own. Counters are read from the engine when somebody asks."""

import time
from collections.abc import Callable, Sequence

from prometheus_client import Histogram
from prometheus_client.core import Metric as Family

from octavo.engine import EngineSnapshot
from octavo.http import ANSWERS, FIRST_TOKEN_S, GONE, Described, HttpMetrics, Metric, MetricKind, gauge
from octavo.server.engine_metrics import ENGINE_METRICS
from octavo.server.offload_metrics import OFFLOAD_METRICS
from octavo.server.offload_view import OffloadReport
from octavo.version import __version__

_BETWEEN_TOKENS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)

_UP: Metric[bool] = gauge("octavo_engine_up", "1 while the engine lives.", float)
_INFO: Metric[None] = gauge(
    "octavo_info", "Always 1; its labels say which version runs.", lambda _: {__version__: 1.0}, "version"
)
_FIRST_TOKEN = Described(
    name="octavo_time_to_first_token_seconds",
    kind=MetricKind.HISTOGRAM,
    about="From the request to its first token.",
)
_BETWEEN_TOKENS = Described(
    name="octavo_inter_token_latency_seconds", kind=MetricKind.HISTOGRAM, about="From a token to the next one."
)
_REQUEST = Described(
    name="octavo_request_seconds",
    kind=MetricKind.HISTOGRAM,
    about="From the request to its end, of those that got a token.",
)

METRICS: dict[str, tuple[Described, ...]] = {
    "Server": (_UP.described, _INFO.described, _FIRST_TOKEN, _BETWEEN_TOKENS, _REQUEST, ANSWERS, GONE),
    "Engine": tuple(metric.described for metric in ENGINE_METRICS),
    "Memory and tiers": tuple(metric.described for metric in OFFLOAD_METRICS),
}
"""All metrics, by their subject."""


class Latencies:
    """Times as clients see them: the queue and the network's backlog included."""

    def __init__(self, histogram: Callable[[Described, Sequence[float]], Histogram]) -> None:
        self.clock = time.monotonic
        self.first_token = histogram(_FIRST_TOKEN, FIRST_TOKEN_S)
        self.between_tokens = histogram(_BETWEEN_TOKENS, _BETWEEN_TOKENS_S)
        self.whole_request = histogram(_REQUEST, _REQUEST_S)

    def note_tokens(self, num_tokens: int, seconds: float) -> None:
        """Tokens that came at once took equally long each."""
        for _ in range(num_tokens):
            self.between_tokens.observe(seconds / num_tokens)


class ServerMetrics(HttpMetrics):
    """The metrics of one server. Each carries the model's name."""

    def __init__(self, model_name: str) -> None:
        super().__init__()
        self._labels = {"model": model_name}
        self.latencies = Latencies(self._histogram)

    def render(self, snapshot: EngineSnapshot | None, offload: OffloadReport | None) -> bytes:
        """Everything as text; without the engine's part if there is no engine any more."""
        families: list[Family] = [_UP.family(snapshot is not None), _INFO.family(None)]
        if snapshot is not None:
            families += [metric.family(snapshot) for metric in ENGINE_METRICS]
        if offload is not None:
            families += [metric.family(offload) for metric in OFFLOAD_METRICS]
        return self._as_text(families, self._labels)


def counts_by_bound(histogram: Histogram) -> dict[float, float]:
    """How many observations took at most this long, by the bounds of its buckets."""
    samples = (sample for family in histogram.collect() for sample in family.samples)
    return {float(one.labels["le"]): one.value for one in samples if one.name.endswith("_bucket")}
