"""When the requests of a trace come: at times of their own, or some time after another one's end.

    {"session_id": "s", "timestamp": 2000, ...}      two seconds after the trace's beginning
    {"session_id": "s", "delay": 500, ...}           half a second after the end of the request before it in its session

The second form is that of Dynamo's and AIPerf's conversations. Its requests wait for their engine.
"""

from dataclasses import replace

from octavo.sim.trace_records import TraceRecord
from octavo.sim.traces import TraceRequest

TIMES = ("timestamp", "created_time")
DELAYS = ("delay", "delay_ms")
_MS_PER_S = 1000.0


class Times:
    """Gives requests their times, one after the other."""

    def __init__(self, units_per_s: float) -> None:
        self._units_per_s = units_per_s
        self._last: dict[str, TraceRequest] = {}
        """By session: its last request so far."""

    def timed(self, request: TraceRequest, record: TraceRecord) -> TraceRequest:
        key, delay = record.first_of(*TIMES), record.first_of(*DELAYS)
        before = self._last.get(request.session) if request.session else None
        if record.has(key) or not record.has(delay):
            timed = replace(request, arrival_s=record.time_s(key, self._units_per_s))
        elif before is None:
            raise record.wrong(
                f"{key} is missing: a {delay} counts from the end of the request before it with the same session_id, "
                "and there is none"
            )
        else:
            delay_s = record.number(delay) / _MS_PER_S
            timed = replace(request, arrival_s=before.arrival_s + delay_s, follows=before.place, delay_s=delay_s)
        self._last[request.session] = timed
        return timed
