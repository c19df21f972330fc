"""What engines with two ranks store, engines with one rank resume, and the other way round."""

from pathlib import Path

import pytest
import vllm_environment  # noqa: F401 - before vLLM
from plugin_process import make_model, play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NUM_HIT = 512
TWO = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}


@pytest.mark.parametrize(
    ("family", "dtype", "num_alike"), [("gemma3", "float32", 16), ("qwen3_next_for_two", "bfloat16", 1)]
)
def test_one_rank_resumes_what_two_have_stored_and_the_other_way_round(
    family: str, dtype: str, num_alike: int, tmp_path: Path
) -> None:
    """Three processes one after the other over one disk. Two ranks add up in another order than one, so in bfloat16,
    the only type that vLLM's gated delta net takes on a CPU, answers may part after the first tokens."""
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "256MiB", "digests": str(tmp_path)}
    engine = {
        "model": make_model(family, tmp_path / "model"),
        "transfer": transfer_config(memory="48MiB", **disk),
        "dtype": dtype,
    }
    first = play("handed", resumes=[], computes=[1, 2], **engine, **TWO)
    one = play("handed", resumes=[1, 2], computes=[3, 4], **engine)
    two = play("handed", resumes=[3, 4], computes=[], **engine, **TWO)
    assert first["stored"][1] == one["stored"][1] == [0, 0]
    for writer, reader in ((first, one), (one, two)):
        assert reader["found"][1] == [NUM_HIT] * 2
        assert reader["computed"][1] == [0, 0]
        found, computed, stored = (
            [answer[:num_alike] for answer in answers]
            for answers in (reader["found"][0], reader["computed"][0], writer["stored"][0])
        )
        assert found == computed == stored
