"""Fixtures: real servers of stores, where their packages are installed. A conftest takes those that it wants."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
_CANNOT_RUN = 77


@contextmanager
def serving(script: str, folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """What a script says of the server that it has started."""
    command = [str(SCRIPTS / script), str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        told = {}
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            name, _, value = line.strip().partition("=")
            told[name] = value
            if name == "READY":
                break
        else:
            reason = process.stderr.read()
            if process.wait() == _CANNOT_RUN:
                pytest.skip(reason)
            pytest.fail(reason)
        yield told
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of Ceph's RADOS gateway. The credentials are in the environment."""
    with (
        serving("start_object_store.sh", tmp_path_factory.mktemp("server")) as told,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, told[name])
        yield told["ENDPOINT"]


@pytest.fixture(scope="session", params=["redis", "valkey"])
def redis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """How a server is reached: URL, TCP_URL, TLS_URL, CA_FILE."""
    with serving("start_redis.sh", tmp_path_factory.mktemp(request.param), request.param) as told:
        yield told


@pytest.fixture(scope="session")
def run_mooncake() -> Callable[..., AbstractContextManager[dict[str, str]]]:
    """Runs a pool of Mooncake in a folder, at the given port: URL, METRICS, and the pids MASTER and CLIENT."""

    def run(folder: Path, *port: str) -> AbstractContextManager[dict[str, str]]:
        folder.mkdir(exist_ok=True)
        return serving("start_mooncake.sh", folder, sys.executable, *port)

    return run
