"""A store that several vLLM engines share: what one has computed, the others resume, each by its role."""

from pathlib import Path

import pytest
import vllm_environment  # noqa: F401 - before vLLM
from plugin_process import make_model, play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]


def test_engines_resume_what_others_have_computed(tmp_path: Path) -> None:
    """One after the other over an empty store: a producer, an engine that does both, and a consumer."""
    transfer = transfer_config(memory="16MiB", shared=f"file://{tmp_path}/store", digests=str(tmp_path))
    seen = play("shared", model=make_model("qwen3_next", tmp_path / "model"), transfer=transfer)
    local, cached = seen["local"]
    first, others = local[:-1], local[-1:]

    producer = seen["kv_producer"]
    assert producer["first"] == [first, [0] * len(first)]
    assert producer["has_stored"]

    both = seen["kv_both"]
    assert both["first"] == [first, cached[:-1]]
    assert both["others"] == [others, [0]]
    assert both["has_stored"]
    assert both["loaded"] > 0

    consumer = seen["kv_consumer"]
    assert consumer["first"] == [first, cached[:-1]]
    assert consumer["others"] == [others, cached[-1:]]
    assert consumer["own"][1] == [0]
    assert not consumer["has_stored"]
    assert consumer["stored"] == 0
    assert consumer["loaded"] > 0
    assert all(cached)
