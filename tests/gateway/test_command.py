"""`octavo epp` as a command: what it says, how it ends, and what it refuses."""

import re
import signal
import socket
from importlib.util import find_spec

import pytest

from rigs.octavo_process import start_octavo

pytest.importorskip("torch")
HAS_EXTRA = find_spec("envoy") is not None
needs_envoy = pytest.mark.skipif(not HAS_EXTRA, reason="needs octavo[epp]: make test-fleet")


@pytest.mark.fleet
@needs_envoy
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.usefixtures("hanging_up")
def test_it_says_where_it_is_and_ends_when_asked(number):
    process = start_octavo("epp", "--engine", "http://127.0.0.1:9", "--port", "0")
    assert re.match(r"Picks one of 1 engine .*: gRPC at 127\.0\.0\.1:[1-9]", process.stdout.readline())
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (0, False)


@pytest.mark.fleet
@needs_envoy
def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start_octavo("epp", "--engine", "http://127.0.0.1:9", "--port", str(taken.getsockname()[1]))
        _, errors = process.communicate()
    assert (process.returncode, "cannot listen on 127.0.0.1 port" in errors) == (2, True)


@pytest.mark.skipif(HAS_EXTRA, reason="needs an environment without octavo[epp]")
def test_it_says_what_to_install():
    process = start_octavo("epp", "--engine", "http://127.0.0.1:9")
    _, errors = process.communicate()
    assert (process.returncode, "pip install 'octavo[router,epp]'" in errors) == (2, True)
