"""The scripts of examples/ run, each in a process of its own, and say that all went well."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LAST_LINES = {
    "own_engine.py": "All answers are the same.",
    "own_policy.py": "second_chance    30.2%",
    "watch_events.py": "The views are right.",
}


def test_every_script_is_checked():
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(LAST_LINES)


@pytest.mark.parametrize("script", sorted(LAST_LINES))
def test_runs(script):
    pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")
    ran = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / script], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == LAST_LINES[script]
    if script == "own_engine.py":
        tutorial = (EXAMPLES.parent / "docs" / "own-engine.md").read_text()
        assert f"$ python examples/own_engine.py\n{ran.stdout}```" in tutorial
