"""Two real vLLM engines of a hybrid behind `octavo route`: it learns their plans and knows what each resumes."""

import json
import random
from contextlib import ExitStack
from pathlib import Path

import openai
import pytest
import zmq
from api_server import Server, starting
from plugin_process import make_model

pytest.importorskip("starlette")

from rigs.running_router import RunningRouter

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

NUM_REQUESTS = 10


def start(stack: ExitStack, model: str, folder: Path) -> tuple[Server, str]:
    """An engine with events, which is not ready yet; how the router is told of it."""
    folder.mkdir()
    events, replay = (f"ipc://{folder}/{name}" for name in ("events", "replay"))
    config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events, "replay_endpoint": replay}
    options = ("--kv-events-config", json.dumps(config), "--prefix-caching-hash-algo", "sha256_cbor")
    server = stack.enter_context(starting(model, folder, *options, "--enable-prompt-tokens-details"))
    return server, f"{server.url},events={events},replay={replay}"


@pytest.mark.parametrize("family", ["gemma3"])
def test_predicted_and_resumed_tokens_agree(family: str, tmp_path: Path) -> None:
    model = make_model(family, tmp_path / "model")
    with ExitStack() as stack:
        servers, engines = zip(*(start(stack, model, tmp_path / name) for name in "ab"), strict=True)
        for server in servers:
            server.wait_until_ready()
        router = RunningRouter(engines)
        stack.callback(router.close)
        router.wait_until(lambda seen: all(engine["is_reachable"] for engine in seen["engines"]))
        client = stack.enter_context(openai.OpenAI(base_url=f"{router.url}/v1", api_key="any", max_retries=0))
        assert [one.id for one in client.models.list()] == ["tiny"]
        rng = random.Random(0)
        stems = [[rng.randrange(4, 512) for _ in range(600)] for _ in range(2)]
        resumed = []
        for number in range(NUM_REQUESTS):
            prompt = [*stems[number % 2][: rng.randrange(300, 600)], *[7] * rng.randrange(40)]
            answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=4, temperature=0)
            (decision,) = router.look()["decisions"][-1:]
            assert decision["num_tokens"] == len(prompt) == answer.usage.prompt_tokens
            details = answer.usage.prompt_tokens_details
            resumed.append(details.cached_tokens if details else 0)
            assert decision["choice"]["resumed_tokens"] == resumed[-1], (number, router.look())
            settle(router, engines)
        assert sum(resumed) > 0
        seen = router.look()
        assert all(engine["is_at_most"] and not engine["problem"] for engine in seen["engines"] if engine["num_blocks"])
        chat = [{"role": "user", "content": "w5 w6"}]
        with pytest.raises(openai.BadRequestError, match="chat template"):
            client.chat.completions.create(model="tiny", messages=chat)
        told = client.completions.create(model="tiny", prompt="w5 w6 w7", max_tokens=2)
        assert router.look()["decisions"][-1]["num_tokens"] == told.usage.prompt_tokens


def settle(router: RunningRouter, engines: tuple[str, ...]) -> None:
    """Until the router has taken in what the engines have published. Their replay endpoints tell how much that is."""
    told = {engine.split(",")[0].removeprefix("http://"): count_published(engine) for engine in engines}
    router.wait_until(lambda seen: all(engine["event_batches"] >= told[engine["name"]] for engine in seen["engines"]))


def count_published(engine: str) -> int:
    context = zmq.Context.instance()
    with context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.RCVTIMEO, 20_000)
        socket.connect(engine.partition("replay=")[2])
        socket.send_multipart((b"", bytes(8)))
        count = 0
        while (sequence := socket.recv_multipart()[-2]) != b"\xff" * 8:
            count = int.from_bytes(sequence, "big") + 1
        return count
