"""Fixtures: real servers of stores, where their packages are installed. A conftest takes those that it wants."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from rigs import store_servers


@contextmanager
def serving(script: str, folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """What a script says of its server; the test is skipped where that is not installed."""
    with ExitStack() as stack:
        try:
            told = stack.enter_context(store_servers.serving(script, folder, *options))
        except store_servers.MissingError as missing:
            pytest.skip(str(missing))
        yield told


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
    """How a server is reached: URL, TCP_URL, and TLS_URL and CA_FILE if it is built with TLS."""
    with serving("start_redis.sh", tmp_path_factory.mktemp(request.param), request.param) as told:
        yield told


@pytest.fixture(scope="session")
def second_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Another server, which has all slots of a cluster to itself."""
    with serving("start_redis.sh", tmp_path_factory.mktemp("cluster"), "redis", "cluster") as told:
        yield told


@pytest.fixture(scope="session")
def run_mooncake() -> Callable[..., AbstractContextManager[dict[str, str]]]:
    """Runs a pool of Mooncake in a folder, at the given port: URL, METRICS, and the pids MASTER and CLIENT."""

    def run(folder: Path, *port: str) -> AbstractContextManager[dict[str, str]]:
        folder.mkdir(exist_ok=True)
        return serving("start_mooncake.sh", folder, sys.executable, *port)

    return run
