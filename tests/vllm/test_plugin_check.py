"""`octavo vllm-check` with the real vLLM: as a person runs it, and in processes that have imported vLLM already."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

import pytest
import vllm_environment  # noqa: F401 - for the engines
from forked import call
from plugin_process import leftovers, make_model

from octavo.cli import run

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
    code, errors = call(_check, arguments(tmp_path, VLLM_ARGS | {"load_format": "dummy"}))
    assert code == 1, errors
    assert "Octavo disk: nothing was read from there, so nothing is proven: the weights are random" in errors


def test_a_model_is_checked_from_memory_and_from_disk(tmp_path: Path) -> None:
    before = leftovers()
    octavo = str(Path(sys.executable).with_name("octavo"))
    ran = subprocess.run([octavo, *arguments(tmp_path, VLLM_ARGS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in ("Octavo memory", "Octavo disk"):
        assert re.search(rf"{name} +9\d% +1,024 tokens +640 KiB +\S+ ms +the same", ran.stdout), ran.stdout
    assert "Traceback" not in ran.stderr
    assert leftovers() <= before


def arguments(tmp_path: Path, vllm_args: dict[str, Any]) -> list[str]:
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
    return ["vllm-check", make_model("gpt_oss", tmp_path / "model"), *words]


def _check(words: list[str]) -> tuple[int, str]:
    """The command, whose engines fork from this process."""
    engines = mock.patch("octavo.cli.commands.vllm_check.run.run_in_group", _fork_engine)
    with engines, redirect_stderr(io.StringIO()) as errors:
        code = run(words)
    return code, errors.getvalue()


def _fork_engine(command: list[str]) -> tuple[str, str]:
    """What `python -m MODULE ARGUMENTS` says."""
    module, words = command[-2:]
    with TemporaryFile("w+") as said:
        engine = os.fork()
        if not engine:
            try:
                sys.stdout = sys.stderr = said
                sys.argv[1:] = [words]
                runpy.run_module(module, run_name="__main__")
            except Exception:  # noqa: BLE001 - what it says is all that is known of it
                traceback.print_exc()
            finally:
                said.flush()
                os._exit(0)
        os.waitpid(engine, 0)
        said.seek(0)
        return said.read(), ""
