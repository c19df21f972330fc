"""`octavo chat`, `bench serve`, `warm` and `why` against servers that answer anything: each complains in a line."""

import json
import socketserver
import sys
import threading
from contextlib import contextmanager, suppress
from itertools import chain, repeat

import httpx
import pytest

from octavo.cli.commands.chat import Conversation
from octavo.errors import InputError

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

MODELS = b'{"data": [{"id": "m"}]}'
DONE = b"data: [DONE]\n\n"


def answer(body, status=b"200 OK", kind=b"application/json", others=b""):
    head = b"HTTP/1.1 " + status + b"\r\ncontent-type: " + kind + b"\r\n" + others
    return head + b"connection: close\r\n\r\n" + body  # as long as the connection is


def event(text="hi", *, usage=None, **others):
    choice = {"delta": {"content": text}, "text": text, **others}
    return b"data: " + json.dumps({"choices": [choice], "usage": usage, "error": None}).encode() + b"\n\n"


def endless(status):
    return lambda: chain([answer(b"data: ", status)], repeat(b"x" * 65536))


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        length, line = 0, self.rfile.readline()
        is_models = line.startswith(b"GET /v1/models ")
        while line.strip():
            line = self.rfile.readline()
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.rfile.read(length)
        pieces = answer(MODELS) if is_models and not self.server.is_odd_about_models else self.server.pieces
        with suppress(ConnectionError):  # the command has read enough
            self.wfile.writelines(pieces() if callable(pieces) else [pieces])


@contextmanager
def odd_server(pieces, *, about_models=False):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.pieces, server.is_odd_about_models = pieces, about_models
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def told_by(octavo, tmp_path, monkeypatch):
    """What each command says of a server."""
    (tmp_path / "prompts").write_text('"hello"\n')

    def tell(command, pieces):
        lines = iter(["hello", "/quit"])
        monkeypatch.setattr("builtins.input", lambda _: next(lines))
        with odd_server(pieces, about_models=command == "models") as url:
            arguments = {
                "chat": ("chat", url, "--max-tokens", 8),
                "models": ("chat", url),
                "bench": ("bench", "serve", url, "--conversations", 1, "--turns", 1),
                "warm": ("warm", url, tmp_path / "prompts"),
                "why": ("why", "cmpl-1", "--url", url),
            }[command]
            ran = octavo(*arguments)
        told = ran.out + ran.err
        assert "\x1b[3" not in ran.out
        return told

    return tell


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (answer(event()), "broke off"),
        (answer(event() + b'data: {"choi'), "truncated"),
        (answer(b"<html>hello</html>", kind=b"text/html"), "is no stream of events"),
        (answer(b'{"choices": [{"message": {"content": "hi"}}]}'), "is no stream of events"),
        (answer(b"", b"204 No Content"), "is no stream of events"),
        (endless(b"200 OK"), "a line of more than 16,777,216 bytes"),
        (lambda: chain([answer(b"")], repeat(event())), "events, and the answer has not ended"),
        (lambda: chain([answer(event() + DONE)], repeat(DONE)), "events, and the answer has not ended"),
        (lambda: chain([answer(b"")], repeat(b": still here" * 4096 + b"\n")), "268,435,456 bytes, and the answer"),
    ],
)
@pytest.mark.parametrize("command", ["chat", "bench"])
def test_streams_that_are_none(told_by, command, pieces, told):
    assert told in " ".join(told_by(command, pieces).split())


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1", "a SOCKS proxy is set (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY)"),
        ("HTTP_PROXY", "nonsense://127.0.0.1:1", "the proxy in ALL_PROXY, HTTP_PROXY or HTTPS_PROXY is none"),
        ("HTTPS_PROXY", "http://[::1", "the proxy in ALL_PROXY, HTTP_PROXY or HTTPS_PROXY is none: Invalid port"),
        ("SSL_CERT_FILE", "/nobody", "no certificates in SSL_CERT_FILE or SSL_CERT_DIR: [Errno 2] No such file"),
    ],
)
@pytest.mark.parametrize("command", ["models", "bench", "warm", "why"])
def test_what_the_environment_names_and_nobody_can_use(told_by, monkeypatch, command, variable, value, told):
    monkeypatch.setitem(sys.modules, "socksio", None)  # it is not installed
    monkeypatch.setenv(variable, value)
    assert told in " ".join(told_by(command, answer(MODELS)).split())


