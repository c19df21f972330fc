"""Replays a trace over one simulated engine, or over several behind a placement."""

from collections.abc import Callable

from octavo.errors import InputError
from octavo.sim.arrivals import Arrivals
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
    arrivals = Arrivals(trace.requests)
    for engine in engines if arrivals.depends_on_ends else ():
        engine.watchers.append(arrivals)
    busy: dict[int, SimulatedEngine] = {}
    """By index. The clocks of all others stand still, so that idle engines of a large fleet cost nothing."""
    is_whole = True
    try:
        for count in range(len(trace.requests)):
            _run_until_next(busy, arrivals)
            number, request = arrivals.take()
            index = place(number, request)
            engines[index].run_until(request.arrival_s)
            engines[index].submit(number, request)
            busy[index] = engines[index]
            if count % _REPORT_EVERY == 0:
                note_progress(count)
        for engine in busy.values():
            engine.finish()
    except KeyboardInterrupt:
        is_whole = False
    note_progress(len(trace.requests))
    return make_report(config, engines, is_whole=is_whole)


def _run_until_next(busy: dict[int, SimulatedEngine], arrivals: Arrivals) -> None:
    """Runs the busy engines until the next request comes. Where an end may bring one sooner, the clock that is furthest
    behind goes on first, so that no engine is far ahead of who comes."""
    while arrivals.depends_on_ends and busy:
        index, engine = min(busy.items(), key=lambda item: (item[1].now, not item[1].num_unfinished))
        if engine.now >= arrivals.next_s:
            break
        others = [other.now for other in busy.values() if other is not engine and other.num_unfinished]
        engine.advance(min([arrivals.next_s, *others]))
        if engine.is_idle:
            del busy[index]
    for index, engine in list(busy.items()):
        engine.run_until(arrivals.next_s)
        if engine.is_idle:
            del busy[index]


def check_room(trace: Trace, config: SimConfig) -> None:
    """Checks that the plan has room for the trace's longest request, or one would be refused on the way."""
    longest = config.plan.limits.max_model_len
    if trace.longest > longest:
        raise InputError(
            f"the trace has a request of {trace.longest:,} tokens, and the plan's longest context is {longest:,}: "
            f"plan for longer ones, or leave it out"
        )
