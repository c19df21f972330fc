"""`BoundStates`: one layer's states of a segment's sequences while its mixer computes that segment."""

from collections.abc import Mapping, Sequence

import torch

from octavo.engine.cache.layer_pages import StatePages
from octavo.engine.cache.state_step import StateSegment

StateKey = tuple[str, int]
"""The name and index by which a model asks for a tensor of a layer's state."""


class BoundStates:
    """Tensors (sequences, *shape) by key. A mixer may change or replace them.

    A single sequence works on its page; the states of several are gathered, and written back at the end. Only those
    that the mixer asks for: a layer may have another one, with states of its own.
    """

    def __init__(
        self,
        pages: StatePages,
        keys: Sequence[StateKey],
        segment: StateSegment,
        known: Mapping[StateKey, torch.Tensor],
    ) -> None:
        """`known`: what a mixer asks for in the same way, and that needs no page."""
        self._pages = dict(zip(keys, pages.tensors, strict=True))
        self._segment = segment
        self._known = known
        self._states: dict[StateKey, torch.Tensor] = {}

    def find(self, key: StateKey) -> torch.Tensor | None:
        if key in self._pages and key not in self._states:
            self._states[key] = self._read(self._pages[key])
        return self._states.get(key, self._known.get(key))

    def replace(self, key: StateKey, state: torch.Tensor) -> torch.Tensor:
        if key in self._known:
            return state
        if self._segment.in_place_row is None:
            self._states[key] = state
        else:
            self._read(self._pages[key]).copy_(state)
        return state

    def write_back(self) -> None:
        if self._segment.in_place_row is None:
            for key, state in self._states.items():
                tensor = self._pages[key]
                tensor.index_copy_(0, self._segment.write_rows, state.to(tensor.dtype))

    def _read(self, tensor: torch.Tensor) -> torch.Tensor:
        row = self._segment.in_place_row
        return tensor.index_select(0, self._segment.read_rows) if row is None else tensor[row : row + 1]
