"""Tensors over memory that others own: a range of addresses, and the arena as a device sees it."""

import ctypes
import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_log = logging.getLogger(__name__)


def bytes_at(address: int, num_bytes: int, device: torch.device) -> torch.Tensor:
    """These addresses as int8. Not all of them need be there, only those that are used."""
    if device.type == "cpu":
        return torch.frombuffer((ctypes.c_int8 * num_bytes).from_address(address), dtype=torch.int8)
    return torch.as_tensor(_Range(address, num_bytes), device=device)


class _Range:
    """Device memory, or pinned host memory, whose addresses are the same on the device."""

    def __init__(self, address: int, num_bytes: int) -> None:
        data = {"data": (address, False), "shape": (num_bytes,), "typestr": "|i1"}
        self.__cuda_array_interface__ = {"version": 3, **data}


class PinnedSlots:
    """An arena's slots, uint8 `(num_slots, slot_bytes)`, pinned: copies run by themselves, and kernels reach them.

    The memory stays until this is closed or forgotten. If it went while it is pinned, copies of what comes to lie at
    its addresses would go to where it was.
    """

    def __init__(self, slots: npt.NDArray[np.uint8], device: torch.device) -> None:
        self.num_slots, self.slot_bytes = slots.shape
        self.address = slots.ctypes.data
        self._unpin: Callable[[], object] | None = None
        self.on_device: torch.Tensor | None = None
        """All bytes, or None if they cannot be pinned."""
        if device.type == "cuda":
            if not _register(slots, device):
                return
            unpin = weakref.finalize(self, _unregister, slots, device)
            unpin.atexit = False  # threads may be copying, and the memory goes with the process
            self._unpin = unpin
        self.on_device = bytes_at(self.address, slots.nbytes, device)

    def close(self) -> None:
        """Nothing may be copying any more."""
        self.on_device = None
        if self._unpin is not None:
            self._unpin()


def _register(slots: npt.NDArray[np.uint8], device: torch.device) -> bool:
    runtime = _runtime()
    with torch.cuda.device(device):
        error = runtime.cudaHostRegister(slots.ctypes.data, slots.nbytes, 0)
        if error == runtime.cudaError.success:
            return True
        _log.warning(
            "%d bytes of memory cannot be pinned for the GPU (%s): transfers take several times as long",
            slots.nbytes,
            runtime.cudaGetErrorString(error),
        )
        with suppress(RuntimeError):  # the error is still noted, and would be taken for that of what comes next
            torch.zeros(1, device=device)
    return False


def _unregister(slots: npt.NDArray[np.uint8], device: torch.device) -> None:
    with suppress(RuntimeError), torch.cuda.device(device):  # the device may be lost
        _runtime().cudaHostUnregister(slots.ctypes.data)


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
