"""`HttpMetrics`: how a server's requests were answered, in Prometheus' counters."""

from prometheus_client import CollectorRegistry, Counter

from octavo.server.metric import Described, MetricKind

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
    """The counters of one server, in its registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._answers = _counter(ANSWERS, registry)
        self.clients_gone = _counter(GONE, registry)

    def count_answer(self, path: str, status: int) -> None:
        """`path` is a route, not what a client made up."""
        self._answers.labels(path, str(status)).inc()

    def num_errors(self) -> int:
        """Answers of 500 and above."""
        samples = (sample for family in self._answers.collect() for sample in family.samples)
        return int(sum(one.value for one in samples if one.labels["status"] >= "500" and one.name.endswith("_total")))


def _counter(described: Described, registry: CollectorRegistry) -> Counter:
    return Counter(described.name.removesuffix("_total"), described.about, described.labels, registry=registry)
