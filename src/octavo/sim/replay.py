"""Replays a trace over one simulated engine, or over several behind a placement."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random

from octavo.errors import InputError
from octavo.sim.engine import SimConfig, SimulatedEngine
from octavo.sim.report import SimReport, make_report
from octavo.sim.traces import Trace, TraceRequest

Place = Callable[[TraceRequest, Sequence[SimulatedEngine]], int]
"""Which engine gets a request."""

_REPORT_EVERY = 100


def replay(
    trace: Trace,
    config: SimConfig,
    *,
    num_engines: int = 1,
    place: Place | None = None,
    note_progress: Callable[[int], None] = lambda _: None,
) -> SimReport:
    """Serves the whole trace. A KeyboardInterrupt ends it early: the report is then about what was served."""
    check_room(trace, config)
    engines = [SimulatedEngine(config) for _ in range(num_engines)]
    place = place or round_robin()
    is_whole = True
    try:
        for number, request in enumerate(trace.requests):
            for engine in engines:
                engine.run_until(request.arrival_s)
            engines[place(request, engines)].submit(number, request)
            if number % _REPORT_EVERY == 0:
                note_progress(number)
        for engine in engines:
            engine.finish()
    except KeyboardInterrupt:
        is_whole = False
    note_progress(len(trace.requests))
    return make_report(config, engines, is_whole=is_whole)


def check_room(trace: Trace, config: SimConfig) -> None:
    """The plan's longest context is the trace's, or a request would be refused in the middle."""
    longest = config.plan.limits.max_model_len
    if trace.longest > longest:
        raise InputError(
            f"the trace has a request of {trace.longest:,} tokens, and the plan's longest context is {longest:,}: "
            f"raise it (--context), or leave it out"
        )


def round_robin() -> Place:
    turns = count()
    return lambda _, engines: next(turns) % len(engines)


def at_random(seed: int = 0) -> Place:
    chooser = Random(seed)  # noqa: S311 - nothing secret hangs on it
    return lambda _, engines: chooser.randrange(len(engines))


def least_loaded() -> Place:
    """The engine with the fewest prompt tokens to compute, then the fewest requests."""

    def place(_: TraceRequest, engines: Sequence[SimulatedEngine]) -> int:
        return min(
            range(len(engines)), key=lambda index: (engines[index].num_waiting_tokens, engines[index].num_unfinished)
        )

    return place


def sticky() -> Place:
    """A session stays where it was first sent; requests without one go by their first block."""
    return lambda request, engines: hash(request.session or int(request.block_ids[0])) % len(engines)


PLACEMENTS: Mapping[str, Callable[[], Place]] = {
    "round_robin": round_robin,
    "random": at_random,
    "least_loaded": least_loaded,
    "sticky": sticky,
}
"""By the name that a command line gives."""
