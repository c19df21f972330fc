"""Clients that mean harm or know no better: each gets an answer or a closed connection, and costs others nothing."""

import json
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count

import pytest
from hypothesis import given, settings, strategies as st

from octavo.errors import InputError
from octavo.http.config import HttpConfig
from octavo.http.connection import Connection, most_connections
from octavo.http.sockets import open_socket
from octavo.server import make_app
from rigs.running_server import serving

MOST = 20
IDLE = 3000
COMPLETION = {"prompt": "a", "max_tokens": 3}
JSON = {"content-type": "application/json"}
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def posted(body, *, headers=b""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HEAD + headers + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module")
def small_server(model_folder):
    """For few connections."""
    with serving(model_folder, bounds={"most_connections": MOST}) as running:
        yield running
        running.check_nothing_is_left()


@pytest.fixture(scope="module")
def hasty_server(model_folder):
    """Gives up whoever is silent: for tests that wait for it, as others might be given up while the machine is busy."""
    with serving(model_folder, bounds={"keep_alive_s": 1, "body_timeout_s": 0.1}) as running:
        yield running
        running.check_nothing_is_left()


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=300)


def read_all(connection):
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


# ---- who asks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "", "[::1", "a@b"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/state"), ("POST", "/reset_prefix_cache")])
def test_a_foreign_host_is_refused(client, host, method, path):
    refused = client.request(method, path, headers={"host": host})
    assert refused.status_code == 403
    message = refused.json()["error"]["message"]
    assert "--allowed-host" in message
    assert "''" not in message


def asked(server, target, *, host):
    with connect(server) as connection:
        connection.sendall(b"GET %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n" % (target, host))
        return read_all(connection)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (b"http://localhost/v1/models", b'"object":"list"'),
        (b"HTTP://127.0.0.1:1/v1/models?a=http://b/c", b'"object":"list"'),
        (b"https://localhost/v1%2Fmodels", b'"object":"list"'),
        (b"http://localhost", b"<!doctype html>"),
        (b"http://localhost?a=1", b"<!doctype html>"),
    ],
)
def test_a_target_may_be_a_whole_url(server, target, body):
    answer = asked(server, target, host=b"localhost")
    assert status_of(answer) == 200
    assert body in answer


def test_the_host_of_a_whole_url_counts_and_not_the_header(server):
    assert status_of(asked(server, b"http://evil.example/v1/models", host=b"localhost")) == 403
    assert status_of(asked(server, b"http:///v1/models", host=b"localhost")) == 403
    assert status_of(asked(server, b"http://localhost/v1/models", host=b"evil.example")) == 200


@pytest.mark.parametrize(("headers", "status"), [(b"", 200), (b"origin: http://evil.example\r\n", 403)])
def test_who_names_no_host_is_no_browser(server, headers, status):
    """The check of a load balancer, such as HAProxy's."""
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n%s\r\n" % headers)
        assert status_of(read_all(connection)) == status


@pytest.mark.parametrize("target", [b"ftp://localhost/v1/models", b"/http://localhost/v1/models"])
def test_another_target_with_a_url_in_it_is_no_whole_url(server, target):
    assert status_of(asked(server, target, host=b"localhost")) == 404


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000", "a.localhost", "127.0.0.1"]
)
def test_addresses_and_names_of_the_server_are_taken(client, host):
    assert client.get("/v1/models", headers={"host": host}).status_code == 200


def test_a_name_that_is_allowed_is_taken(model_folder):
    with serving(model_folder, bounds={"allowed_hosts": ("Octavo.example",)}) as server, server.client() as client:
        assert client.get("/v1/models", headers={"host": "octavo.example:80"}).status_code == 200
        assert client.get("/v1/models", headers={"host": "other.example"}).status_code == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", "", "http://[", "file://"])
def test_a_page_of_another_site_can_neither_compute_nor_reset(client, origin):
    headers = {"origin": origin}
    assert client.post("/v1/completions", json=COMPLETION, headers=headers).status_code == 403
    assert client.post("/reset_prefix_cache", headers=headers).status_code == 403


def test_the_own_page_may_ask(server, client):
    headers = {"origin": server.url}
    assert client.post("/v1/completions", json=COMPLETION, headers=headers).status_code == 200
    assert client.post("/reset_prefix_cache", headers=headers).status_code == 200


