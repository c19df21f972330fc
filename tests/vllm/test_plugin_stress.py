"""Many requests with shared beginnings on a pool that is too small: answers as without the plug-in, whatever fails."""

from pathlib import Path

import pytest
from plugin_process import leftovers, make_model, play, transfer_config

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


@pytest.mark.every_vllm
def test_answers_stay_the_same(tmp_path: Path) -> None:
    model = make_model("gemma3", tmp_path / "model")
    common = {"memory": "3MiB", "disk_size": "256MiB", "digests": str(tmp_path)}
    before = leftovers()
    right = play("stress", model=model, transfer=None)
    quiet = play("stress", model=model, transfer=transfer_config(disk=str(tmp_path / "disk"), **common))
    assert quiet["answers"] == right["answers"]
    assert quiet["loaded_tokens"] > 5_000
    assert quiet["preemptions"] > 0
    assert quiet["counters"]["promoted"] > 0
    assert quiet["counters"]["evicted"] > 0
    assert quiet["leaks"] == {}

    transfer = transfer_config(
        "OctavoConnector", disk=str(tmp_path / "faulty"), policy="arc", load_timeout_s=0.5, **common
    )
    faulty = play("stress", model=model, transfer=transfer, faults=True)
    assert faulty["answers"] == right["answers"]
    assert faulty["loaded_tokens"] > 0
    assert faulty["disk_faults"] > 0
    assert faulty["counters"]["load_failed"] > 0
    assert faulty["counters"]["store_failed"] > 0
    assert faulty["counters"]["promotion_failed"] > 0
    assert faulty["counters"]["promoted"] > 0
    assert faulty["leaks"] == {}
    assert leftovers() <= before


def test_failed_loads_hold_nobody_up(tmp_path: Path) -> None:
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "256MiB", "digests": str(tmp_path)}
    transfer = transfer_config("OctavoConnector", memory="16MiB", **disk)
    seen = play("failed_loads", model=make_model("gemma3", tmp_path / "model"), transfer=transfer)
    assert seen["answers"] == seen["right"]
    assert seen["counters"]["load_failed"] == 3


def test_who_is_preempted_by_a_reset_may_load(tmp_path: Path) -> None:
    model = make_model("gemma3", tmp_path / "model")
    seen = play("reset_under_way", model=model, transfer=transfer_config(memory="16MiB"))
    assert seen["answer"] == seen["right"]
    assert seen["loaded"] > 0


@pytest.mark.every_vllm
def test_who_begins_after_a_reset_is_stored(tmp_path: Path) -> None:
    """Requests that wait when all caches are reset, as while weights are changed, and one that is preempted by it."""
    model = make_model("gemma3", tmp_path / "model")
    seen = play("queued_at_reset", model=model, transfer=transfer_config(memory="16MiB"))
    assert seen["found"] == [seen["right"], [512] * 3]


def test_loads_ahead_leave_room_for_the_oldest(tmp_path: Path) -> None:
    model = make_model("gemma3", tmp_path / "model")
    seen = play("loads_ahead", model=model, transfer=transfer_config(memory="16MiB"))
    assert [cached for _, cached in seen["found"]] == [1024] * 4


@pytest.mark.parametrize(
    ("connector", "fails", "num_blocks"), [("OctavoConnector", 0.2, 52), ("OffloadingConnector", 0.0, 49)]
)
def test_however_late_loads_end_every_request_is_served(
    tmp_path: Path, connector: str, fails: float, num_blocks: int
) -> None:
    device = {"num_gpu_blocks_override": num_blocks, "max_num_batched_tokens": 384}
    seen = play(
        "late_loads",
        model=make_model("gemma3", tmp_path / "model"),
        transfer=transfer_config(connector, memory="64MiB"),
        fails=fails,
        rounds=30,
        **device,
    )
    assert seen["unserved"] == []
    assert seen["loads"] > 200
    assert bool(seen["failed"]) == bool(fails)


def test_chunks_of_several_blocks(tmp_path: Path) -> None:
    """Windows pass the first blocks of chunks before these are stored."""
    model = make_model("gemma3", tmp_path / "model")
    options = {"model": model, "num_requests": 60, "block_size": 32, "num_gpu_blocks_override": 220}
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "256MiB", "digests": str(tmp_path)}
    right = play("stress", transfer=None, **options)
    transfer = transfer_config(memory="3MiB", blocks_per_chunk=3, loads="measured", **disk)
    chunked = play("stress", transfer=transfer, **options)
    assert chunked["answers"] == right["answers"]
    assert chunked["loaded_tokens"] > 0
    assert chunked["leaks"] == {}
