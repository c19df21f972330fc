"""`Metric`: one metric of `/metrics`. Its declaration is also its line in docs/metrics.md.

Names follow Prometheus: a unit in seconds or bytes, and `_total` where a number only grows. Every metric bears the
label `model`, which is added when all are rendered.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Seen = TypeVar("Seen")
ByLabels = Iterable[tuple[tuple[str, ...], float]]
Values = float | Mapping[str, float] | ByLabels
"""One value, values by the only label, or values by all labels."""


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The name, kind, help and labels of a metric."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Generic[Seen]):
    """A metric that is read from what was seen when somebody asks."""

    described: Described
    read: Callable[[Seen], Values]

    def family(self, seen: Seen) -> Family:
        """Its values in Prometheus' words."""
        described = self.described
        make = CounterMetricFamily if described.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = make(described.name.removesuffix("_total"), described.about, labels=described.labels)
        for labels, value in _by_labels(self.read(seen)):
            family.add_metric(labels, value)
        return family


def counter(name: str, about: str, read: Callable[[Seen], Values], *labels: str) -> Metric[Seen]:
    """A number that only grows."""
    assert name.endswith("_total"), name
    return Metric(described=Described(name=name, kind=MetricKind.COUNTER, about=about, labels=labels), read=read)


def gauge(name: str, about: str, read: Callable[[Seen], Values], *labels: str) -> Metric[Seen]:
    """A number that goes up and down."""
    assert not name.endswith("_total"), name
    return Metric(described=Described(name=name, kind=MetricKind.GAUGE, about=about, labels=labels), read=read)


def render(families: Iterable[Family], labels: Mapping[str, str]) -> bytes:
    """Everything as text, with the labels on each sample."""
    registry = CollectorRegistry()
    registry.register(_Given([_labelled(family, labels) for family in families]))
    return generate_latest(registry)


def _by_labels(values: Values) -> ByLabels:
    if isinstance(values, Mapping):
        yield from (((label,), value) for label, value in values.items())
    elif isinstance(values, (int, float)):
        yield (), float(values)
    else:
        yield from values


def _labelled(family: Family, labels: Mapping[str, str]) -> Family:
    """The samples with their labels, without the gauges that tell when counters were made."""
    made = Family(family.name, family.documentation, family.type)
    made.samples = [
        Sample(sample.name, {**labels, **sample.labels}, sample.value)
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    return made


class _Given(Collector):
    """Families that are there already."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        return iter(self._families)
