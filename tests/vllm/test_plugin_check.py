"""`octavo vllm-check` as a person runs it, with the real vLLM."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vllm_environment  # noqa: F401 - for the engines
from plugin_process import leftovers, make_model

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

VLLM_ARGS = {
    "enforce_eager": True,
    "dtype": "bfloat16",
    "max_model_len": 1024,
    "kv_cache_memory_bytes": 64 << 20,
    "skip_tokenizer_init": True,  # a person may say it
}


def test_a_disk_that_keeps_nothing_is_told(tmp_path: Path) -> None:
    """The second prompt has its beginning from the memory of the same process."""
    ran = check(tmp_path, VLLM_ARGS | {"load_format": "dummy"})
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "Octavo disk: nothing was read from there, so nothing is proven: the weights are random" in ran.stderr


def test_a_model_is_checked_from_memory_and_from_disk(tmp_path: Path) -> None:
    before = leftovers()
    ran = check(tmp_path, VLLM_ARGS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in ("Octavo memory", "Octavo disk"):
        assert re.search(rf"{name} +9\d% +1,024 tokens +640 KiB +\S+ ms +the same", ran.stdout), ran.stdout
    assert "Traceback" not in ran.stderr
    assert leftovers() <= before


def check(tmp_path: Path, vllm_args: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    octavo = [str(Path(sys.executable).with_name("octavo")), "vllm-check", make_model("gpt_oss", tmp_path / "model")]
    options = {
        "--memory": "8MiB",
        "--disk": str(tmp_path / "disk"),
        "--disk-size": "64MiB",
        "--prompts": "2",
        "--shared-tokens": "520",
        "--output-tokens": "8",
        "--vllm-args": json.dumps(vllm_args),
    }
    words = [word for option in options.items() for word in option]
    return subprocess.run([*octavo, *words], capture_output=True, text=True, check=False)
