"""The end of a server: streams end with a reason, nobody new comes in, and what was on its way down is written."""

import json
import socket
import threading

import httpx
import pytest

from rigs.running_server import ENDLESS, LONG_CONTEXT, RunningServer

LONG = {"prompt": "a", **ENDLESS}
UNFINISHED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)


@pytest.fixture
def ending(model_folder):
    server = RunningServer(model_folder, max_model_len=LONG_CONTEXT)
    yield server
    server.close()


def address_of(server):
    url = httpx.URL(server.url)
    return url.host, url.port


def events_of(lines):
    return [json.loads(line.removeprefix("data: ")) for line in lines if line and line != "data: [DONE]"]


def test_open_streams_end_with_a_reason(ending):
    with ending.client() as client, client.stream("POST", "/v1/completions", json=LONG) as response:
        lines = response.iter_lines()
        next(lines)
        ending.ask_to_end()
        rest = list(lines)
    assert [line for line in rest if line][-1] == "data: [DONE]"
    assert events_of(rest)[-1]["choices"][0]["finish_reason"] == "abort"


def test_a_whole_answer_is_whole_or_none(ending):
    codes = []

    def ask():
        with ending.client() as client:
            codes.append(client.post("/v1/completions", json={**LONG, "stream": False}).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    ending.wait_until_open(1)
    ending.ask_to_end()
    asking.join()
    assert codes == [503]


def test_what_the_engine_has_not_got_yet_is_refused(ending, caplog):
    """The rest of its body never comes."""
    with socket.create_connection(address_of(ending)) as line:
        line.sendall(UNFINISHED)
        ending.wait_until_open(1)
        ending.ask_to_end()
        answer = line.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the server is shutting down" in answer
    assert [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []


@pytest.mark.parametrize("path", [b"/v1/completions", b"/tokenize", b"/detokenize"])
def test_who_asks_twice_waits_for_no_body(model_folder, path):
    server = RunningServer(model_folder, bounds={"shutdown_timeout_s": 3600, "body_timeout_s": 3600})
    with socket.create_connection(address_of(server)) as line:
        line.sendall(UNFINISHED.replace(b"/v1/completions", path))
        server.wait_until_open(1)
        server.server.handle_exit(2, None)
        server.server.handle_exit(2, None)
        answer = line.makefile("rb").read()
    server.close()
    assert answer.startswith(b"HTTP/1.1 503 ")


def test_requests_get_time_to_end(model_folder):
    server = RunningServer(model_folder, bounds={"shutdown_timeout_s": 60})
    body = {**LONG, "max_tokens": 40}
    with server.client() as client, client.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        server.ask_to_end()
        rest = list(lines)
    server.close()
    assert events_of(rest)[-1]["choices"][0]["finish_reason"] == "length"


def test_who_asks_twice_does_not_wait(model_folder):
    server = RunningServer(model_folder, max_model_len=LONG_CONTEXT, bounds={"shutdown_timeout_s": 3600})
    with server.client() as client, client.stream("POST", "/v1/completions", json=LONG) as response:
        lines = response.iter_lines()
        next(lines)
        server.server.handle_exit(2, None)
        server.server.handle_exit(2, None)
        rest = list(lines)
    server.close()
    assert events_of(rest)[-1]["choices"][0]["finish_reason"] == "abort"


def test_nobody_comes_in_any_more(ending):
    """Over a connection that is open already; new ones are refused by the system."""
    ending.server.service.admission.close()
    with ending.client() as client:
        for response in (client.post("/v1/completions", json={"prompt": "a"}), client.get("/health")):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "10"
            assert response.json()["error"]["type"] == "server_error"


def test_a_dead_engine(model_folder, monkeypatch):
    """What kills the engine's thread ends its streams; the server says so until it ends itself, at its next tick."""
    server = RunningServer(model_folder, max_model_len=LONG_CONTEXT)

    async def tick(_):
        return server.server.should_exit

    monkeypatch.setattr(server.server, "on_tick", tick)  # it does not end before it was asked

    class DeadError(BaseException):
        pass

    def die():
        raise DeadError

    with server.client() as client:
        with client.stream("POST", "/v1/completions", json=LONG) as response:
            lines = response.iter_lines()
            next(lines)
            server.ask(lambda engine: setattr(engine, "step", die))
            rest = list(lines)
        assert [line for line in rest if line][-1] == "data: [DONE]"
        assert "DeadError" in events_of(rest)[-1]["error"]["message"]
        for response in (client.get("/health"), client.post("/v1/completions", json=LONG), client.get("/state")):
            assert response.status_code == 503
        metrics = client.get("/metrics")
        assert metrics.status_code == 200
        assert 'octavo_engine_up{model="tiny"} 0.0' in metrics.text
    server.close()


def test_a_step_that_fails_ends_its_requests_only(ending, monkeypatch):
    runner = ending.engine.engine.runner
    body = {"prompt": "a", "max_tokens": 4}

    def fail(batch):
        raise RuntimeError("out of luck")

    with ending.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "run", fail)
            whole = client.post("/v1/completions", json=body)
            streamed = client.post("/v1/completions", json={**body, "stream": True})
        assert whole.status_code == 500
        assert "out of luck" in whole.json()["error"]["message"]
        assert streamed.status_code == 200
        assert "out of luck" in events_of(streamed.text.splitlines())[-1]["error"]["message"]
        assert client.post("/v1/completions", json=body).status_code == 200
    ending.check_nothing_is_left()
