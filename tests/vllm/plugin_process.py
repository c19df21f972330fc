"""Runs scenarios of `plugin_engine` in processes of their own."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from forked import call, forked

from octavo.vllm_plugin.ranks import abandoned

_HERE = Path(__file__).parent
_KNOWN = "KNOWN "
_CLOCKS_DIFFER_S = 0.1
"""An engine that begins sooner after its model was written cannot know which files it has, and keeps nothing below
memory."""
_PATIENT = {"loads": "always", "load_timeout_s": 60, "store_timeout_s": 60}
"""A test is not to depend on how quick a machine is."""


def make_model(family: str, folder: Path, seed: int = 0) -> str:
    return call(_make, "make_model", family, folder, seed)


def add_format(model: str, other: str) -> str:
    return call(_make, "add_format", Path(model), Path(other))


def make_image_model(folder: Path) -> str:
    return call(_make, "make_image_model", folder)


def make_adapter(folder: Path, seed: int) -> str:
    return call(_make, "make_adapter", folder, seed)


def _make(function: str, *arguments: Any) -> str:
    import vllm_models

    folder = str(getattr(vllm_models, function)(*arguments))
    time.sleep(_CLOCKS_DIFFER_S)
    return folder


def play(scenario: str, **arguments: Any) -> dict[str, Any]:
    """What the scenario reports."""
    return call(_play, scenario, arguments)


def _play(scenario: str, arguments: dict[str, Any]) -> dict[str, Any]:
    import plugin_engine

    return json.loads(json.dumps(plugin_engine.SCENARIOS[scenario](**arguments)))


def play_with(path: str, **scenarios: dict[str, Any]) -> list[dict[str, Any]]:
    """What scenarios report one after the other in a new interpreter in which `path` goes before PYTHONPATH; each is
    given with its arguments."""
    done = subprocess.run(
        [sys.executable, str(_HERE / "plugin_engine.py"), json.dumps(scenarios)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((path, os.environ["PYTHONPATH"]))},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith(_KNOWN)]
    assert len(found) == len(scenarios), done.stdout[-2000:] + done.stderr[-8000:]
    return [json.loads(line.removeprefix(_KNOWN)) for line in found]


@contextmanager
def interpreted_engines() -> Iterator[Callable[..., dict[str, Any]]]:
    """Plays scenarios of `interpreted_engine`, where vLLM finds another Triton."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve_interpreted, args=(there,))
    process.start()
    there.close()

    def play(scenario: str, **arguments: Any) -> dict[str, Any]:
        here.send((scenario, arguments))
        report = here.recv()
        assert report is not None, "the scenario failed: its output is above"
        return json.loads(json.dumps(report))

    yield play
    here.close()
    process.join()


def _serve_interpreted(connection: Connection) -> None:
    from interpreted_engine import serve_scenarios

    serve_scenarios(connection)


def asked_engine(**arguments: Any) -> AbstractContextManager[Connection]:
    """An engine in a process that lives beside others: takes lists of seeds of prompts, and says what came of each."""
    return forked(_serve_asked, **arguments)


def _serve_asked(connection: Connection, **arguments: Any) -> None:
    import plugin_engine

    plugin_engine.serve_asked(connection, **arguments)


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


def among_others(transfer: dict[str, Any], *others: dict[str, Any], is_last: bool = False) -> dict[str, Any]:
    """The same connector as a part of vLLM's `MultiConnector`, whose own role is to store and load."""
    parts = {name: value for name, value in transfer.items() if name != "kv_load_failure_policy"}
    policy = {"kv_load_failure_policy": "recompute"} if parts != transfer else {}
    extra = {"connectors": [*others, parts] if is_last else [parts, *others]}
    return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra, **policy}


def other_offloading() -> dict[str, Any]:
    """vLLM's connector with a spec that keeps nothing."""
    spec = {"spec_name": "OtherOffloadingSpec", "spec_module_path": "other_offloading"}
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": spec}


def leftovers() -> set[str]:
    """What engines that have ended left in shared memory. Other tests may run beside: theirs are alive."""
    return {path.name for path in abandoned(older_than_s=0)}
