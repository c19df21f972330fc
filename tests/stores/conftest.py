"""A real S3 server, where its packages are installed: Ceph's RADOS gateway."""

import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "start_object_store.sh"
_CANNOT_RUN = 77


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Its endpoint. The credentials are in the environment."""
    folder = tmp_path_factory.mktemp("server")
    process = subprocess.Popen([str(SCRIPT), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, told[name])
            yield told["ENDPOINT"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
