"""KV events from one thread to another over loopback: publish, encode, send, receive, decode; beside vLLM's publisher
and classes where vLLM is installed.

    python benchmarks/bench_events_pipe.py [--blocks 256] [--batches 300] [--rounds 7]

vLLM has no subscriber, so its side reads with the plainest one: `recv_multipart` and its own decoder, without looking
at sequence numbers. Both sides take turns, round after round, and the best round counts. Its publisher has no way to
leave tokens out, so "without" compares our batches without tokens with its batches with them; the same batches without
tokens through its publisher are shown too. A ratio above 1 is faster than vLLM.
"""

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

from octavo.events import Delivered, PublisherConfig, SourceConfig, Subscriber, SubscriberConfig, ZmqPublisher, messages

BLOCK_SIZE = 16
PATIENCE_MS = 20_000
Pipe = Callable[[list[Any]], None]
"""Publishes the batches and reads them all."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=256)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    pipes: dict[str, tuple[Any, Callable[[], Any]]] = {"octavo": (messages, octavo_pipe)}
    try:
        from vllm.distributed import kv_events
    except ImportError as e:
        print(f"vLLM is left out: {e}")
    else:
        pipes["vllm"] = (kv_events, lambda: vllm_pipe(kv_events))
    best = measure(pipes, args)
    print(f"{args.batches} batches of {args.blocks} blocks of {BLOCK_SIZE} tokens, best of {args.rounds} rounds")
    print(f"{'':24}{'blocks/s':>14}")
    for (whose, name), seconds in best.items():
        print(f"{whose + ', ' + name:24}{args.batches * args.blocks / seconds:14,.0f}")
    if "vllm" in pipes:
        vllm = best["vllm", "with tokens"]
        print(f"with tokens:    {vllm / best['octavo', 'with tokens']:.2f} x vLLM (target 1)")
        print(f"without tokens: {vllm / best['octavo', 'without tokens']:.2f} x vLLM, which sends them (target 3)")
        print(
            f"without tokens: {best['vllm', 'without tokens'] / best['octavo', 'without tokens']:.2f} x vLLM, "
            "if it could leave them out"
        )


def measure(pipes: dict[str, tuple[Any, Callable[[], Any]]], args: argparse.Namespace) -> dict[tuple[str, str], float]:
    best: dict[tuple[str, str], float] = {}
    work = {
        (whose, name): batches(classes, args.batches, args.blocks, with_tokens=name == "with tokens")
        for whose, (classes, _) in pipes.items()
        for name in ("with tokens", "without tokens")
    }
    for _ in range(args.rounds):
        for (whose, name), published in work.items():
            with pipes[whose][1]() as pipe:
                pipe(published[:3])
                gc.collect()
                start = time.perf_counter()
                pipe(published)
                seconds = time.perf_counter() - start
            best[whose, name] = min(best.get((whose, name), seconds), seconds)
    return best


def batches(classes: Any, num: int, num_blocks: int, *, with_tokens: bool) -> list[Any]:
    rng = random.Random(0)
    made = []
    for _ in range(num):
        event = classes.BlockStored(
            block_hashes=[rng.getrandbits(64) for _ in range(num_blocks)],
            parent_block_hash=rng.getrandbits(64),
            token_ids=[rng.randrange(150_000) for _ in range(num_blocks * BLOCK_SIZE)] if with_tokens else [],
            block_size=BLOCK_SIZE,
            lora_id=None,
            medium="GPU",
            lora_name=None,
            group_idx=0,
            kv_cache_spec_kind="full_attention",
        )
        made.append(classes.KVEventBatch(ts=0.0, events=[event]))
    return made


@contextmanager
def octavo_pipe() -> Iterator[Pipe]:
    config = PublisherConfig(endpoint="tcp://127.0.0.1:0", max_queued_bytes=1 << 30)
    with ZmqPublisher(config) as publisher:
        source = SourceConfig(endpoint=publisher.endpoint)
        with Subscriber(SubscriberConfig(sources=(source,))) as subscriber:
            while subscriber.poll(0.01) is None:
                publisher.publish(messages.KVEventBatch(ts=0.0, events=[]))
            while subscriber.poll(0.05) is not None:
                pass

            def pipe(published: list[Any]) -> None:
                for batch in published:
                    publisher.publish(batch)
                for _ in published:
                    assert isinstance(subscriber.poll(20), Delivered)

            yield pipe


@contextmanager
def vllm_pipe(kv_events: Any) -> Iterator[Pipe]:
    context = zmq.Context()
    sub = context.socket(zmq.SUB)
    sub.set_hwm(100_000)
    sub.subscribe(b"")
    port = sub.bind_to_random_port("tcp://127.0.0.1")
    publisher = kv_events.ZmqEventPublisher(0, endpoint=f"tcp://127.0.0.1:{port}")
    decoder = msgspec.msgpack.Decoder(kv_events.KVEventBatch)
    while not sub.poll(10):
        publisher.publish(kv_events.KVEventBatch(ts=0.0, events=[]))
    while sub.poll(50):
        sub.recv_multipart()

    def pipe(published: list[Any]) -> None:
        for batch in published:
            publisher.publish(batch)
        for _ in published:
            if not sub.poll(0):
                assert sub.poll(PATIENCE_MS)
            decoder.decode(sub.recv_multipart()[2])

    yield pipe
    publisher.shutdown()
    context.destroy(linger=0)


if __name__ == "__main__":
    main()
