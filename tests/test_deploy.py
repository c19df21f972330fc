"""What deploy/ holds is what Octavo takes, and what systemd, Kubernetes and builders of images take.

The validators are in the dependency group `deploy`; systemd's is Debian's. A test is skipped where its tool is not.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from octavo.cli import run

DEPLOY = Path(__file__).parents[1] / "deploy"
UNIT = (DEPLOY / "octavo.service").read_text()
VARIABLES = dict(
    line.split("=", 1) for line in (DEPLOY / "serve.env").read_text().splitlines() if not line.startswith("#")
)


def command_of_unit():
    line = re.search(r"^ExecStart=(\S+) ((?:.*\\\n)*.*)$", UNIT, re.MULTILINE)[2].replace("\\\n", " ")
    line = line.replace("${CACHE_DIRECTORY}", "/nowhere").replace("${MODEL}", "MODEL")
    return shlex.split(line.replace("$FLAGS", VARIABLES["FLAGS"]))


def command_of_image():
    return yaml.safe_load(re.search(r"^CMD (.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)[1])


def command_of_pod(file="kubernetes.yaml", kind="StatefulSet"):
    kinds = {resource["kind"]: resource for resource in yaml.safe_load_all((DEPLOY / file).read_text())}
    return kinds[kind]["spec"]["template"]["spec"]["containers"][0]["args"]


def command_of_engine_behind_gateway():
    return command_of_pod("gateway.yaml")


@pytest.mark.parametrize(
    "command", [command_of_unit, command_of_image, command_of_pod, command_of_engine_behind_gateway]
)
def test_serve_takes_its_flags(command, capsys):
    arguments = command()
    assert arguments[0] == "serve"
    has_tiny = "--tiny" in arguments
    model = ["--tiny", "no-such-family"] if has_tiny else ["/no/such/model"]
    assert run(["serve", *model, *arguments[3 if has_tiny else 2 :]]) == 2
    assert model[-1] in capsys.readouterr().err


def test_the_picker_takes_its_flags(capsys, tmp_path):
    command, *flags = command_of_pod("gateway.yaml", "Deployment")
    assert (command, run(["epp", *flags, "--tls-key", str(tmp_path)])) == ("epp", 2)
    assert "TLS needs a certificate" in capsys.readouterr().err


def test_systemd_takes_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "octavo.service"
    unit.write_text(UNIT.replace("/opt/octavo/bin/octavo", sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=300, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("validator", "arguments", "file"),
    [
        ("kubernetes-validate", ["--strict", "--quiet"], "kubernetes.yaml"),
        ("kubernetes-validate", ["--strict", "--quiet"], "gateway.yaml"),
        ("hadolint", [], "Containerfile"),
    ],
)
def test_validators_take_the_others(validator, arguments, file):
    tool = Path(sys.executable).with_name(validator)
    if not tool.exists():
        pytest.skip(f"no {validator}: pip install --group deploy")
    checked = subprocess.run(
        [tool, *arguments, DEPLOY / file], capture_output=True, text=True, timeout=300, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
