"""`StepCache`: what a Hugging Face model sees as its cache while it computes one step.

Attention layers hand in the step's keys and values, which are written to pages. In return they get a `LayerContext`,
which the model carries to its attention function. Recurrent layers run segment by segment
(`octavo.engine.models.mixers`) and get the states of the segment's sequences.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from octavo.engine.attention import LayerContext
from octavo.engine.cache import (
    AttentionPages,
    AttentionStep,
    BoundStates,
    IndexReads,
    LatentPages,
    Records,
    StateKey,
    StatePages,
    StateSegment,
    StateStep,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerState:
    """The pages with one layer's state, and the order of the tensors in them."""

    pages: StatePages
    keys: tuple[StateKey, ...]
    step: StateStep
    known: Mapping[StateKey, torch.Tensor]
    """(tokens of the packed row, size) by key: what the model asks for as a state before each token, and that no page
    holds."""


def cache_argument(model: nn.Module) -> str:
    """The name of the cache among a model's arguments: `cache` since transformers 5.24, `past_key_values` before."""
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


class StepCache:
    """The cache of one step. Its method names and arguments are Hugging Face's."""

    @staticmethod
    def among(arguments: Iterable[object]) -> "StepCache":
        """The one among the arguments of a mixer, whose name for it depends on the version of transformers."""
        return next(one for one in arguments if isinstance(one, StepCache))

    # Models ask for it before they decide that they need no masks.
    is_sliding = is_linear = is_dummy = ()
    is_compileable = False

    def __init__(
        self,
        positions: torch.Tensor,
        attention: Mapping[int, tuple[AttentionPages | LatentPages, AttentionStep]],
        states: Mapping[int, LayerState],
        indexers: Mapping[int, IndexReads],
        records: Mapping[int, Mapping[str, Records]],
    ) -> None:
        """All arguments are by layer."""
        self._offsets = positions - torch.arange(len(positions), device=positions.device)
        self._attention = attention
        self._states = states
        self._indexers = indexers
        self._records = records
        self._bound: BoundStates | None = None
        self.layers: Mapping[int, Any] = defaultdict(lambda: SimpleNamespace(indexer_position_ids=None))
        """Where a model keeps all positions so far: here each step has its own alone."""

    # ---- attention -----------------------------------------------------------------------------------------------

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_args: object, **_kwargs: object
    ) -> tuple[LayerContext, LayerContext]:
        pages, step = self._attention[layer_idx]
        pages.write(step.write_rows, step.write_slots, key_states, value_states)
        context = LayerContext(step=step, pages=pages, keys=key_states, values=value_states)
        return context, context

    def get_seq_length(self, layer_idx: int = 0) -> torch.Tensor:
        """Per token, the number that a model adds to `arange(tokens)` to get the token's true position."""
        return self._offsets

    # ---- indexers ------------------------------------------------------------------------------------------------

    def index_reads(self, layer_idx: int) -> IndexReads:
        return self._indexers[layer_idx]

    def update_indexer(self, indexer_keys: torch.Tensor, layer_idx: int) -> torch.Tensor:
        return self._indexers[layer_idx].exchange(indexer_keys)

    # ---- compressors ---------------------------------------------------------------------------------------------

    def records(self, layer_idx: int) -> Mapping[str, Records]:
        """By the name that its compressors use."""
        return self._records[layer_idx]

    # ---- recurrent state -----------------------------------------------------------------------------------------

    def segments(self, layer_idx: int) -> tuple[StateSegment, ...]:
        return self._states[layer_idx].step.segments

    @contextmanager
    def bound(self, layer_idx: int, segment: StateSegment) -> Iterator[None]:
        """While it is open, a mixer computes this segment and reads and writes the states of its sequences."""
        layer = self._states[layer_idx]
        known = {key: segment.first_of_each(tensor) for key, tensor in layer.known.items()}
        self._bound = BoundStates(layer.pages, layer.keys, segment, known)
        yield
        self._bound.write_back()
        self._bound = None

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self._current.find(("conv", state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self._current.find(("recurrent", state_idx))

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **_kwargs: object
    ) -> torch.Tensor:
        """Returns the new inputs of the convolution, preceded by the last ones before them."""
        key = "conv", state_idx
        state = self._current.find(key)
        assert state is not None
        with_past = torch.cat((state, conv_states), -1)
        self._current.replace(key, with_past[..., -state.shape[-1] :])
        return with_past

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **_kwargs: object
    ) -> torch.Tensor:
        return self._current.replace(("recurrent", state_idx), recurrent_states)

    @property
    def _current(self) -> BoundStates:
        assert self._bound is not None, "a mixer runs outside of any segment"
        return self._bound

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        """Always true: a sequence that begins has a state of zeros."""
        return True

    def is_recording_past(self, layer_idx: int) -> bool:
        return False
