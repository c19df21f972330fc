"""Tells when weights are loaded into an engine that runs, as `reload_weights` and trainers do."""

from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any


def watch_weights(frame: FrameType | None, changed: Callable[[], None]) -> bool:
    """Calls `changed` before each load from now on. `frame` is one that vLLM's model runner has called, directly or
    not: vLLM shows it nowhere else. False if there is none."""
    runner = _find_runner(frame)
    if runner is None:
        return False
    for owner, name in ((runner, "reload_weights"), (runner.get_model(), "load_weights")):
        load = getattr(owner, name, None)
        if load is not None:
            setattr(owner, name, _told(load, changed))
    return True


def _find_runner(frame: FrameType | None) -> Any:
    while frame is not None:
        owner = frame.f_locals.get("self")
        if hasattr(owner, "reload_weights") and hasattr(owner, "get_model"):
            return owner
        frame = frame.f_back
    return None


def _told(load: Callable[..., Any], changed: Callable[[], None]) -> Callable[..., Any]:
    @wraps(load)
    def told(*arguments: Any, **named: Any) -> Any:
        changed()
        return load(*arguments, **named)

    return told
