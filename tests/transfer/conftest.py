"""Tensors that name no device lie on the one that `OCTAVO_TEST_DEVICE` names; scripts/gpu_check.sh sets it."""

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _default_device() -> Iterator[None]:
    device = os.environ.get("OCTAVO_TEST_DEVICE")
    torch.set_default_device(device)
    yield
    torch.set_default_device(None)
