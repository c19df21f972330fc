"""The simulator: a trace of requests replayed through the real scheduler, block manager, offloading and policies.

Bytes and computing are models; every rule is the one that the engine uses.

Inside, where an arrow leads to what a module calls:

    trace_forms -> trace_records, trace_times      from a file to `traces`: lengths, times, and which blocks are equal
                   trace_sessions, trace_texts
    replay -> arrivals, placements, engine         a trace over one simulated engine, or several behind a placement
    placements -> routed                           which engine gets a request; the router's own index and costs
    engine -> media, speeds, losses                the real rules over models; why a request resumed no more
    outcomes, report, money                        what became of a request and of a trace, and what it is worth
    fitting                                        speeds from what `octavo bench serve` measured
"""

from octavo.sim.engine import SimConfig, SimulatedEngine, Watcher
from octavo.sim.fitting import read_speeds
from octavo.sim.money import Prices, Worth, worth_of
from octavo.sim.outcomes import Outcome
from octavo.sim.placements import PLACEMENTS, MakePlace, Place
from octavo.sim.replay import check_room, replay
from octavo.sim.report import Lost, SimReport
from octavo.sim.routed import TOLD_AFTER_S, RoutedPlace, SeveralRouters
from octavo.sim.speeds import Speeds
from octavo.sim.trace_forms import read_trace
from octavo.sim.traces import Trace, TraceRequest
from octavo.why import Cause

__all__ = [
    "PLACEMENTS",
    "TOLD_AFTER_S",
    "Cause",
    "Lost",
    "MakePlace",
    "Outcome",
    "Place",
    "Prices",
    "RoutedPlace",
    "SeveralRouters",
    "SimConfig",
    "SimReport",
    "SimulatedEngine",
    "Speeds",
    "Trace",
    "TraceRequest",
    "Watcher",
    "Worth",
    "check_room",
    "read_speeds",
    "read_trace",
    "replay",
    "worth_of",
]
