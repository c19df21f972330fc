"""What a share of the device's memory is a share of."""

import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

from octavo.engine.config import EngineConfig


def test_a_share_or_a_size(tmp_path):
    assert EngineConfig(model=tmp_path, device_memory_bytes="12.5%").pool_bytes(800) == 100
    assert EngineConfig(model=tmp_path, device_memory_bytes=7).pool_bytes(800) == 7
