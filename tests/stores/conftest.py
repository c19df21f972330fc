"""Real servers of stores, where their packages are installed: Ceph's RADOS gateway, and Redis."""

import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
_CANNOT_RUN = 77


@contextmanager
def serving(script, folder, *options):
    """What a script says of the server that it has started."""
    command = [str(SCRIPTS / script), str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        told = {}
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
def server(tmp_path_factory):
    """An S3 server's endpoint. The credentials are in the environment."""
    with (
        serving("start_object_store.sh", tmp_path_factory.mktemp("server")) as told,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, told[name])
        yield told["ENDPOINT"]


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    """What is told of a Redis: URL."""
    with serving("start_redis.sh", tmp_path_factory.mktemp("redis")) as told:
        yield told
