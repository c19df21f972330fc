"""What the `/metrics` of a selection service tells."""

from octavo.http import ANSWERS, GONE, Described, HttpMetrics, Metric, counter, gauge
from octavo.router.selection.service import SelectionService

_SELECTION_METRICS: tuple[Metric[SelectionService], ...] = (
    counter("octavo_select_selections_total", "Workers that were chosen.", lambda seen: seen.num_selections),
    gauge("octavo_select_reservations", "Requests that were sent and have not ended.", lambda s: s.num_reservations),
    gauge("octavo_select_workers", "Workers that are registered.", lambda seen: len(seen.workers())),
    gauge(
        "octavo_select_index_blocks",
        "Blocks that are known; one that several ranks hold counts once.",
        lambda seen: seen.num_blocks,
    ),
)
SELECTION_METRICS: tuple[Described, ...] = (*(metric.described for metric in _SELECTION_METRICS), ANSWERS, GONE)
"""Those of `octavo select`."""


class SelectionMetrics(HttpMetrics):
    """One selection service's metrics."""

    def render(self, seen: SelectionService) -> bytes:
        """Everything as text."""
        return self._as_text(metric.family(seen) for metric in _SELECTION_METRICS)
