"""Front doors: what a package exports is there, and whoever stands outside takes names from its door only."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LOADED_LATE = ("torch", "zmq", "transformers", "vllm", "numpy")
"""What `import octavo` must not load."""
SEES_INSIDE = {"vllm": "vllm_plugin"}
"""Folders of tests that belong to a package of another name."""


def package_of(init: Path) -> str:
    return ".".join(init.parent.relative_to(SOURCE).parts)


PACKAGES = {package_of(init): init for init in sorted(SOURCE.rglob("__init__.py"))}
ROOMS = {name: init for name, init in PACKAGES.items() if name.count(".") == 1}


def exports_of(package: str) -> set[str]:
    """The names that the door lists: in the stub of a lazy door, else in `__all__`."""
    stub = PACKAGES[package].with_suffix(".pyi")
    if stub.exists():
        imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
        return {name.asname or name.name for node in imports for name in node.names}
    for node in ast.parse(PACKAGES[package].read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def origin_of(package: str, name: str) -> str:
    """The module in which a name of a door is defined, through the doors of other packages."""
    init = PACKAGES[package]
    stub = init.with_suffix(".pyi")
    for node in ast.parse((stub if stub.exists() else init).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            above = [package] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for found in node.names:
                if (found.asname or found.name) == name:
                    is_door = module in PACKAGES and module != package  # it may export a module of its own
                    return origin_of(module, found.name) if is_door else module
    return package


def room_of(file: Path) -> str:
    """The package whose inside this file may see."""
    parts = file.relative_to(ROOT).parts
    if parts[0] == "src":
        return parts[2].removesuffix(".py")
    if parts[0] == "tests":
        return SEES_INSIDE.get(parts[1], parts[1])
    return ""


def intrusions(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level or not (node.module or "").startswith("octavo."):
            continue
        module = str(node.module)
        if module.split(".")[1] == room_of(file) or (module not in PACKAGES and module.count(".") == 1):
            continue
        if module not in PACKAGES:
            found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {module} is inside a package")
        else:
            missing = {name.name for name in node.names} - exports_of(module)
            found += [f"{file.relative_to(ROOT)}:{node.lineno}: {module} does not export {name}" for name in missing]
    return found


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_a_package_exports_its_nouns(package):
    needs = {
        "octavo.testing": "hypothesis",
        "octavo.engine": "torch",
        "octavo.gateway": "grpc",
        "octavo.ray": "ray",
        "octavo.server": "torch",
        "octavo.transfer": "torch",
    }
    pytest.importorskip(needs.get(package, "octavo"), reason=f"{package} is an extra")
    names = exports_of(package)
    assert names or package == "octavo.cli"
    if package == "octavo.vllm_plugin":
        names -= {"OctavoConnector", "OctavoOffloadingSpec"}  # these need vLLM
    door = import_module(package)
    assert [name for name in sorted(names) if not hasattr(door, name)] == []


def test_outsiders_use_front_doors():
    folders = ("src", "tests", "benchmarks", "scripts", "examples")
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    assert [line for file in files for line in intrusions(file)] == []


def test_a_name_means_the_same_at_every_door():
    """Who reads `Choice` somewhere need not ask from where it came."""
    origins: dict[str, set[str]] = {}
    for package in ROOMS:
        for name in exports_of(package):
            origins.setdefault(name, set()).add(origin_of(package, name))
    assert {name: found for name, found in origins.items() if len(found) > 1} == {}
    assert origins["PromisedPoint"] == {"octavo.chunks.wanted"}  # at the door of `policies`, too


def test_the_house_has_ten_nouns():
    import octavo

    assert exports_of("octavo") - {"__version__"} == {
        "Engine",
        "EngineConfig",
        "GroupView",
        "KVCacheManager",
        "KVCacheSpecRegistry",
        "OffloadConfig",
        "OffloadScheduler",
        "SamplingParams",
        "plan_kv_cache",
        "read_model",
    }
    assert all(getattr(octavo, name) is not None for name in octavo.__all__)


def test_importing_octavo_loads_nothing_heavy():
    script = f"import sys, octavo; print([name for name in {LOADED_LATE!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
