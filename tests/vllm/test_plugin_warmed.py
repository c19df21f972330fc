"""`octavo store warm` fills the disk of a vLLM engine: it resumes from there what another one has stored."""

import shutil
from pathlib import Path

import pytest
import vllm_environment  # noqa: F401 - before vLLM
from plugin_process import make_model, play, transfer_config

from octavo.cli import run

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NUM_HIT = 512
SIZE = "64MiB"
PATIENT = dict.fromkeys(("find_seconds", "load_seconds", "store_seconds"), 60)


@pytest.mark.parametrize("family", ["qwen3_next", "llama"])
def test_an_engine_resumes_from_a_disk_that_was_warmed(family: str, tmp_path: Path) -> None:
    """The second engine knows no shared store, and what the first one kept elsewhere is gone."""
    store, disk = tmp_path / "store", tmp_path / "disk"
    model = make_model(family, tmp_path / "model")
    shared = {"url": f"file://{store}"} | PATIENT
    first = play("again", model=model, transfer=transfer_config(memory="16MiB", shared=shared, digests=str(tmp_path)))
    assert first["disk"][1] == [0, 0, 0]
    named = ["--namespace", Path(model).name]
    assert run(["store", "warm", f"file://{store}", "--disk", str(disk), "--size", SIZE, *named]) == 0
    shutil.rmtree(store)
    transfer = transfer_config(memory="16MiB", disk=str(disk), disk_size=SIZE, digests=str(tmp_path))
    second = play("again", model=model, transfer=transfer)
    assert second["disk"] == [first["disk"][0], [NUM_HIT] * 3], second["counters"]
    assert second["counters"]["promoted"] > 0
