"""The files of docs/ that commands make are what the commands make."""

import subprocess
import sys
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
