"""Octavo merely installed: a vLLM that nobody asks for Octavo starts and serves as without it, whatever its version."""

from pathlib import Path

import pytest
from plugin_process import make_model, play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]


def as_version(folder: Path, version: str) -> str:
    """A folder for PYTHONPATH with which vLLM, in all of its processes, takes itself for another version."""
    numbers = tuple(map(int, version.split(".")))
    (folder / "sitecustomize.py").write_text(
        "import sys, types\n"
        "module = types.ModuleType('vllm._version')\n"
        f"module.__version__, module.__version_tuple__ = {version!r}, {numbers!r}\n"
        "sys.modules['vllm._version'] = module\n"
    )
    return str(folder)


@pytest.mark.parametrize("version", ["0.24.0", "9.99.0"])
def test_a_vllm_of_an_unknown_version_serves_without_octavo_and_refuses_it(version: str, tmp_path: Path) -> None:
    model = make_model("llama", tmp_path / "model")
    unknown = as_version(tmp_path, version)
    assert play("plain", path=unknown, model=model) == {"version": version, "cached": [0, 512]}
    transfers = [transfer_config(memory="8MiB")]
    seen = play("refused", path=unknown, model=model, transfers=transfers)
    assert f"{version} is installed" in seen["said"][0]
