"""The engine's `WhyLog`, and how its scheduler tells it that requests start."""

from collections.abc import Callable

from octavo.blocks import KVCacheManager
from octavo.engine.request import Choice
from octavo.why import BelowDevice, WhyLog


def make_why_log(manager: KVCacheManager, below: BelowDevice | None) -> WhyLog | None:
    """The log, or None without prefix caching: then nothing records what the pool evicts."""
    departures = manager.pool.departures
    return None if departures is None else WhyLog(manager, departures, below)


def start_noter(why: WhyLog | None, age: Callable[[], float]) -> Callable[[Choice], None] | None:
    """The function that the scheduler calls once per request. `age` is the seconds since the engine began."""
    if why is None:
        return None

    def note_start(choice: Choice) -> None:
        request = choice.request
        why.started(
            request.request_id,
            choice.blocks,
            request.cached_tokens,
            waited_s=max(0.0, age() - request.arrival_s),
            bypassed=request.wants_prompt_logprobs,
        )

    return note_start
