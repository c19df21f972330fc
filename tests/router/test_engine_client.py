"""What a router asks engines with: other servers may stand between, which compress answers and set cookies."""

import gzip
import json
import resource
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from octavo.http import HttpConfig, http_settings
from octavo.router import RouterConfig
from rigs.running_router import RunningRouter

ANSWER = b'{"id": "an answer"}'


class BehindAProxy(BaseHTTPRequestHandler):
    """An engine of OpenAI's API. What stands before it compresses when it may, or always, and sets cookies."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answers = {"/health": b"{}", "/v1/models": json.dumps({"data": [{"id": "model"}]}).encode()}
        self.say(200 if self.path in answers else 404, answers.get(self.path, b"{}"))

    def do_POST(self):
        if b"hang up" in self.rfile.read(int(self.headers["content-length"])):
            self.close_connection = True
            return
        self.server.cookies.append(self.headers["cookie"])
        self.say(self.server.status if self.path.endswith("/completions") else 404, ANSWER)

    def say(self, status, body):
        is_asked = "gzip" in (self.headers["accept-encoding"] or "")
        is_compressed = is_asked or (self.server.always and self.command == "POST")
        body = gzip.compress(body) if is_compressed else body
        self.send_response(status)
        self.send_header("content-type", "application/json")
        if is_compressed:
            self.send_header("content-encoding", "gzip")
        self.send_header("set-cookie", "client=1; Path=/")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Engine:
    def __init__(self, *, always=False, status=200):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), BehindAProxy)
        self.server.always, self.server.status, self.server.cookies = always, status, []
        self._thread = Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self):
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.mark.parametrize("always", [False, True], ids=["when it may", "always"])
def test_an_answer_is_readable_whatever_compresses_it_and_cookies_go_to_nobody(running, always):
    engine = running(Engine(always=always))
    assert [answer.content for answer in ask_twice(engine, running)] == [ANSWER] * 2
    assert set(engine.server.cookies) == {None}


@pytest.mark.parametrize(("status", "told"), [(599, 599), (600, 502), (999, 502)])
def test_a_status_that_http_has_not_is_a_bad_gateway(running, caplog, status, told):
    answers = ask_twice(running(Engine(status=status)), running)
    assert [(answer.status_code, answer.content) for answer in answers] == [(told, ANSWER)] * 2
    assert not [record for record in caplog.records if record.exc_info]


def test_a_request_that_breaks_off_takes_no_engine_from_others(running):
    answers = ask(running(Engine()), running, ["Hello", "hang up", "Hello", "hang up", "Hello"])
    assert [answer.status_code for answer in answers] == [200, 502, 200, 502, 200]


def ask_twice(engine, running):
    return ask(engine, running, [[5], [5]])


def ask(engine, running, prompts):
    router = running(RunningRouter([f"http://127.0.0.1:{engine.server.server_port}"]))
    router.wait_until(lambda seen: seen["engines"][0]["is_reachable"])
    with closing(router.client()) as client:
        return [client.post("/v1/completions", json={"model": "model", "prompt": prompt}) for prompt in prompts]


@pytest.mark.parametrize(("config", "most"), [(RouterConfig(engines=("http://a:1",)), 372), (HttpConfig(), 744)])
def test_each_connection_of_a_router_leaves_a_file_for_the_engines(monkeypatch, config, most):
    """Of 1,000 files: where clients took them all, no engine could be reached, and each was lost."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    spare = 32  # for those that ask for its health
    assert http_settings(config)["limit_concurrency"] == most + spare
