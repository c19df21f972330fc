"""The scripts that look at the house: circles of imports are found, and lines of code are counted."""

import runpy
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return lambda name: runpy.run_path(str(SCRIPTS / f"{name}.py"))


def test_a_circle_through_a_lazy_door_and_a_function_is_found(script, tmp_path, capsys):
    files = {
        "__init__.py": "",
        "front/__init__.py": "import lazy_loader",
        "front/__init__.pyi": "from .noun import Noun as Noun",
        "front/noun.py": "def use():\n    from octavo.back import helper",
        "back.py": "from octavo.front import Noun",
    }
    for name, text in files.items():
        file = tmp_path / "octavo" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    check = script("check_circles")["main"]
    check.__globals__["SOURCE"] = tmp_path
    assert check() == 1
    circle = capsys.readouterr().out
    assert all(module in circle for module in ("octavo.back", "octavo.front", "octavo.front.noun"))


def test_lines_are_of_code(script, tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""Doc."""\n\n# comment\nx = [\n    1,\n]\n\n\ndef f():\n    """Doc."""\n    return x  # why\n')
    figures = script("house_figures")
    figures["read_modules"].__globals__["SOURCE"] = tmp_path
    module = figures["Module"](name="octavo.room", file=file)
    assert len(module.code) == 5
    assert list(module.functions()) == [(2, "module.py:9 f")]


def test_the_figures_are_printed(script, capsys):
    script("house_figures")["main"]()
    printed = capsys.readouterr().out
    assert "the spine" in printed
    assert "Circles of imports between modules: " in printed
