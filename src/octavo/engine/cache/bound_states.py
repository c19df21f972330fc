"""`BoundStates`: one layer's states of a segment's sequences while its mixer computes that segment."""

from collections.abc import Sequence

import torch

from octavo.engine.cache.layer_pages import StatePages
from octavo.engine.cache.state_step import StateSegment

StateKey = tuple[str, int]
"""The name and index by which a model asks for a tensor of a layer's state."""


class BoundStates:
    """Tensors (sequences, *shape) by key. A mixer may change or replace them.

    A single sequence works on its page; the states of several are gathered, and written back at the end.
    """

    def __init__(self, pages: StatePages, keys: Sequence[StateKey], segment: StateSegment) -> None:
        self._pages = dict(zip(keys, pages.tensors, strict=True))
        self._segment = segment
        row = segment.in_place_row
        self._states = {
            key: tensor.index_select(0, segment.read_rows) if row is None else tensor[row : row + 1]
            for key, tensor in self._pages.items()
        }

    def find(self, key: StateKey) -> torch.Tensor | None:
        return self._states.get(key)

    def replace(self, key: StateKey, state: torch.Tensor) -> torch.Tensor:
        if self._segment.in_place_row is None:
            self._states[key] = state
        else:
            self._states[key].copy_(state)
        return state

    def write_back(self) -> None:
        if self._segment.in_place_row is None:
            for key, tensor in self._pages.items():
                tensor.index_copy_(0, self._segment.write_rows, self._states[key].to(tensor.dtype))
