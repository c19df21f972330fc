"""Octavo merely installed: a vLLM that nobody asks for Octavo starts and serves as without it, whatever its version."""

import os
from pathlib import Path

import pytest
from forked import call
from plugin_process import make_model, play, play_with, transfer_config

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


@pytest.mark.every_vllm
def test_a_vllm_that_nobody_asks_for_octavo(tmp_path: Path) -> None:
    seen = play("plain", model=make_model("llama", tmp_path / "model"))
    assert seen["cached"] == [0, 512]


def test_a_vllm_that_is_too_old_serves_and_refuses_octavo(tmp_path: Path) -> None:
    model = make_model("llama", tmp_path / "model")
    old = as_version(tmp_path, "0.24.0")
    wrong = {"model": model, "transfers": [transfer_config(memory="8MiB")]}
    seen, refused = play_with(old, plain={"model": model}, refused=wrong)
    assert seen == {"version": "0.24.0", "cached": [0, 512]}
    assert "0.24.0 is installed, which it cannot use (it is too old)" in refused["said"][0]


def test_a_vllm_that_is_newer_serves_with_octavo_and_is_a_namespace_of_its_own(tmp_path: Path) -> None:
    model = make_model("llama", tmp_path / "model")
    transfer = transfer_config(memory="8MiB", disk=str(tmp_path / "disk"), disk_size="64MiB", digests=str(tmp_path))
    version, new = as_version(tmp_path, "9.99.0"), {"models": {"any": (model, {}, "0")}, "transfer": transfer}
    plain, newer = play_with(version, plain={"model": model}, strangers=new)
    assert plain == {"version": "9.99.0", "cached": [0, 512]}
    for engine in (newer, play("strangers", **new)):
        seen = engine["any"]
        assert seen["found"][1] == [0, 0]
        assert seen["memory"] == seen["local"]
        assert seen["memory"][1] == [512, 512]


@pytest.mark.every_vllm
def test_a_class_that_comes_by_its_module_is_known_by_name_too() -> None:
    """`MultiConnector` looks for the name when it logs, also where VLLM_PLUGINS leaves the entry point out."""
    assert call(log_without_plugins) == {"OctavoConnector": {}}


def log_without_plugins() -> dict[str, object]:
    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorLogging
    from vllm.plugins import load_general_plugins

    os.environ["VLLM_PLUGINS"] = "another"
    load_general_plugins()
    part = {"kv_connector": "OctavoConnector", "kv_role": "kv_both", "kv_connector_module_path": "octavo.vllm_plugin"}
    KVConnectorFactory.get_connector_class(KVTransferConfig(**part))
    extra = {"connectors": [part]}
    whole = {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    log = KVConnectorLogging(KVTransferConfig(**whole))
    log.observe({"OctavoConnector": {"types": {}, "data": {}}})
    assert log.transfer_stats_accumulator is not None
    return log.transfer_stats_accumulator.reduce()
