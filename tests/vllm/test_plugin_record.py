"""The key `record`: what vLLM served is a trace that `octavo simulate` replays, and it has no text."""

import json
from pathlib import Path

import pytest
import vllm_environment  # noqa: F401 - before vLLM
from plugin_process import make_model, play, transfer_config

from octavo.cli import run

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

KEYS = {"arrival_s", "prompt_tokens", "output_tokens", "blocks", "resumed"}


@pytest.mark.every_vllm
def test_a_recording_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    model = make_model("gemma3", tmp_path / "model")
    seen = play("recorded", model=model, transfer=transfer_config(memory="16MiB", record=str(path)))
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header == {"octavo_recording": 1, "block_tokens": 128}
    assert all(set(line) == KEYS for line in lines)
    num_recorded = len(lines)
    lines = [line for line in lines if line["prompt_tokens"] >= 500]  # a short one makes the device forget
    answers = [*seen["local"][0], *seen["local"][0], *seen["memory"][0], *seen["turn"][0]]
    assert [line["output_tokens"] for line in lines] == [len(answer) for answer in answers]
    assert {line["prompt_tokens"] for line in lines[:-1]} == {len(prompt) for prompt in seen["prompts"]}
    assert all(len(line["blocks"]) == (line["prompt_tokens"] + line["output_tokens"] - 1) // 128 for line in lines)
    assert lines[0]["blocks"] == lines[3]["blocks"] == lines[6]["blocks"]
    assert lines[0]["blocks"][:4] == lines[-1]["blocks"][:4]
    count = len(seen["prompts"])
    assert [line["resumed"] for line in lines[:count]] == [{}] * count
    assert [line["resumed"] for line in lines[count:-1]] == [{"device": 512}] * count + [{"memory": 512}] * count
    assert sum(lines[-1]["resumed"].values()) == seen["turn"][1][0]

    capsys.readouterr()
    assert run(["simulate", str(path), "--model", model, "--device", "64MiB", "--memory", "64MiB", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["num_requests"] == num_recorded
    assert sum(result["resumed_tokens"].values()) >= 2 * count * 512


def test_what_is_there_and_no_file_is_refused(tmp_path: Path) -> None:
    transfer = transfer_config(memory="16MiB", record=str(tmp_path))
    (said,) = play("refused", model=make_model("llama", tmp_path / "model"), transfers=[transfer])["said"]
    assert "is there already, and is no file" in said