def test_who_shows_the_key_may_come_from_anywhere(model_folder):
    headers = {"authorization": "Bearer secret", "host": "octavo.example", "origin": "https://chat.example"}
    with serving(model_folder, api_key="secret") as server, server.client() as client:
        assert client.post("/v1/completions", json=COMPLETION, headers=headers).status_code == 200
        assert client.post("/v1/completions", content=b"{}", headers=headers).status_code == 415


# ---- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"],
)
def test_a_body_that_a_form_could_send_is_refused(client, kind):
    headers = {} if kind is None else {"content-type": kind}
    content = json.dumps(COMPLETION).encode()
    assert client.post("/v1/completions", content=content, headers=headers).status_code == 415
    assert client.post("/v1/completions", content=iter([content]), headers=headers).status_code == 415
    if kind is not None:
        assert client.post("/reset_prefix_cache", headers=headers).status_code == 415


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/json ;x=y"])
def test_json_is_json_however_it_is_written(client, kind):
    content = json.dumps(COMPLETION).encode()
    assert client.post("/v1/completions", content=content, headers={"content-type": kind}).status_code == 200


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("zstd, gzip", 415), ("IDENTITY", 200)])
def test_a_body_that_is_compressed_is_refused_and_told_so(client, encoding, status):
    headers = {**JSON, "content-encoding": encoding}
    answer = client.post("/v1/completions", content=json.dumps(COMPLETION).encode(), headers=headers)
    assert answer.status_code == status
    if status == 415:
        assert f"content-encoding: {encoding}" in answer.json()["error"]["message"]
        assert answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"prompt": "a"} and more',
        b'{"prompt": "\xff"}',
        b'{"prompt": "a", "\xff": 1}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "other": ' + b"[" * 100_000,
        b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"prompt": "a", "logit_bias": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
        b"\x00" * 100,
        b"\xef\xbb\xbf{}",
    ],
)
def test_a_body_that_is_no_json(client, body):
    refused = client.post("/v1/completions", content=body, headers=JSON)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("body", ["[]", '"text"', "3", "null"])
def test_a_body_that_is_no_object_is_named(client, body):
    error = client.post("/v1/completions", content=body, headers=JSON).json()["error"]
    assert error["message"].startswith("the body must be a mapping, not ")


@pytest.mark.parametrize("arguments", ["[" * 50_000, "[" * 50_000 + "]" * 50_000])
def test_arguments_of_a_call_that_nobody_can_read_are_text(client, arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}], "max_tokens": 1}
    assert client.post("/v1/chat/completions", json=body).status_code != 500


NUMBERS = ["1e308", "1e400", "-1e400", "-0", "1e-400", "9" * 4000, "-" + "9" * 400, "0.1", "1" + "0" * 40, "2147483648"]
FIELDS = ["max_tokens", "n", "seed", "temperature", "top_p", "top_k", "min_p", "logprobs", "prompt_logprobs"]
FIELDS += ["repetition_penalty", "frequency_penalty", "min_tokens", "best_of"]


@pytest.mark.parametrize("field", FIELDS)
def test_absurd_numbers_are_refused_or_mean_what_they_say(client, field):
    for number in NUMBERS:
        body = f'{{"prompt": "a", "min_tokens": 0, "{field}": {number}}}'.encode()
        answer = client.post("/v1/completions", content=body, headers=JSON)
        assert answer.status_code in {200, 400}, (field, number, answer.text)


@pytest.mark.parametrize(
    "head",
    [
        b"x: " + b"a" * (1 << 17),
        b"".join(b"x-%d: y\r\n" % i for i in range(20_000)),
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: -1",
        b"content-length: 1e3",
        b"content-length: " + b"9" * 400,
        b"transfer-encoding: gzip",
        b"transfer-encoding: chunked, chunked",
        b"x\x00: y",
        b": y",
        b"x : y",
    ],
)
def test_heads_that_are_none(small_server, head):
    answer = b""
    with connect(small_server) as connection, suppress(ConnectionError):
        connection.sendall(HEAD + head + b"\r\n\r\n")
        answer = read_all(connection)
    assert not answer or status_of(answer) in {400, 501}


