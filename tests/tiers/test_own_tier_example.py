"""The example of a third party's tier passes its own tests: the suite of `octavo.testing` among them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_tier"


def test_its_own_tests_pass(tmp_path):
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / "octavo_files-0.1.0.dist-info"  # what installing it would leave, so that it is found by name
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: octavo-files\nVersion: 0.1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    paths = [str(EXAMPLE / "src"), str(tmp_path), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
