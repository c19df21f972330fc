"""Runs scenarios of `plugin_engine` in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from octavo.vllm_plugin.ranks import abandoned

_HERE = Path(__file__).parent


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
    paths = (path, os.environ.get("PYTHONPATH"), str(_HERE.parent / "lib"))
    done = subprocess.run(
        [sys.executable, str(_HERE / "plugin_engine.py"), scenario, json.dumps(arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("KNOWN ")]
    assert found, done.stdout[-2000:] + done.stderr[-8000:]
    return json.loads(found[0].removeprefix("KNOWN "))


def transfer_config(connector: str = "OffloadingConnector", **extra: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "kv_connector": connector,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "OctavoOffloadingSpec",
            "spec_module_path": "octavo.vllm_plugin",
            "loads": "always",  # a test is not to depend on how quick a machine is
            **extra,
        },
    }
    if connector != "OffloadingConnector":
        config |= {"kv_connector_module_path": "octavo.vllm_plugin", "kv_load_failure_policy": "recompute"}
    return config


def leftovers() -> set[str]:
    """What engines that have ended left in shared memory. Other tests may run beside: theirs are alive."""
    return {path.name for path in abandoned(older_than_s=0)}
