"""What a share of the device's memory is a share of."""

import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

import torch

from octavo.engine.config import EngineConfig
from octavo.engine.free_memory import free_bytes_of

CPU = torch.device("cpu")


def test_a_container_may_have_less_than_its_machine(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 99 kB\nMemAvailable:    64 kB\n")
    assert free_bytes_of(CPU, meminfo=meminfo, cgroup=tmp_path) == 64 << 10
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert free_bytes_of(CPU, meminfo=meminfo, cgroup=tmp_path) == 64 << 10
    (tmp_path / "memory.max").write_text("1100\n")
    assert free_bytes_of(CPU, meminfo=meminfo, cgroup=tmp_path) == 1000


def test_this_machine_has_some():
    assert free_bytes_of(CPU) > 1 << 20


def test_a_share_or_a_size(tmp_path):
    assert EngineConfig(model=tmp_path, device_memory_bytes="12.5%").pool_bytes(800) == 100
    assert EngineConfig(model=tmp_path, device_memory_bytes=7).pool_bytes(800) == 7
