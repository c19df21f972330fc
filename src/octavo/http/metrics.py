"""`HttpMetrics`: how a server's requests were answered, in Prometheus' counters."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric as Family

from octavo.http.metric import Described, MetricKind, render

FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
"""The buckets of a time to the first token."""

ANSWERS = Described(
    name="octavo_http_answers_total",
    kind=MetricKind.COUNTER,
    about="Answers, by path and status.",
    labels=("path", "status"),
)
GONE = Described(
    name="octavo_clients_gone_total",
    kind=MetricKind.COUNTER,
    about="Clients that went away before their answer ended.",
)


class HttpMetrics:
    """The metrics that a server of any kind has. Those of one kind add their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = self._counter(ANSWERS)
        self.clients_gone = self._counter(GONE)

    def count_answer(self, path: str, status: int) -> None:
        """`path` is a route, not what a client made up."""
        self._answers.labels(path, str(status)).inc()

    def num_errors(self) -> int:
        """Answers of 500 and above."""
        samples = (sample for family in self._answers.collect() for sample in family.samples)
        return int(sum(one.value for one in samples if one.labels["status"] >= "500" and one.name.endswith("_total")))

    def _as_text(self, seen: Iterable[Family], labels: Mapping[str, str] = MappingProxyType({})) -> bytes:
        """What was counted here and what is `seen` now, with the labels on each sample."""
        return render([*self._registry.collect(), *seen], labels)

    def _counter(self, described: Described) -> Counter:
        name = described.name.removesuffix("_total")
        return Counter(name, described.about, described.labels, registry=self._registry)

    def _histogram(self, described: Described, buckets: Sequence[float]) -> Histogram:
        return Histogram(described.name, described.about, buckets=buckets, registry=self._registry)
