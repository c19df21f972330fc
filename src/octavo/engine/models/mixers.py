"""Runs Hugging Face's recurrent mixers over a packed row, each segment alone with the states of its sequences.

A mixer takes its input for one sequence; over a whole packed row one request's state would run into the next.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from octavo.engine.models.mamba1 import ResumableScan
from octavo.engine.models.step_cache import StepCache

_STATE_GETTERS = frozenset({"get_conv_state", "get_recurrent_state"})


def run_mixers_by_segment(model: nn.Module) -> set[int]:
    """Wraps all modules of the model that ask the cache for a state; returns the indices of their layers."""
    mixers: list[Any] = [module for module in model.modules() if _asks_for_state(module)]
    for mixer in mixers:
        mixer.forward = _by_segment(ResumableScan.give_to(mixer), mixer.layer_idx)
    return {mixer.layer_idx for mixer in mixers}


def _asks_for_state(module: nn.Module) -> bool:
    return not _STATE_GETTERS.isdisjoint(inspect.unwrap(type(module).forward).__code__.co_names)


def _by_segment(forward: Callable[..., Any], layer_idx: int) -> Callable[..., Any]:
    """A mixer returns its output, or several: the inputs of an attention that follows it."""

    def run(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        cache = StepCache.among((*args, *kwargs.values()))
        kwargs = {name: value for name, value in kwargs.items() if name != "attention_mask"}  # nothing is padding here
        outputs = []
        for segment in cache.segments(layer_idx):
            tokens = hidden_states[0, segment.tokens]
            by_sequence = tokens.view(segment.num_sequences, -1, tokens.shape[-1])
            with cache.bound(layer_idx, segment):
                output = forward(by_sequence, *args, **kwargs)
            outputs.append([part.flatten(0, 1)[None] for part in (output if isinstance(output, tuple) else (output,))])
        parts = [of_one[0] if len(of_one) == 1 else torch.cat(of_one, 1) for of_one in zip(*outputs, strict=True)]
        return parts[0] if len(parts) == 1 else tuple(parts)

    return run