@pytest.mark.parametrize("framing", [b"1.1\r\ncontent-length: 5", b"1.0"])
def test_a_body_with_two_ends_is_refused_and_its_connection_closed(small_server, framing):
    """RFC 9112, 6.1: the next request on it may be the rest of this one's body."""
    body = json.dumps(COMPLETION).encode()
    with connect(small_server) as connection:
        connection.sendall(CHUNKED.replace(b"1.1", framing, 1) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) + HEALTH)
        answer = read_all(connection)
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.fixture(scope="module")
def neighbour(small_server):
    with small_server.client() as client:
        yield client


@settings(max_examples=100)
@given(raw=st.binary(max_size=300), is_body=st.booleans())
def test_bytes_without_sense_end_their_own_connection_only(small_server, neighbour, raw, is_body):
    with connect(small_server) as connection:
        connection.sendall((CHUNKED if is_body else b"") + raw)
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    assert neighbour.get("/health").status_code == 200


# ---- how it is sent --------------------------------------------------------------------------------------------------


def test_a_body_that_trickles_is_given_up(hasty_server):
    with connect(hasty_server) as connection:
        connection.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        answer = read_all(connection)
        assert status_of(answer) == 408


def test_who_still_sends_a_body_that_is_too_long_is_told(model_folder, monkeypatch):
    with serving(model_folder, bounds={"max_body_bytes": 1000}) as server:
        monkeypatch.setattr("octavo.http.exchange._LINGER_S", 60.0)
        with connect(server) as connection:
            connection.sendall(posted(b" " * (32 << 20)))
            assert status_of(read_all(connection)) == 413
        monkeypatch.setattr("octavo.http.exchange._LINGER_S", 0.1)
        with connect(server) as connection:
            connection.sendall(HEAD + b"content-length: 2000\r\n\r\n")
            assert status_of(read_all(connection)) == 413, "and its connection is closed, though nothing comes"


@pytest.mark.parametrize("offer", [b"h2c", b"websocket", b"TLS/1.0"])
def test_an_offer_of_another_protocol_is_no_news(small_server, caplog, offer):
    """Clients such as Java's offer HTTP/2 with each request."""
    with connect(small_server) as connection:
        connection.sendall(posted(COMPLETION, headers=b"connection: upgrade\r\nupgrade: " + offer + b"\r\n") + LAST)
        answer = read_all(connection)
    assert [int(part[1:4]) for part in answer.split(b"HTTP/1.1")[1:]] == [200, 200]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_pipelined_requests_are_answered_in_order_and_garbage_ends_them(small_server):
    with connect(small_server) as connection:
        connection.sendall(HEALTH + posted(COMPLETION) + HEALTH + b"\x16\x03\x01 garbage\r\n\r\n" + HEALTH)
        answer = read_all(connection)
    statuses = [int(part[1:4]) for part in answer.split(b"HTTP/1.1")[1:]]
    assert statuses == [200, 200, 200, 400]


@pytest.mark.parametrize("is_late", [False, True])
def test_an_empty_line_before_a_request_is_skipped(small_server, is_late):
    """Some clients end a body with one."""
    last = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with connect(small_server) as connection:
        connection.sendall(b"\r\n" + posted(COMPLETION) + b"\r\n")
        if is_late:
            assert connection.recv(12) == b"HTTP/1.1 200"
        connection.sendall(b"\r\n" + last)
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == 2 - is_late
    assert b"400" not in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize("method", [b"HEAD", b"OPTIONS"])
def test_what_has_no_body_ends_on_every_path(small_server, method):
    """So that the next request on the connection is answered."""
    paths = [route.path.encode() for route in make_app(small_server.server.service, is_crowded=bool).routes]
    assert b"/load" in paths
    for path in paths:
        with connect(small_server) as connection:
            connection.sendall(method + b" " + path + b" HTTP/1.1\r\nhost: localhost\r\n\r\n" + LAST)
            assert read_all(connection).endswith(b'{"status":"ok"}'), path


def test_a_body_that_turns_into_garbage_after_its_refusal(small_server, caplog):
    with connect(small_server) as connection:
        connection.sendall(CHUNKED.replace(b"application/json", b"text/plain"))
        assert status_of(connection.recv(65536)) == 415
        connection.sendall(b"this is no chunk\r\n" * 100)
        read_all(connection)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("host", [b"localhost", b"evil.example"])
