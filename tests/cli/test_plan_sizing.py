"""`octavo plan` for a GPU, several contexts and a type of state."""

import json
import shutil
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "examples" / "models"


def test_plan_takes_a_gpu_several_contexts_and_a_state_dtype(octavo, tmp_path):
    shutil.copy(MODELS / "qwen3-next-80b.json", tmp_path / "config.json")
    flags = ["--gpu", "h100", "--tp", "4", "--weights", "160GB", "--context", "8k,128k", "--state-dtype", "bfloat16"]
    ran = octavo("plan", tmp_path, *flags, "--json")
    report = json.loads(ran.out)
    assert report["memory_bytes"] == (72 << 30) - 40 * 10**9
    assert report["weight_bytes"] == 160 * 10**9
    assert [row["context"] for row in report["contexts"]] == [8192, 131072]
    assert report["contexts"][1]["tokens"] == report["tokens"]
    float32 = json.loads(octavo("plan", tmp_path, "--tp", "4", "--json").out)
    assert report["groups"][1]["page_size_bytes"] < float32["groups"][1]["page_size_bytes"] * 0.52
    shown = octavo("plan", tmp_path, *flags).out
    assert "By context" in shown
    assert "149 GiB, beside the memory planned here" in shown


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (
            ["--gpu", "h100"],
            "--gpu: neither files nor the config say how large the weights are; say it with --weights 140GiB",
        ),
        (["--gpu", "h100", "--memory", "1GiB"], "give --memory or --gpu"),
        (["--gpu", "zx81", "--weights", "1GiB"], "--gpu: unknown gpu 'zx81'; there are: a10"),
        (["--gpu", "h900"], "--gpu: unknown gpu 'h900'; did you mean"),
        (["--gpu", "h900", "--memory", "1GiB"], "give --memory or --gpu, one of the two"),
        (["--gpu", "l4", "--weights", "1TiB"], "1 TiB of weights per rank do not fit 21.6 GiB"),
        (["--weights", "much"], "--weights: 'much' is not a size"),
        (["--context", "8k,,9k"], "--context: '' is not a number of tokens"),
        (["--state-dtype", "int2"], "state_dtype: 'int2' is none of float32, float16, bfloat16"),
    ],
)
def test_what_cannot_be_planned_is_one_line(octavo, flags, complaint):
    ran = octavo("plan", MODELS / "qwen3-next-80b.json", *flags)
    assert ran.code == 2
    assert complaint in ran.err
    assert ran.err.count("\n") == 1
