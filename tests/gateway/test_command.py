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
def test_it_takes_as_many_open_requests_as_a_person_writes():
    process = start_octavo("epp", "--engine", "http://127.0.0.1:9", "--port", "0", "--most-open", "9" * 30)
    assert process.stdout.readline().startswith("Picks one of 1 engine")
    process.terminate()
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


@pytest.mark.fleet
@needs_envoy
def test_a_second_picker_does_not_take_half_of_the_connections():
    first = start_octavo("epp", "--engine", "http://127.0.0.1:9", "--port", "0")
    port = first.stdout.readline().rpartition(":")[2].strip()
    second = start_octavo("epp", "--engine", "http://127.0.0.1:9", "--port", port)
    said, errors = second.communicate()
    first.terminate()
    first.communicate()
    assert (second.returncode, said) == (2, "")
    assert errors.endswith("Address already in use; give another port, or 0 for a free one\n")


@pytest.mark.fleet
@needs_envoy
def test_the_flag_that_it_asks_for_is_one_that_it_has():
    process = start_octavo("epp")
    _, errors = process.communicate()
    assert (process.returncode, errors) == (
        2,
        "octavo: an endpoint picker needs an engine: give its URL with --engine\n",
    )


@pytest.mark.skipif(HAS_EXTRA, reason="needs an environment without octavo[epp]")
def test_it_says_what_to_install():
    process = start_octavo("epp", "--engine", "http://127.0.0.1:9")
    _, errors = process.communicate()
    assert (process.returncode, "pip install 'octavo[router,epp]'" in errors) == (2, True)
