"""What a router's `/metrics` tells."""

from collections.abc import Callable, Mapping

from octavo.http import ANSWERS, FIRST_TOKEN_S, GONE, Described, HttpMetrics, Metric, MetricKind, counter, gauge
from octavo.router.state import EngineState, FleetState

_FIRST_TOKEN = Described(
    name="octavo_router_time_to_first_token_seconds",
    kind=MetricKind.HISTOGRAM,
    about="From a streamed request to the first piece of its answer, the choice of an engine included.",
)


def _by_engine(read: Callable[[EngineState], float]) -> Callable[[FleetState], Mapping[str, float]]:
    return lambda seen: {engine.name: float(read(engine)) for engine in seen.engines}


_FLEET_METRICS: tuple[Metric[FleetState], ...] = (
    counter("octavo_router_requests_total", "Requests that came in.", lambda seen: seen.requests),
    counter(
        "octavo_router_retries_total",
        "Times that a request went on to another engine, as one could not answer it.",
        lambda seen: seen.retries,
    ),
    counter(
        "octavo_router_prompt_tokens_total",
        "Tokens of prompts that were sent to engines.",
        lambda seen: seen.prompt_tokens,
    ),
    counter(
        "octavo_router_expected_tokens_total",
        "Tokens of these prompts that the router expected to be resumed.",
        lambda seen: seen.expected_tokens,
    ),
    gauge(
        "octavo_router_index_blocks",
        "Blocks that the router knows; one that several engines hold counts once.",
        lambda seen: seen.index_blocks,
    ),
    gauge(
        "octavo_router_engine_up",
        "1 while the engine can be reached.",
        _by_engine(lambda engine: engine.is_reachable),
        "engine",
    ),
    gauge(
        "octavo_router_engine_draining",
        "1 while an operator keeps new requests from the engine.",
        _by_engine(lambda engine: engine.is_draining),
        "engine",
    ),
    gauge(
        "octavo_router_engine_known",
        "1 while the router knows all blocks that the engine holds.",
        _by_engine(lambda engine: engine.knows_all_blocks),
        "engine",
    ),
    gauge(
        "octavo_router_engine_open_requests",
        "Requests that this router sent there and that have not ended.",
        _by_engine(lambda engine: engine.open_requests),
        "engine",
    ),
    gauge(
        "octavo_router_engine_prefill_tokens",
        "Tokens that this router sent there and that wait for their prefill.",
        _by_engine(lambda engine: engine.prefill_tokens),
        "engine",
    ),
    gauge(
        "octavo_router_engine_others_open_requests",
        "Open requests there that this router did not send, as far as the engine tells.",
        _by_engine(lambda engine: engine.others_open_requests),
        "engine",
    ),
    gauge(
        "octavo_router_engine_others_prefill_tokens",
        "Tokens of these requests that wait for their prefill.",
        _by_engine(lambda engine: engine.others_prefill_tokens),
        "engine",
    ),
    gauge(
        "octavo_router_engine_prefill_tokens_per_second",
        "The speed of prefill that the router has learned of the engine.",
        _by_engine(lambda engine: engine.prefill_tokens_per_s),
        "engine",
    ),
    gauge(
        "octavo_router_engine_blocks",
        "Blocks of all groups and media that the engine told of.",
        _by_engine(lambda engine: engine.num_blocks),
        "engine",
    ),
    counter(
        "octavo_router_engine_event_batches_total",
        "Batches of events that were taken in.",
        _by_engine(lambda engine: engine.event_batches),
        "engine",
    ),
    gauge(
        "octavo_router_engine_dropped_events",
        "Events that could not be applied since the engine began.",
        _by_engine(lambda engine: engine.dropped_events),
        "engine",
    ),
)

ROUTER_METRICS: tuple[Described, ...] = (
    *(metric.described for metric in _FLEET_METRICS),
    _FIRST_TOKEN,
    ANSWERS,
    GONE,
)
"""All that there are."""


class RouterMetrics(HttpMetrics):
    """One router's metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.first_token = self._histogram(_FIRST_TOKEN, FIRST_TOKEN_S)

    def render(self, seen: FleetState) -> bytes:
        """Everything as text."""
        return self._as_text(metric.family(seen) for metric in _FLEET_METRICS)
