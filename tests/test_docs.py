"""The files of docs/ that commands make are what the commands make, and what docs/ quotes is what stands there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("script", "file"), [("make_plan_schema.py", "plan.schema.json"), ("make_plan_table.py", "plans.md")]
)
def test_is_up_to_date(script, file):
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / script], capture_output=True, text=True, timeout=60, check=True
    )
    assert made.stdout == (ROOT / "docs" / file).read_text(), "run: make docs"


def blocks_of(file, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)


def test_the_picture_of_layers_is_that_of_import_linter():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    pictures = [block for block in blocks_of("docs/architecture.md", "") if block.startswith("cli ")]
    assert [re.split(r"\s{2,}", line)[0] for picture in pictures for line in picture.splitlines()] == layers


def test_tests_that_the_docs_name_are_there():
    named = {name for file in (ROOT / "docs").rglob("*.md") for name in re.findall(r"`(test_\w+)`", file.read_text())}
    there = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert named
    assert named <= there


def test_the_tutorial_quotes_its_engine():
    engine = (ROOT / "examples" / "own_engine.py").read_text()
    blocks = blocks_of("docs/own-engine.md", "python")
    assert blocks
    assert [block for block in blocks if block not in engine] == []
