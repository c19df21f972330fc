"""Two real vLLM engines of a hybrid behind `octavo route`: it learns their plans and knows what each resumes."""

import base64
import io
import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import zmq
from api_server import Server, starting
from openai.types import CompletionUsage
from PIL import Image
from plugin_process import make_image_model, make_model

pytest.importorskip("starlette")

from rigs.running_router import RunningRouter

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

NUM_REQUESTS = 10


def start(stack: ExitStack, model: str, folder: Path, *more: str) -> tuple[Server, str]:
    """An engine with events, which is not ready yet; how the router is told of it."""
    folder.mkdir()
    events, replay = (f"ipc://{folder}/{name}" for name in ("events", "replay"))
    config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events, "replay_endpoint": replay}
    options = ("--kv-events-config", json.dumps(config), "--prefix-caching-hash-algo", "sha256_cbor")
    server = stack.enter_context(starting(model, folder, *options, "--enable-prompt-tokens-details", *more))
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
            resumed.append(cached(answer.usage))
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


def test_images_are_known_by_their_digests(tmp_path: Path) -> None:
    """The engine tells the digest of each image, or the name that the client gave it, and how many tokens it takes."""
    template = tmp_path / "template.jinja"
    template.write_text("{% for one in messages %}w10 {{ one['content'] }} w11 {% endfor %}")
    model = make_image_model(tmp_path / "model")
    with ExitStack() as stack:
        options = ("--enable-scale-out", "--chat-template", str(template))
        server, engine = start(stack, model, tmp_path / "a", *options)
        server.wait_until_ready()
        router = RunningRouter([engine])
        stack.callback(router.close)
        router.wait_until(lambda seen: all(engine["is_reachable"] for engine in seen["engines"]))
        client = stack.enter_context(openai.OpenAI(base_url=f"{router.url}/v1", api_key="any", max_retries=0))
        asked = [("red", None), ("red", None), ("blue", None), ("red", "pic"), ("red", "pic"), ("blue", "pic")]
        resumed = []
        for colour, name in asked:
            answer = client.chat.completions.create(model="tiny", messages=[seen_image(colour, name)], max_tokens=4)
            (decision,) = router.look()["decisions"][-1:]
            assert decision["num_tokens"] == answer.usage.prompt_tokens
            resumed.append(cached(answer.usage))
            assert decision["choice"]["resumed_tokens"] == resumed[-1], (colour, name, router.look())
            settle(router, (engine,))
        assert [bool(tokens) for tokens in resumed] == [False, True, False, False, True, True]
        told = client.responses.create(model="tiny", input="w5 w6 w7", max_output_tokens=16)
        assert router.look()["decisions"][-1]["num_tokens"] == told.usage.input_tokens


def seen_image(colour: str, name: str | None) -> dict[str, Any]:
    """A message about an image, with so many words that several blocks begin with it."""
    written = io.BytesIO()
    Image.new("RGB", (28, 28), colour).save(written, "png")
    part = {"url": f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"}
    image = {"type": "image_url", "image_url": part} | ({} if name is None else {"uuid": name})
    return {"role": "user", "content": [image, {"type": "text", "text": " ".join(f"w{n}" for n in range(20, 420))}]}


def cached(usage: CompletionUsage) -> int:
    details = usage.prompt_tokens_details
    return (details.cached_tokens or 0) if details else 0


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
