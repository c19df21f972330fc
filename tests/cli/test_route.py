"""`octavo route` as a command: what it says, how it ends, and what it refuses."""

import re
import signal
import subprocess
import sys

import httpx
import pytest

from octavo.events import make_keys
from rigs.octavo_process import start_octavo
from rigs.processes import bound

pytest.importorskip("starlette", reason="needs the router: pip install 'octavo[router]'")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.usefixtures("hanging_up")
def test_it_says_where_it_is_and_ends_when_asked(number):
    process = start_octavo("route", "--engine", "http://127.0.0.1:9", "--port", "0")
    said = re.match(r"Routing to 1 engine: OpenAI's API at (\S+)/v1, the fleet at ", process.stdout.readline())
    assert httpx.get(f"{said[1]}/health", timeout=300).status_code == 503
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (0, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.usefixtures("hanging_up")
def test_a_selection_ends_when_asked(number):
    process = start_octavo("select", "--port", "0")
    url = re.search(r" at (\S+) with the key ", process.stdout.readline())[1]
    assert httpx.get(f"{url}/health", timeout=300).status_code == 200
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (0, False)


@pytest.mark.parametrize("command", [["route", "http://127.0.0.1:9"], ["select"]])
def test_a_signal_before_it_serves_ends_it_as_it_should(command):
    name = f"octavo.cli.commands.{command[0]}"
    program = (
        f"import signal, {name}; from importlib import import_module; from octavo.cli import main\n"
        f"import_module({name!r}).write_ready = lambda _: signal.raise_signal(signal.SIGTERM)\n"
        "main()"
    )
    started = bound([sys.executable, "-c", program, *command, "--port", "0"])
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate(timeout=300)
    assert (process.returncode, "Traceback" in errors) == (0, False)


def test_engines_stand_beside_the_flag_too():
    process = start_octavo("route", "http://127.0.0.1:9", "--engine", "http://127.0.0.1:19", "--port", "0")
    try:
        assert process.stdout.readline().startswith("Routing to 2 engines: ")
    finally:
        process.kill()
        process.communicate()


def test_an_engine_that_was_never_reached_is_named_once():
    process = start_octavo("route", "http://127.0.0.1:9", "--port", "0")
    line = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate()
    assert "engine 127.0.0.1:9 is lost: GET /engine" in line
    assert "is lost" not in rest


@pytest.mark.parametrize("engine", ["127.0.0.1:1", "http://a,events"])
def test_an_engine_that_cannot_be_read_is_named(engine):
    process = start_octavo("route", "--engine", engine, "--port", "0")
    _, errors = process.communicate()
    assert (process.returncode, errors.startswith(f"octavo: engine {engine!r}")) == (2, True)


@pytest.mark.parametrize("option", ["route", "select"])
def test_keys_of_events_that_are_not_there_end_the_start(octavo, tmp_path, option):
    """Nothing would ever be known of an engine, and only the log would say so, once it is there."""
    arguments = {
        "route": ("route", f"http://127.0.0.1:9,keys={tmp_path}/keys", "--port", "0"),
        "select": ("select", "--kv-events-keys", f"{tmp_path}/keys", "--port", "0"),
    }[option]
    ran = octavo(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path}/keys/subscriber.key_secret is not a key file: make keys with `octavo events keys" in ran.err
    make_keys(tmp_path / "keys")
    (tmp_path / "keys" / "publisher.key").unlink()
    assert octavo(*arguments).code == 2


def test_a_fleet_of_engines_with_keys(tmp_path):
    make_keys(tmp_path / "keys")
    process = start_octavo("route", f"http://127.0.0.1:9,keys={tmp_path}/keys", "--port", "0")
    assert process.stdout.readline().startswith("Routing to 1 engine: ")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0


def test_a_router_without_engines_says_what_it_needs(octavo):
    ran = octavo("route", "--port", "0")
    assert (ran.code, "a router needs an engine" in ran.err) == (2, True)


def test_an_engine_is_drained_by_its_name(octavo):
    process = start_octavo("route", "http://127.0.0.1:9", "--port", "0", "--operator-api-key", "mine")
    try:
        url = re.search(r"at (http://\S+)/v1", process.stdout.readline())[1]
        drain = ("route", "drain", "127.0.0.1:9", "--url", url, "--api-key")
        is_draining = []
        for more, said in ((), "no new requests"), (("--undo",), "requests again"):
            ran = octavo(*drain, "mine", *more)
            assert (ran.code, ran.out) == (0, f"127.0.0.1:9 gets {said}, and has 0 requests open\n")
            fleet = httpx.get(f"{url}/fleet", headers={"authorization": "Bearer mine"}, timeout=300).json()
            is_draining.append(fleet["engines"][0]["is_draining"])
        assert is_draining == [True, False]
        assert "answers 401" in octavo(*drain, "another").err
        unknown = octavo("route", "drain", "nobody", "--url", url, "--api-key", "mine")
        assert (unknown.code, "there is no engine 'nobody' here, only 127.0.0.1:9" in unknown.err) == (2, True)
    finally:
        process.kill()
        process.communicate()
    gone = octavo(*drain, "mine")
    assert (gone.code, gone.err.startswith(f"octavo: {url} does not answer: ")) == (2, True)
