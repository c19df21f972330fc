"""A server like vLLM's, with two data-parallel ranks and a LoRA adapter, whose events come from the test."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo.events import external_hashes
from octavo.hashing import BlockHasher, RequestIdentity
from rigs.publishing_engine import BLOCK_SIZE, TOKENS, WITH_STATE, WITHOUT_STATE, Publishing, stored
from rigs.running_router import RunningRouter

MODELS = [{"id": "m"}, {"id": "adapter", "root": "/adapters/one", "parent": "m"}]
ADAPTED = external_hashes(
    BlockHasher(hash_block_size=BLOCK_SIZE, algorithm="sha256_cbor", seed="0").hash_tokens(
        TOKENS, RequestIdentity(lora_name="adapter", lora_path="/adapters/one")
    )
)


class LikeVllm:
    """Answers what a router asks, and remembers where requests were to go."""

    def __init__(self, models=MODELS):
        self.ranks = ranks = []

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer(
                    {"data": models} if self.path == "/v1/models" else {}, 404 * (self.path == "/engine") or 200
                )

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                if self.path.endswith("/render"):
                    self.close_connection = True  # without an answer: it does not know the path
                else:
                    ranks.append(self.headers["x-data-parallel-rank"])
                    self.answer({}, 200)

            def answer(self, message, status):
                body = json.dumps(message).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def engine(running):
    return running(LikeVllm())


def publish(running, folder, *held, ranks=None):
    """Publishers of several ranks; the options that name them."""
    events, replay = f"ipc://{folder}/e", f"ipc://{folder}/r"
    for rank, own in zip(ranks or range(len(held)), held, strict=True):
        running(Publishing(own, endpoint=events, replay=replay, rank=rank))
    return f"events={events},replay={replay}"


def decide(router, model="m"):
    with router.client() as client:
        body = {"model": model, "prompt": [*TOKENS, *[5] * 8], "max_tokens": 1}
        assert client.post("/v1/completions", json=body).status_code == 200
    choice = router.look()["decisions"][-1]["choice"]
    return choice["engine"].rpartition("/")[2], choice["resumed_tokens"]


def test_a_request_goes_to_the_rank_that_can_resume_it(running, engine, tmp_path):
    options = publish(running, tmp_path, WITHOUT_STATE, WITH_STATE)
    router = running(RunningRouter([f"{engine.url},ranks=2,{options}"]))
    router.wait_until_known(2)
    assert decide(router) == ("1", 512)
    assert engine.ranks == ["1"]


def test_an_adapters_blocks_are_found_by_its_name_and_path(running, engine, tmp_path):
    adapted = [stored(ADAPTED[:8], 0, "full_attention"), stored([ADAPTED[7]], 1, "mamba")]
    options = publish(running, tmp_path, [*WITH_STATE, *adapted])
    router = running(RunningRouter([f"{engine.url},{options}"]))
    router.wait_until_known(1)
    assert decide(router, "adapter")[1] == 8 * BLOCK_SIZE
    assert decide(router)[1] == 512
    assert engine.ranks == [None, None]


def test_requests_go_to_the_engines_that_have_their_model_or_adapter(running, engine):
    other = running(LikeVllm([{"id": "m"}, {"id": "other", "parent": "m"}]))
    router = running(RunningRouter([engine.url, other.url]))
    router.wait_until(lambda seen: all(one["is_reachable"] for one in seen["engines"]))
    for model, has_it in {"adapter": engine, "other": other}.items():
        assert {decide(router, model)[0] for _ in range(4)} == {has_it.url.removeprefix("http://")}
    with router.client() as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["adapter", "m", "other"]


def test_events_of_a_rank_that_nobody_named_are_refused(running, engine, tmp_path):
    publish(running, tmp_path, WITH_STATE, ranks=[1])
    router = running(RunningRouter([f"{engine.url},events=ipc://{tmp_path}/e_dp1,replay=ipc://{tmp_path}/r_dp1"]))
    seen = router.wait_until(lambda seen: "rank 1" in seen["engines"][0]["problem"])
    assert "ranks=NUMBER" in seen["engines"][0]["problem"]
    assert decide(router)[1] == 0
