"""Clients that do not take their answers: after a while their connections end, and what waited there is dropped."""

import json
import socket

import pytest

from octavo.http.connection import Connection
from rigs.running_server import serving

COMPLETION = {"prompt": [5] * 300, "max_tokens": 1, "logprobs": 20, "echo": True}
"""Its answer takes some 200 KB."""
PAGE = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
MOST = 2000
"""More answers than the kernel's buffers take."""


@pytest.fixture
def impatient(model_folder):
    """Gives up whoever takes nothing for a tenth of a second."""
    with serving(model_folder, bounds={"send_timeout_s": 0.1}) as running:
        yield running
        running.check_nothing_is_left()


def posted(body):
    body = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def connect(server):
    """With room for few bytes."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    return connection


def fill_up(connection, request):
    """Asks again and again, and takes no answer, until the server takes no more requests, or has given up."""
    connection.settimeout(0.5)
    try:
        for _ in range(MOST):
            connection.sendall(request)
    except OSError:  # a timeout, or the end
        pass


def wait_until_alone(server):
    """Until no connection is left but the one that asks. Each question gives the server a turn."""
    with server.client() as client:
        client.get("/health")
        while len(server.server.server_state.connections) > 1:
            client.get("/health")


@pytest.mark.parametrize("request_", [PAGE, posted(COMPLETION)], ids=["page", "completion"])
def test_whoever_takes_no_answers_is_given_up_and_is_no_error(impatient, caplog, request_):
    with connect(impatient) as connection:
        fill_up(connection, request_)
        wait_until_alone(impatient)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_what_waits_for_a_client_that_is_idle_is_dropped(model_folder, monkeypatch):
    """The answer is whole, so no request is open."""
    monkeypatch.setattr(Connection, "pause_writing", lambda self: None)  # no answer waits until others are taken
    with serving(model_folder, bounds={"send_timeout_s": 0.1}) as server, connect(server) as connection:
        connection.sendall(PAGE * 200)
        wait_until_alone(server)
