"""Bodies in chunks of a byte, each of which takes as long as a large one: they hold up nobody else."""

import json
import socket
from contextlib import suppress

import pytest

from octavo.http import connection
from rigs.running_server import serving

BODY = json.dumps({"prompt": "a" * 300, "max_tokens": 1}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
JSON, TEXT = b"application/json", b"text/plain"
END = b"0\r\n\r\n"


@pytest.fixture(scope="module")
def server(model_folder):
    with serving(model_folder) as running:
        yield running
        running.check_nothing_is_left()


def in_chunks(body):
    return b"".join(b"1\r\n%c\r\n" % byte for byte in body)


def answer_to(server, *pieces):
    """All that comes until the connection ends, whoever ends it. At None an answer is waited for."""
    host, port = server.url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=300) as asking, suppress(ConnectionError):
        for piece in pieces:
            if piece is None:
                while not answer.endswith(b"}"):
                    answer += asking.recv(65536)
            else:
                asking.sendall(piece)
        while piece := asking.recv(65536):
            answer += piece
    return answer


def test_a_body_in_chunks_of_a_byte_is_read(server):
    assert answer_to(server, HEAD % JSON, in_chunks(BODY) + END + LAST).startswith(b"HTTP/1.1 200 ")


def test_too_many_chunks_are_refused(server, monkeypatch):
    monkeypatch.setattr(connection, "_MOST_CHUNKS", 100)
    assert answer_to(server, HEAD % JSON, in_chunks(BODY) + END + LAST).startswith(b"HTTP/1.1 400 ")


def test_a_refused_body_that_goes_on_in_small_chunks_ends_its_connection(server, monkeypatch):
    """It came before the key was looked at, and for as long as the client liked."""
    monkeypatch.setattr(connection, "_MOST_UNREAD_CHUNKS", 100)
    answer = answer_to(server, HEAD % TEXT, None, in_chunks(BODY) + END + LAST)
    assert answer.startswith(b"HTTP/1.1 415 ")
    assert b"200 OK" not in answer


def test_no_read_is_so_long_that_others_wait_for_it(server, monkeypatch):
    reads, take = [], connection.Connection.data_received
    monkeypatch.setattr(
        connection.Connection, "data_received", lambda c, data: (reads.append(len(data)), take(c, data))
    )
    with server.client() as client:
        body = b" " * (1 << 20) + BODY
        answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200
    assert max(reads) <= 16 << 10


@pytest.mark.parametrize(("num_bytes", "status"), [(30_000, 200), (60_000, 400)])
def test_how_long_a_head_may_be_does_not_depend_on_the_pieces_that_it_comes_in(server, num_bytes, status):
    head = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncookie: %s" % (b"a" * num_bytes)
    answer = answer_to(server, head[:9000], head[9000:20000], head[20000:] + b"\r\n\r\n")
    assert not answer or answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer or status == 400
