"""What the distribution offers to others is there, and harms nobody who does not ask for it."""

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OFFERED = [
    EntryPoint(name, value, group)
    for group, entries in {"console_scripts": PROJECT["scripts"], **PROJECT["entry-points"]}.items()
    for name, value in entries.items()
]

VLLM_CALLS = """
import logging, sys, types
sys.modules.update(dict.fromkeys({missing!r}))  # None: it cannot be imported
{fake}
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
from octavo.vllm_plugin import register
register(), register()
"""
DEPENDENCIES = ["cbor2", "httpx", "msgspec", "numpy", "rich", "torch", "typer", "xxhash", "yaml", "zmq"]
"""All but lazy-loader, without which vLLM logs that the entry point cannot be imported, and goes on."""
FACTORIES = ("vllm.distributed.kv_transfer.kv_connector.factory", "vllm.v1.kv_offload.factory")
OTHER_VLLM = f"""
for name in {FACTORIES!r}:
    for end in [i for i, letter in enumerate(name + ".") if letter == "."]:
        sys.modules.setdefault(name[:end], types.ModuleType(name[:end]))
sys.modules[{FACTORIES[0]!r}].KVConnectorFactory = sys.modules[{FACTORIES[1]!r}].OffloadingSpecFactory = 1
"""


@pytest.mark.parametrize("entry_point", OFFERED, ids=str)
def test_an_entry_point_names_something(entry_point):
    assert callable(entry_point.load())


@pytest.mark.parametrize(
    ("missing", "fake", "said"),
    [
        (["vllm"], "", "ModuleNotFoundError: "),
        (["vllm", *DEPENDENCIES], "", "ModuleNotFoundError: "),
        (DEPENDENCIES, OTHER_VLLM, "AttributeError: 'int' object has no attribute 'register_spec'"),
    ],
)
def test_the_entry_point_of_vllm_never_raises_and_warns_once(missing, fake, said):
    script = VLLM_CALLS.format(missing=missing, fake=fake)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"WARNING Octavo cannot be used in this vLLM ({said}")
    assert ran.stdout.count("\n") == 1
