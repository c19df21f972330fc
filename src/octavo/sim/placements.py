"""Which engine of a simulated fleet gets a request."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random

from octavo.sim.engine import SimulatedEngine
from octavo.sim.routed import RoutedPlace
from octavo.sim.traces import TraceRequest

Place = Callable[[int, TraceRequest], int]
"""Picks the engine of a request, given its number in the trace. The engines' clocks are at its arrival."""
MakePlace = Callable[[Sequence[SimulatedEngine]], Place]
"""Makes a `Place` for engines that have not begun."""


def round_robin(engines: Sequence[SimulatedEngine]) -> Place:
    turns = count()
    return lambda _number, _request: next(turns) % len(engines)


def at_random(engines: Sequence[SimulatedEngine]) -> Place:
    chooser = _chooser()
    return lambda _number, _request: chooser.randrange(len(engines))


def least_loaded(engines: Sequence[SimulatedEngine]) -> Place:
    """The engine with the fewest prompt tokens to compute, then with the fewest requests, then by chance."""
    chooser = _chooser()

    def place(_number: int, _request: TraceRequest) -> int:
        loads = [(engine.num_waiting_tokens, engine.num_unfinished) for engine in engines]
        least = min(loads)
        return chooser.choice([index for index, load in enumerate(loads) if load == least])

    return place


def sticky(engines: Sequence[SimulatedEngine]) -> Place:
    """A session stays on the engine that it was first sent to; a new one goes to any.

    If the trace names no sessions, a request continues the longest earlier prompt that it begins with, unless another
    request has continued it.
    """
    chooser = _chooser()
    engine_of: dict[str | int, int] = {}
    """By session, or by the last full block of a prompt that no other request has continued."""

    def place(_number: int, request: TraceRequest) -> int:
        if request.session:
            return engine_of.setdefault(request.session, chooser.randrange(len(engines)))
        blocks: list[int] = request.block_ids[: request.num_prompt_tokens // request.block_tokens].tolist()
        before = next((block for block in reversed(blocks) if block in engine_of), None)
        engine = chooser.randrange(len(engines)) if before is None else engine_of.pop(before)
        if blocks:
            engine_of[blocks[-1]] = engine
        return engine

    return place


def _chooser() -> Random:
    return Random(0)  # noqa: S311 - nothing secret hangs on it


PLACEMENTS: Mapping[str, MakePlace] = {
    "round_robin": round_robin,
    "random": at_random,
    "least_loaded": least_loaded,
    "sticky": sticky,
    "longest_prefix": partial(RoutedPlace, knows_all_groups=False),
    "octavo": RoutedPlace,
}
"""By name on the command line."""
