"""Where `scripts/install_torch.sh` takes torch from. Small indices of packages stand in for torch's and pip's own."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "install_torch.sh"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def indices(tmp_path: Path) -> Iterator[str]:
    """An address with the indices /cpu and /default, whose builds of torch tell their names."""
    for name in ("cpu", "default"):
        folder = tmp_path / name / "torch"
        folder.mkdir(parents=True)
        version = f"1.0+{name}"
        wheel = f"torch-{version}-py3-none-any.whl"
        (folder / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel}">{wheel}</a>')
        with ZipFile(folder / wheel, "w") as archive:
            info = f"torch-{version}.dist-info"
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def torch_taken(index: str | None, pip_index: str, *options: str) -> str:
    settings = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    settings |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": pip_index, "PIP_NO_CACHE_DIR": "1"}
    settings |= {"PIP_DRY_RUN": "1", "PIP_IGNORE_INSTALLED": "1", "NO_PROXY": "127.0.0.1"}
    settings |= {} if index is None else {"TORCH_INDEX": index}
    command = [SCRIPT, sys.executable, "1.0", *options]
    return subprocess.run(command, env=settings, check=True, capture_output=True, text=True).stdout


def test_the_build_for_cpus_comes_from_its_own_index(indices: str) -> None:
    assert "Would install torch-1.0+cpu" in torch_taken(f"{indices}/cpu", f"{indices}/default")


def test_an_index_that_does_not_answer_gives_way_to_pips_own(indices: str) -> None:
    shown = torch_taken(f"{indices}/nowhere", f"{indices}/default")
    assert f"{indices}/nowhere does not answer" in shown
    assert "Would install torch-1.0+default" in shown


@pytest.mark.parametrize("index", [None, ""])
def test_pips_settings_or_a_person_may_bar_the_index_for_cpus(indices: str, index: str | None) -> None:
    assert "Would install torch-1.0+default" in torch_taken(index, f"{indices}/default")


def test_a_dry_run_shows_the_command_and_installs_nothing(indices: str) -> None:
    shown = torch_taken(f"{indices}/cpu", f"{indices}/default", "--dry-run")
    assert f"would run: {sys.executable} -m pip install --no-deps torch==1.0 --index-url {indices}/cpu" in shown
    assert "Would install" not in shown
