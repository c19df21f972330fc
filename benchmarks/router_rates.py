"""How fast routers take in what engines tell, and decide, for `bench_router.py --part ingest` and `--part decide`.

decode, index   one engine's batches from bytes into the index, in full and skimmed of tokens; the best of some rounds
over a socket   the same from the first send until the last prompt is known
decide          CPU time for a prompt of 4,096 blocks of which each engine has another beginning: the worst case; in one
                row the device has the first third of it, memory has two thirds, and disk all; in another one a store
                that all share has it in place of disks
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import zmq

from octavo.events import (
    BlockStored,
    Delivered,
    ExternalHash,
    KVEventBatch,
    PublishedPlan,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    decode_batch,
    encode_batch,
    encode_sequence,
    external_hashes,
    skim_batch,
)
from octavo.hashing import PLAIN, BlockHasher
from octavo.ids import GroupIdx
from octavo.router import FleetIndex, Indexes, Placement
from octavo.specs import CacheDType, FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec

BLOCK_SIZE = 16
VOCABULARY = 150_000
ROUNDS = 9
NUM_BLOCKS = 40_000
BLOCKS_OF_SOCKET_EVENT = 512
BLOCKS_OF_PROMPT = 4096
FLEETS = (10, 100, 1000)
Decode = Callable[[bytes], KVEventBatch]


def payloads(num_events: int, blocks_per_event: int) -> tuple[list[bytes], list[int]]:
    """Batches of one new prompt each, as vLLM sends them; and the last prompt."""
    rng, hasher = random.Random(0), BlockHasher(hash_block_size=BLOCK_SIZE, algorithm="sha256_cbor")
    encoded, tokens = [], []
    for _ in range(num_events):
        tokens = [rng.randrange(VOCABULARY) for _ in range(blocks_per_event * BLOCK_SIZE)]
        event = stored(external_hashes(hasher.hash_tokens(tokens, PLAIN)), 0, tokens)
        encoded.append(encode_batch(KVEventBatch(ts=time.time(), events=[event], data_parallel_rank=0)))
    return encoded, tokens


def stored(hashes: list[ExternalHash], group: int, tokens: Sequence[int] = (), *, medium: str = "GPU") -> BlockStored:
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None,
        token_ids=list(tokens),
        block_size=BLOCK_SIZE,
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=GroupIdx(group),
        kv_cache_spec_kind="full_attention",
    )


def new_index() -> FleetIndex:
    index = FleetIndex([FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=64)], hash_block_size=16)
    index.add_engine("a")
    return index


def seconds_in_process(encoded: list[bytes], decode: Decode) -> float:
    index, begin = new_index(), time.perf_counter()
    for payload in encoded:
        index.apply("a", decode(payload).events)
    return time.perf_counter() - begin


def publish(socket: Any, encoded: list[bytes]) -> None:
    for sequence, payload in enumerate(encoded):
        socket.send_multipart([b"", encode_sequence(sequence), payload])


def seconds_over_a_socket(encoded: list[bytes], *, with_tokens: bool) -> float:
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.set_hwm(0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        source = SourceConfig(endpoint=f"tcp://127.0.0.1:{port}")
        index, num_left = new_index(), len(encoded)
        with Subscriber(SubscriberConfig(sources=(source,), with_tokens=with_tokens)) as subscriber:
            socket.recv()  # its subscription
            begin = time.perf_counter()
            sending = threading.Thread(target=publish, args=(socket, encoded))
            sending.start()
            while num_left:
                if isinstance(item := subscriber.poll(), Delivered):
                    index.apply("a", item.batch.events)
                    num_left -= 1
            sending.join()
        return time.perf_counter() - begin


def in_process() -> None:
    print(f"{'decode, index, million blocks/s':34}{'full':>8}{'skimmed':>9}{'ratio':>8}")
    for blocks_per_event in (8, 64, 512):
        encoded, _ = payloads(NUM_BLOCKS // blocks_per_event, blocks_per_event)
        best = dict.fromkeys((decode_batch, skim_batch), float("inf"))
        for _ in range(ROUNDS):
            for decode in best:
                best[decode] = min(best[decode], seconds_in_process(encoded, decode))
        show(f"  {blocks_per_event} blocks an event", best[decode_batch], best[skim_batch])


async def over_a_socket(seconds_of_dynamo: Callable[[list[bytes], list[int]], Any] | None) -> None:
    encoded, prompt = payloads(NUM_BLOCKS // BLOCKS_OF_SOCKET_EVENT, BLOCKS_OF_SOCKET_EVENT)
    full = skimmed = dynamo = float("inf")
    for _ in range(3):
        full = min(full, seconds_over_a_socket(encoded, with_tokens=True))
        skimmed = min(skimmed, seconds_over_a_socket(encoded, with_tokens=False))
        if seconds_of_dynamo is not None:
            dynamo = min(dynamo, await seconds_of_dynamo(encoded, prompt))
    show("over a socket, 512 an event", full, skimmed)
    if seconds_of_dynamo is not None:
        rate = NUM_BLOCKS / dynamo / 1e6
        print(f"  Dynamo's indexer: {rate:.2f}; skimmed is {dynamo / skimmed:.2f}x of it")


def decide() -> None:
    heads: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 64}
    full: KVCacheSpec = FullAttentionSpec(**heads)
    window = SlidingWindowSpec(sliding_window=1024, **heads)
    state = MambaSpec(block_size=BLOCK_SIZE, shapes=((4,),), dtypes=(CacheDType.FLOAT32,))
    print(f"{'decide, 4,096 blocks, ms':34}" + "".join(f"{count:>8,}" for count in FLEETS) + "  engines")
    for name, specs in {"full": [full], "window + full": [full, window], "state + full": [full, state]}.items():
        show_decisions(name, specs, ("GPU",))
    show_decisions("full, three media", [full], ("GPU", "CPU", "STORAGE"))
    show_decisions("full, a shared store", [full], ("GPU", "CPU", "redis"))


def show_decisions(name: str, specs: list[KVCacheSpec], media: Sequence[str]) -> None:
    times = (1e3 * seconds_to_decide(specs, count, media) for count in FLEETS)
    print(f"  {name:32}" + "".join(f"{time_ms:8.1f}" for time_ms in times), flush=True)


def seconds_to_decide(specs: list[KVCacheSpec], num_engines: int, media: Sequence[str]) -> float:
    rng, indexes, placement = Random(0), Indexes(), Placement(Random(0))
    plan = PublishedPlan.of_specs(specs, hash_block_size=BLOCK_SIZE)
    index = indexes.find(plan, algorithm="sha256_cbor", seed="0")
    tokens = [rng.randrange(VOCABULARY) for _ in range(BLOCKS_OF_PROMPT * BLOCK_SIZE)]
    hashes = external_hashes(indexes.hashers[index].hash_tokens(tokens, PLAIN))
    for engine in map(str, range(num_engines)):
        index.add_engine(engine, stores={"redis": "one"})
        placement.add(engine)
        end = rng.randrange(1, BLOCKS_OF_PROMPT)
        for number, medium in enumerate(media, start=1):
            index.apply(engine, [stored(hashes[: number * end // len(media)], 0, medium=medium)])
        index.apply(engine, [stored(hashes[max(0, end - 64) : end], 1)] * (len(specs) - 1))
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.thread_time()
        assert placement.choose(indexes.read(tokens, PLAIN).prompt, index.engines, 0.0) is not None
        best = min(best, time.thread_time() - begin)
    return best


def show(name: str, full_s: float, skimmed_s: float) -> None:
    rates = f"{NUM_BLOCKS / full_s / 1e6:8.2f}{NUM_BLOCKS / skimmed_s / 1e6:9.2f}"
    print(f"{name:34}{rates}{full_s / skimmed_s:7.2f}x", flush=True)
