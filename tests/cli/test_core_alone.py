"""Commands where only the core is installed: each can be loaded, and one that needs an extra names it."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import octavo
from octavo.extras import EXTRA_OF

SOURCES = Path(octavo.__file__).parents[1]
EXAMPLE = Path(__file__).parents[2] / "examples/models/gemma-3-27b.json"


def core_distributions():
    """What pip installs for octavo without an extra."""
    found, asked = {}, ["octavo"]
    while asked:
        name = canonicalize_name(asked.pop())
        if name not in found:
            found[name] = distribution(name)
            needs = map(Requirement, found[name].requires or [])
            asked += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found.values()


@pytest.fixture(scope="module")
def run_in_core(tmp_path_factory):
    """Runs Python with the standard library, the core's packages and octavo, and nothing else."""
    folder = tmp_path_factory.mktemp("core")
    for found in core_distributions():
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            (folder / top).symlink_to(found.locate_file(top))
    path = os.pathsep.join(map(str, (folder, SOURCES)))

    def run(program, *arguments, beside=()):
        """`beside`: folders with further packages."""
        command = [sys.executable, "-P", "-S", "-W", "error", "-c", program, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, beside), path])}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, cwd=folder, env=environment
        )

    return run


def test_no_package_of_an_extra_is_there(run_in_core):
    program = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    assert run_in_core(program, "torch", "starlette", "jinja2", "h11", "rich").stdout.split() == ["['h11',", "'rich']"]


def test_every_command_can_be_loaded(run_in_core):
    program = (
        "from octavo.cli.commands import COMMANDS, load_command\n"
        "for name in COMMANDS:\n"
        "    assert load_command(name).help, name\n"
    )
    assert run_in_core(program).stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--tiny", "gemma3"], "pip install 'octavo[engine]'"),
        (["demo"], "pip install 'octavo[engine]'"),
        (["route", "http://127.0.0.1:9"], "pip install 'octavo[router]'"),
        (["select"], "pip install 'octavo[router]'"),
        (["epp", "--engine", "http://127.0.0.1:9"], "pip install 'octavo[router,epp]'"),
        (["vllm-check", EXAMPLE], "pip install"),
        (["store", "ls", "s3://bucket/prefix"], "pip install 'octavo[objects]'"),
        (["store", "ls", "redis://127.0.0.1:9"], "pip install 'octavo[redis]'"),
        (["plan", EXAMPLE], "Capacity"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_command_works_or_says_what_to_install(run_in_core, arguments, said):
    ran = run_in_core("from octavo.cli import main; main()", *arguments)
    assert said in " ".join((ran.stdout + ran.stderr).split())
    assert "Traceback" not in ran.stderr


def test_every_name_of_a_front_door_is_there_or_names_an_extra(run_in_core):
    program = (
        "import importlib, pkgutil, octavo\n"
        "doors = ['octavo', *(m.name for m in pkgutil.iter_modules(octavo.__path__, 'octavo.') if m.ispkg)]\n"
        "for door in map(importlib.import_module, doors):\n"
        "    for name in door.__all__:\n"
        "        try:\n"
        "            getattr(door, name)\n"
        "        except octavo.errors.InputError as error:\n"
        "            print(door.__name__, name, error)\n"
    )
    ran = run_in_core(program)
    assert ran.returncode == 0, ran.stderr
    said = {tuple(line.split()[:2]): line for line in ran.stdout.splitlines()}
    assert "octavo.Engine needs the package torch: pip install 'octavo[engine]'" in said["octavo", "Engine"]
    assert all("pip install 'octavo[" in line for line in said.values())
    assert ("octavo", "KVCacheManager") not in said
    for name in ("Server", "Service", "make_app"):
        assert said["octavo.server", name].endswith("pip install 'octavo[engine]'"), "it brings a router's packages too"


@pytest.mark.parametrize(("command", "code"), [("ls", 0), ("stat", 0), ("verify", 2)])
def test_what_is_encrypted_is_listed_without_the_package_that_opens_it(
    run_in_core, tmp_path, monkeypatch, command, code
):
    """An operator's machine has the engines' environment, and need not have all of their packages."""
    obstore = pytest.importorskip("obstore", reason="needs obstore: pip install 'octavo[objects]'")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "obstore").symlink_to(Path(obstore.__file__).parent)
    monkeypatch.setenv("OCTAVO_STORE_KEY", "5a" * 32)
    (tmp_path / "store").mkdir()
    asked = ["store", command, f"file://{tmp_path / 'store'}"]
    ran = run_in_core("from octavo.cli import main; main()", *asked, beside=[tmp_path / "packages"])
    assert ran.returncode == code, ran.stderr
    assert "pip install 'octavo[encryption]'" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


