"""Replays a trace over one simulated engine, or over several behind a placement."""

from collections.abc import Callable

from octavo.errors import InputError
from octavo.sim.engine import SimConfig, SimulatedEngine
from octavo.sim.placements import MakePlace, round_robin
from octavo.sim.report import SimReport, make_report
from octavo.sim.traces import Trace

_REPORT_EVERY = 100


def replay(
    trace: Trace,
    config: SimConfig,
    *,
    num_engines: int = 1,
    make_place: MakePlace = round_robin,
    note_progress: Callable[[int], None] = lambda _: None,
) -> SimReport:
    """Serves the whole trace. KeyboardInterrupt ends it early: the report is then about the requests served so far."""
    check_room(trace, config)
    engines = [SimulatedEngine(config) for _ in range(num_engines)]
    place = make_place(engines)
    busy: dict[int, SimulatedEngine] = {}
    """By index. The clocks of all others stand still, so that idle engines of a large fleet cost nothing."""
    is_whole = True
    try:
        for number, request in enumerate(trace.requests):
            for index, engine in list(busy.items()):
                engine.run_until(request.arrival_s)
                if engine.is_idle:
                    del busy[index]
            index = place(number, request)
            engines[index].run_until(request.arrival_s)
            engines[index].submit(number, request)
            busy[index] = engines[index]
            if number % _REPORT_EVERY == 0:
                note_progress(number)
        for engine in busy.values():
            engine.finish()
    except KeyboardInterrupt:
        is_whole = False
    note_progress(len(trace.requests))
    return make_report(config, engines, is_whole=is_whole)


def check_room(trace: Trace, config: SimConfig) -> None:
    """Checks that the plan has room for the trace's longest request, or one would be refused on the way."""
    longest = config.plan.limits.max_model_len
    if trace.longest > longest:
        raise InputError(
            f"the trace has a request of {trace.longest:,} tokens, and the plan's longest context is {longest:,}: "
            f"plan for longer ones, or leave it out"
        )