@pytest.mark.parametrize("path", [b"/health", b"/v1/completions", b"/nowhere"])
def test_a_body_that_is_garbage_where_no_body_is_read(small_server, caplog, host, path):
    """The head and the garbage come as one piece, so the refusal of the garbage is sent before the answer is."""
    head = CHUNKED.replace(b"/v1/completions", path).replace(b"localhost", host)
    with connect(small_server) as connection:
        connection.sendall(head + b"ZZ\r\n")
        assert status_of(read_all(connection)) == 400
    small_server.check_nothing_is_left()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_client_that_sends_no_more_is_gone(small_server):
    gone = small_server.count_gone()
    with connect(small_server) as connection, small_server.held_engine():
        connection.sendall(posted(COMPLETION))
        small_server.wait_until_open(1)
        connection.shutdown(socket.SHUT_WR)
        small_server.wait_until_gone(gone + 1)
    small_server.check_nothing_is_left()


@pytest.mark.parametrize("said", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nhost: x\r\n"])
def test_whoever_says_nothing_whole_is_closed(hasty_server, said):
    with connect(hasty_server) as connection:
        connection.sendall(said)
        assert connection.recv(1) == b""


def test_a_second_request_that_never_ends_is_closed_too(hasty_server):
    with connect(hasty_server) as connection:
        connection.sendall(HEALTH + b"GET /hea")
        assert read_all(connection).count(b"HTTP/1.1 200") == 1


# ---- how many there are ----------------------------------------------------------------------------------------------


def test_too_many_silent_ones_keep_nobody_out(small_server):
    with ExitStack() as stack:
        for _ in range(3 * MOST):
            stack.enter_context(connect(small_server))
        with small_server.client() as client:
            assert client.get("/health").status_code == 200
        assert len(small_server.server.server_state.connections) <= MOST


def test_finding_the_idlest_is_cheap(model_folder, monkeypatch):
    """A look at all connections for each new one takes the server's time from all: milliseconds at 8,192 of them."""
    looks, is_silent = count(), Connection._is_silent.fget
    monkeypatch.setattr(Connection, "_is_silent", property(lambda self: bool(next(looks) + 1) and is_silent(self)))
    most, num_more = 320, 320
    with serving(model_folder, bounds={"most_connections": most}) as server, ExitStack() as stack:
        for _ in range(most + num_more):
            stack.enter_context(connect(server))
        with server.client() as client:
            assert client.get("/health").status_code == 200
        assert len(server.server.server_state.connections) <= most
    assert next(looks) < num_more * most / 4


def test_thousands_of_idle_ones_keep_nobody_out(model_folder):
    with serving(model_folder) as server, ExitStack() as stack:
        with ThreadPoolExecutor(32) as many:
            for idle in many.map(connect, [server] * IDLE):
                stack.enter_context(idle)
        with server.client() as client:
            assert client.post("/v1/completions", json=COMPLETION).status_code == 200


def test_health_is_told_while_all_connections_are_busy(small_server):
    admission = small_server.server.service.admission
    with ExitStack() as stack, small_server.held_engine():
        for _ in range(MOST):
            stack.enter_context(connect(small_server)).sendall(posted(COMPLETION))
        while admission.num_open < MOST:
            time.sleep(0.001)
        with small_server.client() as client:
            assert client.get("/health").status_code == 200
            refused = client.post("/v1/completions", json=COMPLETION)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    small_server.check_nothing_is_left()


def test_an_answer_that_takes_long_is_no_silence(hasty_server):
    with ExitStack() as stack:
        with hasty_server.held_engine():
            busy = stack.enter_context(connect(hasty_server))
            busy.sendall(posted(COMPLETION))
            for _ in range(2):
                with connect(hasty_server) as silent:
                    assert silent.recv(1) == b"", "the time for silence has passed"
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_a_process_that_may_open_hardly_any_files_is_refused(monkeypatch):
    """ZeroMQ ends a process that lacks its next file."""
    monkeypatch.setattr("octavo.http.connection.resource.getrlimit", lambda _: (32, 63))
    with pytest.raises(InputError, match=r"may open 63 files, .* raise the hard limit of open files \(ulimit -Hn\)"):
        open_socket(HttpConfig(port=0))


def test_no_more_than_the_process_may_have():
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        assert most_connections(HttpConfig(most_connections=100_000)) < 100_000
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
        assert most_connections(HttpConfig(most_connections=10)) == 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
