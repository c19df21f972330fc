"""What a person may write, and what is refused."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import octavo.vllm_plugin
from octavo.errors import InputError
from octavo.recording import RequestRecorder
from octavo.vllm_plugin.config import PluginConfig, find_replica, left_behind

FULL = {
    "spec_name": "OctavoOffloadingSpec",
    "spec_module_path": "octavo.vllm_plugin",
    "memory": "8GiB",
    "disk": "/nvme/octavo",
    "disk_size": "200GiB",
    "policy": "arc",
    "blocks_per_chunk": 4,
    "load_timeout_s": 2,
}


def test_what_vllm_reads_itself_is_left_to_it():
    config = PluginConfig.from_extra_config(FULL)
    assert config.offload.memory_bytes == 8 << 30
    assert config.offload.policy == "arc"
    assert config.offload.load_timeout_s == 2
    assert [spec.config.path for spec in config.offload.tiers] == [Path("/nvme/octavo")]


def test_a_user_without_a_home_has_a_plugin():
    script = "from octavo.vllm_plugin.config import _ExtraConfig; print(_ExtraConfig(memory='1GiB').digests)"
    without_home = {**os.environ, "HOME": "~"}
    ran = subprocess.run([sys.executable, "-c", script], env=without_home, check=True, capture_output=True, text=True)
    assert ran.stdout == "None\n"


def test_tiers_in_general():
    tiers = [
        {"type": "zstd", "tier": {"type": "disk", "path": "/a", "size": "1GiB"}},
        {"type": "disk", "path": "/b", "size": "1GiB"},
    ]
    config = PluginConfig.from_extra_config({"memory": "1GiB", "tiers": tiers})
    assert [spec.name for spec in config.offload.tiers] == ["zstd", "disk"]


@pytest.mark.parametrize("shared", ["s3://bucket/prefix", {"url": "s3://bucket/prefix"}])
def test_a_shared_store_is_the_last_tier_and_one_for_all_replicas(shared):
    config = PluginConfig.from_extra_config(FULL | {"shared": shared}, replica=1)
    assert [spec.asks_ahead for spec in config.offload.tiers] == [False, True]
    assert config.offload.tiers[-1].config.url == "s3://bucket/prefix"


def test_each_of_several_engines_records_for_itself():
    alone = PluginConfig.from_extra_config(FULL | {"record": "/traces/today.jsonl"})
    assert alone.record == Path("/traces/today.jsonl")
    second = PluginConfig.from_extra_config(FULL | {"record": "/traces/today.jsonl"}, replica=1)
    assert second.record == Path("/traces/today-replica-1.jsonl")


@pytest.mark.parametrize("place", ["/", ".", "/dev/null"])
def test_what_is_no_file_is_refused_by_each_of_several_engines(place):
    for replica in (None, 1):
        config = PluginConfig.from_extra_config(FULL | {"record": place}, replica=replica)
        with pytest.raises(InputError, match=f"the recording {place!r} is there already, and is no file: name one"):
            RequestRecorder(config.record, block_tokens=16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memroy": "8GiB"}, r"unknown setting 'memroy'; did you mean 'memory'\? there are: memory, disk, disk_size"),
        ({"canonical_layout": True}, "unknown setting 'canonical_layout'"),
        ({"memory": "lots"}, "^kv_connector_extra_config: memory: 'lots' is not a size"),
        ({"memory": None}, "memory is missing; give a size such as 8GiB"),
        ({"disk_size": None}, "belong together"),
        ({"disk": None}, "belong together"),
        ({"disk_size": -1}, "disk_size: -1 is not a size"),
        ({"keep_media": "yes"}, "keep_media"),
        ({"offload_prompt_only": "no"}, "offload_prompt_only must be true or false, not 'no'"),
        ({"self_describing_kv_events": "false"}, "self_describing_kv_events must be true or false"),
        ({"blocks_per_chunk": 10**9}, "blocks_per_chunk must be a whole number from 1 to 63, not 1000000000"),
        ({"blocks_per_chunk": 2.7}, "blocks_per_chunk must be a whole number from 1 to 63, not 2.7"),
        ({"blocks_per_chunk": True}, "blocks_per_chunk must be a whole number from 1 to 63, not true"),
        ({"block_size": -1}, "block_size must be a whole number of 1 or more, not -1"),
        ({"sync_load_budget_bytes": "64MiB"}, "sync_load_budget_bytes must be a whole number of 0 or more"),
        ({"memory": 1 << 63}, "memory: 9223372036854775808 is too large; it must be below 8 EiB"),
        ({"disk_size": "99999999TiB"}, "disk_size: '99999999TiB' is too large; it must be below 8 EiB"),
        ({"policy": "mru"}, "choose one of: arc, lru, resume_points"),
        ({"tiers": {"type": "disk"}}, "tiers must be a list"),
        ({"shared": 5}, "shared must be a store's url or a mapping, not 5"),
        ({"shared": "ftp://bucket"}, "shared.url must be s3://"),
        ({"shared": {"url": "file:///shared", "edpoint": "x"}}, "did you mean 'endpoint'"),
        ({"tiers": [{"type": "tape"}]}, r"tiers\[1\]: tier 'tape' is not known"),
        ({"tiers": [{"type": "disk", "path": "", "size": "1GiB"}]}, "path: '' is not a path"),
    ],
)
@pytest.mark.parametrize("replica", [None, 1])
def test_mistakes_are_named(change, message, replica):
    values = {key: value for key, value in (FULL | change).items() if value is not None}
    with pytest.raises(InputError, match=message):
        PluginConfig.from_extra_config(values, replica=replica)


def test_each_replica_has_a_folder_of_its_own():
    first, second = (PluginConfig.from_extra_config(FULL, replica=replica) for replica in range(2))
    assert first.offload.tiers[0].config.path == Path("/nvme/octavo/replica-0")
    assert second.offload.tiers[0].config.path == Path("/nvme/octavo/replica-1")


def test_folders_that_engines_in_another_number_have_left_are_found(tmp_path):
    """Nobody reads them any more, and they would take their room for ever."""
    disk = {"type": "disk", "path": str(tmp_path), "size": "1GiB"}
    (folder,) = PluginConfig.from_extra_config({"memory": "1GiB", "tiers": [{"type": "zstd", "tier": disk}]}).folders
    assert (left_behind([folder], None), left_behind([folder], 0)) == ([], [])
    replicas = [folder / f"replica-{number}" for number in range(3)]
    for path in (folder, *replicas):
        path.mkdir(exist_ok=True)
        (path / "lock").touch()
        (path / "segment-000000000001.octavo").touch()
    replicas[2].joinpath("segment-000000000001.octavo").unlink()
    assert left_behind([folder], None) == replicas[:2]
    assert left_behind([folder], 0) == [folder]
    with (replicas[0] / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as an engine that runs does
        assert left_behind([folder], None) == replicas[1:2]


def test_a_folder_that_nobody_may_look_into_ends_no_start():
    """To open its tier fails, and says why; a name this long fails for every user."""
    assert left_behind([Path("/" + "x" * 300)], None) == []


@pytest.mark.parametrize(
    ("engine_id", "index", "num_replicas", "found"),
    [("a1b2", 0, 1, None), ("a1b2_dp0", 0, 1, 0), ("a1b2_dp1", 1, 1, 1), ("a1b2_dp1", 1, 2, 1), ("a1b2", 0, 2, 0)],
)
def test_the_replicas_of_a_dense_model_are_told_by_the_id_of_the_engine(engine_id, index, num_replicas, found):
    assert find_replica(engine_id, index, num_replicas) == found


def test_a_wrong_name_of_the_spec_is_told_the_right_one():
    """vLLM asks the package for the name that a person wrote."""
    with pytest.raises(
        AttributeError, match="no attribute 'OctavoSpec'; it has: OctavoConnector, OctavoOffloadingSpec"
    ):
        octavo.vllm_plugin.OctavoSpec  # noqa: B018