@pytest.mark.parametrize("command", [("chat",), ("bench", "serve"), ("why", "cmpl-1", "--url")])
def test_a_server_that_does_not_run(octavo, command):
    with socketserver.TCPServer(("127.0.0.1", 0), None, bind_and_activate=True) as server:
        port = server.server_address[1]
    ran = octavo(*command, f"http://127.0.0.1:{port}")
    assert (ran.code, ran.err.strip().endswith("start the server first, or give the address of the one that runs")) == (
        2,
        True,
    )


def test_an_answer_of_any_length_has_a_bound_too(monkeypatch):
    monkeypatch.setattr("octavo.cli.client.answers._MOST_EVENTS", 1000)  # which takes some ten seconds
    with (
        odd_server(lambda: chain([answer(b"")], repeat(event("")))) as url,
        httpx.Client(base_url=url, timeout=300) as client,
    ):
        conversation = Conversation(client, "m", None, {})
        with pytest.raises(InputError, match="1,000 events, and the answer has not ended"):
            list(conversation.say("hello"))


@pytest.mark.parametrize("command", ["chat", "models", "bench", "warm", "why"])
@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (answer(b"", b"307 Elsewhere", others=b"location: http://b/v1\r\n"), "it sends requests to http://b/v1: give"),
        (answer(b"<b>\x1b[31mno", b"502 Bad Gateway", kind=b"text/html"), "502: <b>"),
        (endless(b"500 Oh"), "500: data: xxx"),
    ],
)
def test_refusals(told_by, command, pieces, told):
    assert told in " ".join(told_by(command, pieces).split())


@pytest.mark.parametrize(
    "pieces",
    [
        answer(event() + DONE, kind=b"text/event-stream; charset=idna"),
        answer(event() + DONE, kind=b"text/event-stream; charset=rot13"),
        answer(event(finish_reason="stop")),
    ],
)
@pytest.mark.parametrize("command", ["chat", "bench"])
def test_answers_that_are_whole(told_by, command, pieces):
    told = told_by(command, pieces)
    assert "octavo: " not in told
    assert "hi\n" in told or "1 in " in told


@pytest.mark.parametrize("token_ids", [5, "abc", {"a": 1}, [None]])
def test_a_benchmark_of_token_ids_that_are_none(told_by, token_ids):
    assert "token_ids that are not a list of numbers" in told_by("bench", answer(event(token_ids=token_ids) + DONE))


def test_a_benchmark_of_counts_and_media_that_are_none(told_by):
    details = {"cached_tokens": 10**30, "cached_tokens_by_medium": {"[/x]\x1b[31m": 2, "disk": -1}}
    usage = {"prompt_tokens": 10, "completion_tokens": -1, "prompt_tokens_details": details}
    assert "([/x][31m 20.0%, disk 0.0%)" in told_by("bench", answer(event(usage=usage) + DONE))


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"usage": {"prompt_tokens": Infinity}}', b'{"usage": {"prompt_tokens": -4}}', b"<html>"]
)
def test_warm_answers_without_a_count(told_by, body):
    assert "does not say how many tokens the prompt has" in told_by("warm", answer(body))


@pytest.mark.parametrize("body", [b"[" * 100_000, b"<html>", b"\xff"])
@pytest.mark.parametrize(("command", "told"), [("models", "names no model"), ("why", "does not say why")])
def test_bodies_that_are_no_json(told_by, command, told, body):
    assert told in told_by(command, answer(body, kind=b"application/json; charset=rot13"))


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "GET /why/cmpl-1: not found"}}',  # octavo route
        b'{"detail": "Not Found"}',  # vLLM
    ],
)
def test_a_server_that_keeps_no_records_is_told_from_one_that_has_forgotten(octavo, body):
    with odd_server(answer(body, b"404 Not Found")) as url:
        ran = octavo("why", "cmpl-1", "--url", url)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "behind a router, ask the one that the answer's x-octavo-engine names; of vLLM, give its log" in ran.err


def test_a_request_that_a_server_has_forgotten_has_no_other_remedy(octavo):
    with odd_server(
        answer(b'{"error": {"message": "no request \'cmpl-1\' has started of late"}}', b"404 Not Found")
    ) as url:
        ran = octavo("why", "cmpl-1", "--url", url)
    assert ran.err == f"octavo: {url} answers 404: no request 'cmpl-1' has started of late\n"
