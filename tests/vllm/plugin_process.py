"""Runs scenarios of `plugin_engine` in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from octavo.vllm_plugin.ranks import abandoned

_HERE = Path(__file__).parent
_KNOWN = "KNOWN "
_PATIENT = {"loads": "always", "load_timeout_s": 60, "store_timeout_s": 60}
"""A test is not to depend on how quick a machine is."""


def make_model(family: str, folder: Path, seed: int = 0) -> str:
    return _make(f"make_model({family!r}, Path({str(folder)!r}), {seed})", folder)


def make_image_model(folder: Path) -> str:
    return _make(f"make_image_model(Path({str(folder)!r}))", folder)


def make_adapter(folder: Path, seed: int) -> str:
    return _make(f"make_adapter(Path({str(folder)!r}), {seed})", folder)


def _make(call: str, folder: Path) -> str:
    script = f"from pathlib import Path; import vllm_models; vllm_models.{call}"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=_HERE, capture_output=True)
    return str(folder)


def play(scenario: str, *, path: str = "", **arguments: Any) -> dict[str, Any]:
    """What the scenario reports. `path` goes before PYTHONPATH."""
    done = subprocess.run(
        _command(scenario, arguments), env=_environ(path), capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if line.startswith(_KNOWN)]
    assert found, done.stdout[-2000:] + done.stderr[-8000:]
    return json.loads(found[0].removeprefix(_KNOWN))


class AskedEngine:
    """An engine in a process that lives beside others until it is left: the scenario `asked`."""

    def __init__(self, **arguments: Any) -> None:
        self._process = subprocess.Popen(
            _command("asked", arguments), env=_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, *seeds: int) -> None:
        assert self._process.stdin is not None
        print(json.dumps(seeds), file=self._process.stdin, flush=True)

    def hear(self) -> dict[str, Any]:
        """What came of the oldest question that was not heard of yet."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_KNOWN):
                return json.loads(line.removeprefix(_KNOWN))
        pytest.fail(f"the engine ended with {self._process.wait()}: its log is above")


def _command(scenario: str, arguments: dict[str, Any]) -> list[str]:
    return [sys.executable, str(_HERE / "plugin_engine.py"), scenario, json.dumps(arguments)]


def _environ(path: str = "") -> dict[str, str]:
    paths = (path, os.environ.get("PYTHONPATH"), str(_HERE.parent / "lib"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def transfer_config(connector: str = "OffloadingConnector", **extra: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "kv_connector": connector,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "OctavoOffloadingSpec",
            "spec_module_path": "octavo.vllm_plugin",
            **_PATIENT,
            **extra,
        },
    }
    if connector != "OffloadingConnector":
        config |= {"kv_connector_module_path": "octavo.vllm_plugin", "kv_load_failure_policy": "recompute"}
    return config


def leftovers() -> set[str]:
    """What engines that have ended left in shared memory. Other tests may run beside: theirs are alive."""
    return {path.name for path in abandoned(older_than_s=0)}
