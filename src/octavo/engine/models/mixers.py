"""Runs Hugging Face's recurrent mixers over a packed row, each segment alone with the states of its sequences.

A mixer takes its input for one sequence; over a whole packed row one request's state would run into the next. A layer
may have several, such as a delta net and a convolution of embeddings, with states of their own.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from octavo.engine.cache import StateSegment
from octavo.engine.models.mamba1 import ResumableScan
from octavo.engine.models.step_cache import StepCache

_STATE_CALLS = frozenset({"get_conv_state", "get_recurrent_state", "update_conv_state", "update_recurrent_state"})


def run_mixers_by_segment(model: nn.Module) -> set[int]:
    """Wraps all modules of the model that ask the cache for a state; returns the indices of their layers."""
    mixers = list(_outermost(model))
    for mixer in mixers:
        mixer.forward = _by_segment(ResumableScan.give_to(mixer), mixer.layer_idx)
    return {mixer.layer_idx for mixer in mixers}


def _outermost(module: nn.Module) -> Iterator[Any]:
    """The modules that ask the cache for a state. What is inside of one runs with it."""
    for child in module.children():
        if hasattr(child, "layer_idx") and _asks_for_state(child):
            yield child
        else:
            yield from _outermost(child)


def _asks_for_state(module: nn.Module) -> bool:
    methods = (method for of_class in type(module).__mro__ for method in vars(of_class).values())
    return any(
        not _STATE_CALLS.isdisjoint(inspect.unwrap(method).__code__.co_names)
        for method in methods
        if inspect.isfunction(method)
    )


def _by_segment(forward: Callable[..., Any], layer_idx: int) -> Callable[..., Any]:
    """A mixer returns its output, or several: the inputs of an attention that follows it."""

    def run(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        cache = StepCache.among((*args, *kwargs.values()))
        named = {name: value for name, value in kwargs.items() if name != "attention_mask"}  # nothing is padding here
        row = hidden_states.shape[:2]
        outputs = []
        for segment in cache.segments(layer_idx):
            others = [_of_segment(value, row, segment) for value in args]
            own = {name: _of_segment(value, row, segment) for name, value in named.items()}
            with cache.bound(layer_idx, segment):
                output = forward(segment.by_sequence(hidden_states[0]), *others, **own)
            outputs.append([part.flatten(0, 1)[None] for part in (output if isinstance(output, tuple) else (output,))])
        parts = [of_one[0] if len(of_one) == 1 else torch.cat(of_one, 1) for of_one in zip(*outputs, strict=True)]
        return parts[0] if len(parts) == 1 else tuple(parts)

    return run


def _of_segment(value: Any, row: torch.Size, segment: StateSegment) -> Any:
    """An argument for one segment: cut where there is one of it for each token of the packed row."""
    is_by_token = isinstance(value, torch.Tensor) and value.shape[:2] == row
    return segment.by_sequence(value[0]) if is_by_token else value
