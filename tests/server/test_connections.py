"""Connections that say nothing, or half of something: they cost nobody else his turn."""

import resource
import socket
from contextlib import ExitStack

import pytest

from octavo.server.connection import most_connections
from rigs.running_server import serving

MOST = 20


@pytest.fixture(scope="module")
def hasty_server(model_folder):
    with serving(model_folder, bounds={"keep_alive_s": 1, "most_connections": MOST}) as running:
        yield running


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


@pytest.mark.parametrize("said", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nhost: x\r\n"])
def test_whoever_says_nothing_whole_is_closed(hasty_server, said):
    with connect(hasty_server) as connection:
        connection.sendall(said)
        assert connection.recv(1) == b""


def test_a_second_request_that_never_ends_is_closed_too(hasty_server):
    with connect(hasty_server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /hea")
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        assert answer.count(b"HTTP/1.1 200") == 1


def test_too_many_silent_ones_keep_nobody_out(hasty_server):
    with ExitStack() as stack:
        for _ in range(3 * MOST):
            stack.enter_context(connect(hasty_server))
        with hasty_server.client() as client:
            assert client.get("/health").status_code == 200
        assert len(hasty_server.server.server_state.connections) <= MOST


def test_an_answer_that_takes_long_is_no_silence(hasty_server):
    body = b'{"prompt": "a", "max_tokens": 3}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with connect(hasty_server) as busy:
        with hasty_server.held_engine():
            busy.sendall(head % len(body) + body)
            for _ in range(2):
                with connect(hasty_server) as silent:
                    assert silent.recv(1) == b"", "the time for silence has passed"
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_no_more_than_the_process_may_have():
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        assert most_connections(100_000) < 100_000
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
        assert most_connections(10) == 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
