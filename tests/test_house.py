"""No circle of imports, lazy ones included; and the finder of circles finds them."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def figures():
    return runpy.run_path(str(ROOT / "scripts" / "house_figures.py"))


def circles_of(figures):
    return figures["find_circles"](figures["import_graph"](figures["read_modules"]()))


def test_no_module_imports_what_imports_it(figures):
    assert circles_of(figures) == []


def test_a_circle_through_a_lazy_door_and_a_function_is_found(figures, tmp_path):
    files = {
        "__init__.py": "",
        "front/__init__.py": "import lazy_loader",
        "front/__init__.pyi": "from .noun import Noun as Noun",
        "front/noun.py": "def use():\n    from octavo.back import helper",
        "back.py": "from octavo.front import Noun",
        "apart.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from octavo.back import helper",
    }
    for name, text in files.items():
        file = tmp_path / "octavo" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    figures["read_modules"].__globals__["SOURCE"] = tmp_path
    assert circles_of(figures) == [["octavo.back", "octavo.front.noun"]]


def test_lines_are_of_code(figures, tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""Doc."""\n\n# comment\nx = [\n    1,\n]\n\n\ndef f():\n    """Doc."""\n    return x  # why\n')
    figures["read_modules"].__globals__["SOURCE"] = tmp_path
    module = figures["Module"](name="octavo.room", file=file)
    assert len(module.code) == 5
    assert list(module.functions()) == [(2, "module.py:9 f")]
