"""`DevicePages`: the pool of one device as bytes, and the views of it that the plan defines."""

from collections.abc import Iterable, Sequence

import torch

from octavo.blocks import Allocation
from octavo.ids import GroupIdx
from octavo.planning import KVCacheConfig


class DevicePages:
    """The pool, one int8 tensor (num_sheets, sheet_bytes), cut as the plan says. Callers get only views of it."""

    def __init__(self, config: KVCacheConfig, device: torch.device) -> None:
        """Raises MemoryError if the device has too little memory."""
        self.config = config
        self.pool = _allocate(config.num_sheets, config.sheet_bytes, device)
        self._classes = [self.pool.view(-1, page_class.page_bytes) for page_class in config.page_classes]
        for page_class, view in zip(config.page_classes, self._classes, strict=True):
            assert view.shape[0] == page_class.num_blocks, "the plan's classes do not cover its own pool"

    def group_view(self, group_idx: GroupIdx) -> torch.Tensor:
        """int8 (num_blocks, page_bytes): row i is block i of the group."""
        page_class = self.config.groups[group_idx].page_class
        assert page_class is not None, f"group {group_idx} keeps nothing"
        return self._classes[page_class]

    def typed_view(self, group_idx: GroupIdx, offset_bytes: int, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """(num_blocks, num_elements) of `dtype`, starting `offset_bytes` into each page of the group."""
        size_bytes = num_elements * dtype.itemsize
        return self.group_view(group_idx)[:, offset_bytes : offset_bytes + size_bytes].view(dtype)

    def execute(self, allocations: Iterable[Allocation]) -> None:
        """Makes the manager's copies: allocation by allocation, of each the moves and then the copies."""
        for allocation in allocations:
            for move in allocation.moves:
                view = self._classes[move.page_class]
                view[move.destination].copy_(view[move.source])
            for copy in allocation.copies:
                view = self.group_view(copy.group_idx)
                view[copy.destination].copy_(view[copy.source])

    def clear(self, group_idx: GroupIdx, rows: Sequence[int]) -> None:
        """Fills these pages with zeros: unused ones hold arbitrary bits, and a NaN survives any mask."""
        view = self.group_view(group_idx)
        for row in rows:
            view[row].zero_()


def _allocate(num_sheets: int, sheet_bytes: int, device: torch.device) -> torch.Tensor:
    try:
        return torch.zeros(num_sheets, sheet_bytes, dtype=torch.int8, device=device)
    except (RuntimeError, TypeError) as error:  # torch's error depends on the device, and on how much memory is missing
        raise MemoryError(str(error).partition("\n")[0]) from error
