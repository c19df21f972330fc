"""The simulator: a trace of requests replayed through the real scheduler, block manager, offloading and policies.

    traces -> replay -> engine (one or many) -> outcomes -> report

Bytes and computing are models (`media`, `speeds`); every rule is the one that the engine uses.
"""

from octavo.sim.engine import SimConfig
from octavo.sim.outcomes import Cause, Outcome
from octavo.sim.replay import PLACEMENTS, Place, check_room, replay
from octavo.sim.report import Lost, SimReport
from octavo.sim.speeds import Speeds
from octavo.sim.traces import Trace, TraceRequest, read_trace

__all__ = [
    "PLACEMENTS",
    "Cause",
    "Lost",
    "Outcome",
    "Place",
    "SimConfig",
    "SimReport",
    "Speeds",
    "Trace",
    "TraceRequest",
    "check_room",
    "read_trace",
    "replay",
]
