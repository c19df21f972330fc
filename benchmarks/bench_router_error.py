"""How wrong a router's view of its engines is, on a quiet fleet and on a busy one.

    python benchmarks/bench_router_error.py [--models llama gemma3 qwen3_next] [--clients 12] [--requests 240]

Three embedded engines of a tiny model behind `octavo route`, all on this machine. Conversations, most of which begin
with one of four documents, go on turn by turn. Each answer tells what the router expected to be resumed
(`x-octavo-expected`) and what was (`cached_tokens` of its usage). The quiet fleet gets one request at a time, and the
router hears of what it did before the next; the busy one gets as many as there are clients, on engines with room for
all conversations, and on engines with room for a few.

exact     requests of which as much was resumed as the router expected
error     the mean distance between the two, of the prompts' tokens
bias      the mean of what was expected beyond what was resumed; below 0, more was resumed
resumed   of all prompt tokens
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from octavo.engine import save_tiny_model

sys.path.append(str(Path(__file__).parents[1] / "tests" / "lib"))
from rigs.running_router import RoutedEngine, RunningRouter
from rigs.running_server import MODEL

NUM_ENGINES, NUM_DOCUMENTS = 3, 4
DOCUMENT, QUESTION, ANSWER, TURNS = 160, (8, 40), 8, 5
"""Tokens of a document, of a question from and to, and of an answer; and turns of a conversation."""
ROOM = 32 << 20
"""Device memory of an engine for all conversations."""
LITTLE_ROOM = {"llama": 640 << 10, "gemma3": 1 << 20, "qwen3_next": 384 << 10}
"""By model: that for a few."""


class Served(NamedTuple):
    num_tokens: int
    expected: int
    resumed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=LITTLE_ROOM, default=list(LITTLE_ROOM))
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--requests", type=int, default=240)
    args = parser.parse_args()
    print(f"{'':30}{'exact':>8}{'error':>8}{'bias':>8}{'resumed':>9}")
    for model in args.models:
        for load, room, num_clients in (
            ("quiet", ROOM, 1),
            ("busy", ROOM, args.clients),
            ("busy, little room", LITTLE_ROOM[model], args.clients),
        ):
            show(f"{model}, {load}", serve(model, room, num_clients, args.requests))


def show(name: str, served: list[Served]) -> None:
    tokens = sum(one.num_tokens for one in served)
    exact = sum(one.expected == one.resumed for one in served) / len(served)
    error = sum(abs(one.expected - one.resumed) for one in served) / tokens
    bias = sum(one.expected - one.resumed for one in served) / tokens
    resumed = sum(one.resumed for one in served) / tokens
    print(f"{name:30}{exact:8.1%}{error:8.2%}{bias:8.2%}{resumed:9.1%}", flush=True)


def serve(model: str, room: int, num_clients: int, num_requests: int) -> list[Served]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / model
        save_tiny_model(model, folder)
        engines = [
            stack.enter_context(closing(RoutedEngine(folder, device_memory_bytes=room))) for _ in range(NUM_ENGINES)
        ]
        router = stack.enter_context(closing(RunningRouter([engine.url for engine in engines])))
        router.wait_until_known(NUM_ENGINES)
        client = stack.enter_context(router.client())
        if num_clients == 1:
            served = []
            for one in conversations(client, seed=0, count=num_requests):
                served.append(one)
                router.wait_until_told(engines)
            return served
        threads = stack.enter_context(ThreadPoolExecutor(num_clients))
        each = num_requests // num_clients
        parts = [threads.submit(list, conversations(client, seed=seed, count=each)) for seed in range(num_clients)]
        return [one for part in parts for one in part.result()]


def conversations(client: httpx.Client, *, seed: int, count: int) -> Iterator[Served]:
    """One turn after the other, each a request, until there were so many."""
    rng, documents = random.Random(seed), random.Random("documents")
    stems = [tokens(documents, DOCUMENT) for _ in range(NUM_DOCUMENTS)]
    said: list[int] = []
    for turn in range(count):
        if turn % TURNS == 0:
            said = list(rng.choice(stems)) if rng.random() < 0.8 else tokens(rng, DOCUMENT)
        said += tokens(rng, rng.randint(*QUESTION))
        body: dict[str, Any] = {"model": MODEL, "prompt": said, "max_tokens": ANSWER, "temperature": 0}
        answer = client.post("/v1/completions", json=body | {"ignore_eos": True})
        answer.raise_for_status()
        cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        yield Served(len(said), int(answer.headers["x-octavo-expected"]), cached)
        said += tokens(rng, ANSWER)  # in the place of what was answered, which is text


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(5, 250) for _ in range(count)]


if __name__ == "__main__":
    main()
