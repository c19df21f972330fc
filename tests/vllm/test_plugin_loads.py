"""What the plug-in loads is what vLLM's own prefix hits have: from memory, from disk, and in the next process."""

from pathlib import Path
from typing import Any

import pytest
from plugin_process import make_model, play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

MEMORY = {"llama": "3MiB", "gemma3": "2MiB", "gpt_oss": "2.5MiB", "qwen3_next": "12MiB"}
"""Room for the prompts, and for little more."""
NUM_HIT, NUM_HIT_OF_TURN = 512, 640


class Served:
    """A model that an engine has served, and what it said."""

    def __init__(self, family: str, folder: Path) -> None:
        self.model = make_model(family, folder / "model")
        self.transfer = transfer_config(
            memory=MEMORY[family], disk=str(folder / "disk"), disk_size="256MiB", digests=str(folder)
        )
        self.seen = play("loads", model=self.model, transfer=self.transfer)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served("llama", tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("family", MEMORY)
def test_loads_are_what_vllm_has(family: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    served = request.getfixturevalue("llama") if family == "llama" else Served(family, tmp_path)
    seen = served.seen
    answers, cached = seen["local"]
    assert seen["first_cached"] == [0] * len(answers)
    assert cached == [NUM_HIT] * len(answers)
    assert seen["memory"] == seen["local"]
    assert seen["turn_memory"] == seen["turn_local"]
    assert seen["turn_memory"][1] == [NUM_HIT_OF_TURN] * len(answers)
    assert seen["promoted"] > 0
    assert seen["disk"] == seen["local"]
    assert_zeros_are_wrong(seen)

    again = play("again", model=served.model, transfer=served.transfer)
    assert again["prompts"] == seen["prompts"]
    assert again["disk"] == seen["local"]
    assert again["counters"]["promoted"] >= again["counters"]["loaded"] > 0


def test_two_ranks_share_what_they_store_and_nothing_else(llama: Served) -> None:
    ranks = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    seen = play("ranks", model=llama.model, transfer=llama.transfer, **ranks)
    assert seen["prompts"] == llama.seen["prompts"]
    assert seen["first_cached"] == [0] * len(seen["prompts"])  # what one rank left on disk is nothing to two
    assert seen["local"][1] == [NUM_HIT] * len(seen["prompts"])
    assert seen["memory"] == seen["disk"] == seen["local"]
    assert seen["promoted"] > 0
    assert_zeros_are_wrong(seen)


def assert_zeros_are_wrong(seen: dict[str, Any]) -> None:
    """The check has teeth: what is loaded decides every answer."""
    zeros, cached = seen["zeros"]
    answers, cached_by_vllm = seen["local"]
    assert cached == cached_by_vllm
    assert all(zero != right for zero, right in zip(zeros, answers, strict=True))
