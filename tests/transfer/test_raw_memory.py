"""Pinning, with a runtime that notes what it is asked for."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from octavo.transfer.raw_memory import PinnedSlots

DEVICE = torch.device("cuda:1")


class Runtime:
    """Of CUDA, with no device."""

    cudaError = SimpleNamespace(success=0)  # noqa: N815 - CUDA's name

    def __init__(self) -> None:
        self.current: torch.device | None = None
        self.calls: list[tuple[str, int, torch.device | None]] = []

    def cudaHostRegister(self, address, num_bytes, flags):  # noqa: N802
        self.calls.append(("register", address, self.current))
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        self.calls.append(("unregister", address, self.current))
        return 0


@pytest.fixture
def runtime(monkeypatch) -> Runtime:
    runtime = Runtime()

    class Current:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            runtime.current = self.device

        def __exit__(self, *_):
            runtime.current = None

    monkeypatch.setattr("torch.cuda.cudart", lambda: runtime)
    monkeypatch.setattr("torch.cuda.device", Current)
    monkeypatch.setattr("octavo.transfer.raw_memory.bytes_at", lambda *_: torch.empty(0))
    return runtime


def test_memory_is_pinned_and_freed_on_the_device_that_copies_it(runtime):
    """On another one, to free it would fail, or take a part of that device's memory."""
    slots = np.zeros((8, 64), np.uint8)
    pinned = PinnedSlots(slots, DEVICE)
    for _ in range(2):
        pinned.close()
    assert runtime.calls == [(what, slots.ctypes.data, DEVICE) for what in ("register", "unregister")]


def test_memory_does_not_go_while_it_is_pinned(runtime):
    """Whoever forgot to close it: what comes to lie there would be copied from where it was."""
    slots = np.zeros((8, 64), np.uint8)
    pinned, memory = PinnedSlots(slots, DEVICE), weakref.ref(slots)
    del slots
    assert memory() is not None
    del pinned
    gc.collect()
    assert [what for what, _, _ in runtime.calls] == ["register", "unregister"]
    assert memory() is None
