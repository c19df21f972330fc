"""DeepSeek V4 in the real vLLM: windows, compressed records, indexers and compressors, in blocks of 4 to 256 tokens."""

from pathlib import Path

import pytest
from deepseek_v4_model import make_deepseek_v4
from plugin_process import play_deepseek_v4 as play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def test_what_is_loaded_answers_as_what_is_computed(tmp_path: Path) -> None:
    model = str(make_deepseek_v4(tmp_path / "model"))
    transfer = transfer_config(
        memory="64MiB", disk=str(tmp_path / "disk"), disk_size="256MiB", digests=str(tmp_path / "digests")
    )
    computed, cached = play("computes", model=model)["computed"]
    assert cached == [0, 0]
    seen = play("loads", model=model, transfer=transfer)
    assert seen["first"] == [computed, [0, 256]]
    assert seen["memory"] == seen["disk"] == [computed, [256, 256]]
    zeros, cached = seen["zeros"]
    assert cached == [256, 256]
    assert all(zero != answer for zero, answer in zip(zeros, computed, strict=True))
    assert play("again", model=model, transfer=transfer)["disk"] == [computed, [256, 256]]
