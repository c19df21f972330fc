"""Prints docs/metrics.md: every metric of all commands, and the events that tiers count."""

import signal

from octavo.http import Described
from octavo.router import ROUTER_METRICS, SELECTION_METRICS
from octavo.server import METRICS
from octavo.tiers import CHUNK_EVENTS

INTRODUCTION = """\
# Metrics

`/metrics` answers in Prometheus' text form. Every metric of a server has the label `model`, the name under which the
model is served. Times are in seconds, sizes in bytes, and a name that ends in `_total` only grows. A histogram has
`_bucket`, `_sum` and `_count`. There are no exemplars.

[A dashboard](../deploy/grafana/octavo.json) for Grafana and [alerts](../deploy/prometheus/alerts.yaml) with
[their tests](../deploy/prometheus/alerts_test.yaml) (`promtool test rules`) are in `deploy/`.

Inside vLLM, its own `/metrics` has `octavo_tier_bytes`, `octavo_tier_budget_bytes`, `octavo_tier_chunks`,
`octavo_tier_up`, `octavo_tier_events_total`, `octavo_tier_incidents_total`, `octavo_hints_total` and
`octavo_loads_given_up_total` (`too_slow`, `cut_short`) with the same meaning.

This page is made from the code by `make docs`.
"""


def row(metric: Described) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.about} |"


def main() -> None:
    print(INTRODUCTION)
    for title, metrics in [*METRICS.items(), ("Router", ROUTER_METRICS), ("Selection service", SELECTION_METRICS)]:
        print(f"## {title}\n\n| Metric | Kind | Labels | What |\n|---|---|---|---|")
        print("\n".join(map(row, metrics)) + "\n")
    print("## Events of chunks\n")
    print("`octavo_tier_events_total` counts chunks, under the same names on every medium:\n")
    print("| Event | Chunks that were |\n|---|---|")
    print("\n".join(f"| `{event}` | {about} |" for event, about in CHUNK_EVENTS.items()))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