EVERY_NAME = """
import importlib, json, os, pkgutil, sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))
import octavo
doors = ['octavo', *(m.name for m in pkgutil.iter_modules(octavo.__path__, 'octavo.') if m.ispkg)]
told = {}
for door in map(importlib.import_module, doors):
    for name in door.__all__:
        try:
            getattr(door, name)
        except octavo.errors.InputError as error:
            told[f'{door.__name__}.{name}'] = str(error)
print(json.dumps(told))
"""


def test_the_extra_that_is_named_suffices():
    """Where one package is missing after the other, two installations would be needed."""

    def ask(installed=None):
        hidden = [package for package, extra in EXTRA_OF.items() if extra != installed]
        command = [sys.executable, "-c", EVERY_NAME, *hidden]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return json.loads(ran.stdout.splitlines()[-1])

    asked = {name: re.search(r"octavo\[([a-z,]+)\]", said)[1] for name, said in ask().items()}
    for extra in ("router", "testing"):  # no other is less than what another brings
        still = ask(extra)
        assert [name for name, first in asked.items() if first == extra and name in still] == []


@pytest.mark.parametrize(
    ("settings", "extra"),
    [
        ({"type": "redis", "url": "redis://127.0.0.1:9"}, "redis"),
        ({"type": "objects", "url": "s3://bucket/prefix"}, "objects"),
        ({"type": "mooncake", "url": "mooncake://127.0.0.1:9"}, "mooncake"),
        ({"type": "zstd", "tier": {"type": "objects", "url": "s3://bucket/prefix"}}, "zstd"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tier_names_its_extra_before_a_model_is_loaded(run_in_core, settings, extra):
    program = "import json, sys; from octavo.tiers import spec_from_config as s; s(json.loads(sys.argv[1])).check()"
    ran = run_in_core(program, json.dumps(settings))
    assert ran.stderr.splitlines()[-1].startswith("octavo.errors.MissingPackageError")
    assert f"pip install 'octavo[{extra}]'" in ran.stderr


def test_a_folder_that_pip_left_behind_is_no_package(run_in_core, tmp_path):
    (tmp_path / "starlette" / "__pycache__").mkdir(parents=True)
    ran = run_in_core("from octavo.cli import main; main()", "select", beside=[tmp_path])
    assert "needs starlette, uvicorn" in ran.stderr


@pytest.mark.parametrize(
    ("package", "why", "arguments"),
    [
        ("redis", "raise ImportError('libssl.so.3: no such file')", ["store", "ls", "redis://127.0.0.1:9"]),
        ("starlette", "import absent", ["select"]),
    ],
    ids=["redis", "starlette"],
)
def test_a_package_that_does_not_load_is_told_in_one_line(run_in_core, tmp_path, package, why, arguments):
    for name in (package, "uvicorn", "prometheus_client"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(why if name == package else "")
    ran = run_in_core("from octavo.cli import main; main()", *arguments, beside=[tmp_path])
    assert ran.returncode == 2
    assert f"{package} is installed and does not load (" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
