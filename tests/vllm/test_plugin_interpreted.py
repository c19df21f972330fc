"""What the plug-in loads is what was computed, for models whose kernels are Triton's: DeepSeek V4, and Mamba."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepseek_v4_model import make_deepseek_v4
from plugin_process import interpreted_engines, make_model, transfer_config

pytest.importorskip("triton", reason="needs Triton, which is a package on x86_64")
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

TRANSFER = transfer_config(memory="64MiB")

Play = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with interpreted_engines() as play:
        yield play


def test_deepseek_v4(play: Play, tmp_path: Path) -> None:
    """Windows, compressed records, indexers and compressors, in blocks of 4 to 256 tokens. vLLM has no prefix cache of
    its own for it on most CPUs, so the second prompt is the first that resumes."""
    model, lengths = str(make_deepseek_v4(tmp_path / "model")), [280, 286]
    computed, cached = play("computes", model=model, lengths=lengths)["computed"]
    assert cached == [0, 0]
    seen = play("loads", model=model, transfer=TRANSFER, lengths=lengths)
    assert seen["first"] == [computed, [0, 256]]
    assert seen["memory"] == [computed, [256, 256]]
    assert_wrong(seen["zeros"], computed)


@pytest.mark.parametrize("family", ["falcon_h1", "granite4", "jamba"])
def test_mamba_beside_attention(play: Play, family: str, tmp_path: Path) -> None:
    """In one layer, and in layers of their own."""
    model = make_model(family, tmp_path / "model")
    seen = play("loads", model=model, transfer=TRANSFER, lengths=[300])
    computed, cached = seen["first"]
    assert cached == [0]
    assert seen["memory"] == [computed, [256]]
    assert_wrong(seen["zeros"], computed)


def test_drafts_of_a_second_model(play: Play, tmp_path: Path) -> None:
    """The model drafts for itself, so every draft is right as long as the draft model's caches are: its windows and its
    full attention come back as well."""
    model = make_model("gpt_oss", tmp_path / "model")
    drafts = {"method": "draft_model", "model": model, "num_speculative_tokens": 3}
    options = {"dtype": "float32", "speculative_config": drafts}
    seen = play("loads", model=model, transfer=TRANSFER, lengths=[300], **options)
    computed, cached = seen["first"]
    assert cached == [0]
    assert seen["memory"] == [computed, [256]]
    num_drafted, num_right = seen["drafted"]
    assert num_drafted == num_right > 0
    assert_wrong(seen["zeros"], computed)


def assert_wrong(zeros: tuple[list[list[int]], list[int]], computed: list[list[int]]) -> None:
    """So the right answers came from the bytes that were loaded."""
    answers, cached = zeros
    assert cached == [256] * len(answers)
    assert all(answer != right for answer, right in zip(answers, computed, strict=True))
