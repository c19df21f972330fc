"""What the engine plans for the device that it computes on."""

import pytest

from octavo.engine import EngineConfig, load_model, save_tiny_model
from octavo.engine.building import plan_for


@pytest.mark.parametrize(("least", "expected"), [({}, 1), ({"cpu": 1024}, 1024)])
def test_a_device_that_is_slow_to_begin_a_step_computes_no_short_ones(tmp_path, monkeypatch, least, expected):
    """As GPUs are, where states would be kept more often than steps are worth."""
    monkeypatch.setattr("octavo.engine.building._LEAST_STEP_TOKENS", least)
    save_tiny_model("qwen3_next", tmp_path)
    config = EngineConfig(model=tmp_path, device_memory_bytes=64 << 20, max_model_len=4096)
    plan = plan_for(load_model(tmp_path), config)
    assert plan.limits.least_step_tokens == expected
    assert plan.checkpoint_interval_tokens >= expected
