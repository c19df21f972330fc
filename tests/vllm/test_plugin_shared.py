"""A store that several vLLM engines share: what one has computed, the others resume, each by its role."""

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import vllm_environment  # noqa: F401 - before vLLM
from plugin_process import asked_engine, make_model, play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NUM_HIT = 512
PATIENT = dict.fromkeys(("find_seconds", "load_seconds", "store_seconds"), 60)


def test_engines_resume_what_others_have_computed(tmp_path: Path) -> None:
    """One after the other over an empty store: a producer, an engine that does both, and a consumer."""
    shared = {"url": f"file://{tmp_path}/store"} | PATIENT
    transfer = transfer_config(memory="16MiB", shared=shared, digests=str(tmp_path))
    seen = play("shared", model=make_model("qwen3_next", tmp_path / "model"), transfer=transfer)
    local, cached = seen["local"]
    first, others = local[:-1], local[-1:]

    producer = seen["kv_producer"]
    assert producer["first"] == [first, [0] * len(first)]
    assert producer["has_stored"]

    both = seen["kv_both"]
    assert both["first"] == [first, cached[:-1]]
    assert both["others"] == [others, [0]]
    assert both["has_stored"]
    assert both["loaded"] > 0

    consumer = seen["kv_consumer"]
    assert consumer["first"] == [first, cached[:-1]]
    assert consumer["others"] == [others, cached[-1:]]
    assert consumer["own"][1] == [0]
    assert not consumer["has_stored"]
    assert consumer["stored"] == 0
    assert consumer["loaded"] > 0
    assert all(cached)


def test_another_process_resumes_over_s3(server: str, tmp_path: Path) -> None:
    resume_in_another_process({"url": f"s3://octavo/{tmp_path.name}", "endpoint": server}, tmp_path)


def test_another_process_resumes_over_redis(redis: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("redis")
    resume_in_another_process({"url": redis["TCP_URL"]}, tmp_path)


def resume_in_another_process(shared: dict[str, Any], folder: Path) -> None:
    transfer = transfer_config(memory="16MiB", shared=shared | PATIENT, digests=str(folder))
    model = make_model("qwen3_next", folder / "model")
    first, second = (play("again", model=model, transfer=transfer) for _ in range(2))
    assert (first["disk"][1], first["counters"]["loaded"]) == ([0, 0, 0], 0)
    assert first["counters"]["stored"] > 0
    assert second["disk"][0] == first["disk"][0]
    assert all(second["disk"][1]), second["counters"]
    assert second["counters"]["loaded"] > 0


def test_engines_side_by_side_over_a_folder(tmp_path: Path) -> None:
    compare_side_by_side({"url": f"file://{tmp_path}/store"}, tmp_path)


def test_engines_side_by_side_over_s3(server: str, tmp_path: Path) -> None:
    compare_side_by_side({"url": f"s3://octavo/{tmp_path.name}", "endpoint": server}, tmp_path)


def test_engines_side_by_side_over_redis(redis: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("redis")
    compare_side_by_side({"url": redis["TCP_URL"]}, tmp_path)


def compare_side_by_side(shared: dict[str, Any], folder: Path) -> None:
    """Two engines at once. Each computes a prompt of its own and one that both have, then resumes the other's; the
    first one ends, and its successor resumes what both have computed while the second one computes more."""
    engine = {
        "transfer": transfer_config(memory="16MiB", shared=shared | PATIENT, digests=str(folder)),
        "model": make_model("qwen3_next", folder / "model"),
    }
    with asked_engine(**engine) as second:
        with asked_engine(**engine) as first:
            own, others = ask_both(first, [1, 3], second, [2, 3])
            assert own["answers"][1] == others["answers"][1]
            assert own["cached"][0] == others["cached"][0] == 0
            computed = [own["answers"][0], others["answers"][0], own["answers"][1]]
            from_second, from_first = ask_both(first, [2], second, [1])
            for found, answer in ((from_second, computed[1]), (from_first, computed[0])):
                assert found["answers"] == [answer]
                assert found["cached"] == [NUM_HIT]
                assert found["loaded"] > 0
        with asked_engine(**engine) as successor:
            resumed, more = ask_both(successor, [1, 2, 3], second, [4])
            assert resumed["answers"] == computed
            assert resumed["cached"] == [NUM_HIT] * 3
            assert more["cached"] == [0]
            assert answer_of(successor, 4) == (more["answers"], [NUM_HIT])


def ask_both(
    one: Connection, its_seeds: list[int], other: Connection, other_seeds: list[int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    one.send(its_seeds)
    other.send(other_seeds)
    return one.recv(), other.recv()


def answer_of(engine: Connection, seed: int) -> tuple[list[list[int]], list[int]]:
    engine.send([seed])
    heard = engine.recv()
    return heard["answers"], heard["cached"]
