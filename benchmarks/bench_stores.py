"""The tiers over shared stores beside their clients' own puts and gets of the same bytes, on the same server and run.

    python benchmarks/bench_stores.py [--stores file s3 redis] [--latency-ms 0 20 50] [--chunk-kib 64 256 1024 8192]
                                      [--mebibytes 64] [--rounds 3]

Servers are started by scripts/start_object_store.sh and scripts/start_redis.sh; one whose package is missing is left
out. A round writes and reads --mebibytes in jobs of 16 chunks (of 16 MiB at most), --depth jobs at once: an object of
a job's chunks for the object store, a pipeline of as many values for Redis, the same for tier and client. Client, tier
and encrypted tier take turns; the best round counts. Every load of a tier is verified. Latency is put between by a
relay; without any, nothing stands between. Round trips of a lookup and of a store are counted by their time through a
relay so slow that all else is small.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from delaying_relay import DelayingRelay

from octavo.chunks import ALL_BLOCKS, NO_TENANT, ChunkBytes, ChunkChain, SequenceNames, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.offload import SharedConfig
from octavo.tiers import Tier, TierContext

sys.path.append(str(Path(__file__).parents[1] / "tests" / "lib"))
from rigs.store_servers import MissingError, serving

CHUNKS_PER_JOB = 16
MOST_JOB_KIB = 16 << 10
TOKENS_PER_CHUNK = 64
SLOW_S = 1.0
PATIENT: dict[str, Any] = dict.fromkeys(("find_s", "load_s", "store_s"), 120.0)


class Side(NamedTuple):
    store_s: float
    load_s: float
    hit_s: float = 0.0
    miss_s: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="*", default=["file", "s3", "redis"], choices=["file", "s3", "redis"])
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[0, 20, 50])
    parser.add_argument("--chunk-kib", type=int, nargs="*", default=[64, 256, 1024, 8192])
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"MB/s: {args.mebibytes} MiB a round; ratios: tier / client")
    print(
        f"{'':22}{'store: client':>14}{'tier':>7}{'encrypted':>11} | {'load: client':>12}{'tier':>7}{'encrypted':>11}",
        end="",
    )
    print(" | lookup: found   not found")
    for kind in args.stores:
        with ExitStack() as stack:
            try:
                place = stack.enter_context(STARTS[kind]())
            except MissingError as error:
                print(f"{kind:>5}: left out: {error}")
                continue
            for chunk_kib in args.chunk_kib:
                work = Work(
                    [random.randbytes(chunk_kib << 10) for _ in range((args.mebibytes << 10) // chunk_kib)], args.depth
                )
                bench_store(kind, place, work, args.latency_ms if kind != "file" else [0.0], args.rounds)
            if kind != "file":
                count_round_trips(kind, place, work)


def bench_store(kind: str, place: "Place", work: "Work", latencies_ms: list[float], rounds: int) -> None:
    for latency_ms in latencies_ms:
        with ExitStack() as stack:
            there = place
            if latency_ms:
                port = stack.enter_context(DelayingRelay(place.port, latency_ms / 1000)).port
                there = place.at_port(port)
            sides: list[list[Side]] = [[], [], []]
            for _ in range(rounds):
                sides[0].append(asyncio.run(there.bench_client(work)))
                place.empty()
                for side, key in zip(sides[1:], (None, os.urandom(32)), strict=True):
                    side.append(bench_tier(there, work, key))
                    place.empty()
        best = [Side(*map(min, zip(*side, strict=True))) for side in sides]
        tell(f"{kind} {latency_ms:g} ms {len(work.payloads[0]) >> 10} KiB", best, work.num_bytes)


def count_round_trips(kind: str, place: "Place", work: "Work") -> None:
    with DelayingRelay(place.port, SLOW_S) as relay:
        side = bench_tier(place.at_port(relay.port), work, None)
        one_job = Work(work.payloads[: len(work.jobs[0])], 1)
        store_s = bench_tier(place.at_port(relay.port), one_job, None).store_s
    place.empty()
    print(
        f"{kind}: round trips of a lookup: found {side.hit_s / SLOW_S:.1f}, not found {side.miss_s / SLOW_S:.1f}",
        end="",
    )
    print(f"; of a store: {store_s / SLOW_S:.1f}")


def tell(name: str, best: list[Side], num_bytes: int) -> None:
    line = f"{name:22}"
    for field, width in (("store_s", 14), ("load_s", 12)):
        client, tier, encrypted = (num_bytes / 1e6 / getattr(side, field) for side in best)
        line += f"{client:{width}.0f}{tier / client:6.2f}x{encrypted / client:10.2f}x | "
    for field in ("hit_s", "miss_s"):
        line += f"{getattr(best[1], field) * 1000:9.0f} ms"
    print(line, flush=True)


class Work:
    """What is moved: the payloads of one sequence's chunks, in jobs."""

    def __init__(self, payloads: list[bytes], depth: int) -> None:
        self.payloads = payloads
        self.depth = depth
        self.num_bytes = sum(map(len, payloads))
        self.keys = [make_offload_key(BlockHash(random.randbytes(32)), GroupIdx(0)) for _ in payloads]

    @property
    def jobs(self) -> list[range]:
        chunks = min(CHUNKS_PER_JOB, max(1, (MOST_JOB_KIB << 10) // len(self.payloads[0])))
        return [range(start, start + chunks) for start in range(0, len(self.payloads), chunks)]

    @property
    def sequence(self) -> SequenceNames:
        return SequenceNames(NO_TENANT, [ChunkChain(TOKENS_PER_CHUNK, self.keys)])


def bench_tier(place: "Place", work: Work, key: bytes | None) -> Side:
    """A tier stores all; another one, of an engine that knows nothing, finds and loads it."""
    namespace = os.urandom(16)
    context = TierContext(namespace=namespace, family=namespace, max_chunk_bytes=len(work.payloads[0]))
    os.environ.pop("OCTAVO_STORE_KEY", None)
    if key is not None:
        os.environ["OCTAVO_STORE_KEY"] = key.hex()
    spec = SharedConfig(**place.settings, **PATIENT).spec
    writer = spec.build(context)
    try:
        look_up(writer, unknown(work))
        miss_s = look_up(writer, unknown(work))
        look_up(writer, work.sequence)
        buffers = [memoryview(bytearray(payload)) for payload in work.payloads]
        store_s = move(writer, writer.submit_store, work, buffers)
    finally:
        writer.close()
    reader = spec.build(context)
    try:
        look_up(reader, unknown(work))
        hit_s = look_up(reader, work.sequence)
        assert reader.lookup(work.keys) == [ALL_BLOCKS] * len(work.keys)
        buffers = [memoryview(bytearray(len(payload))) for payload in work.payloads]
        load_s = move(reader, reader.submit_load, work, buffers)
        assert buffers == work.payloads
    finally:
        reader.close()
    return Side(store_s, load_s, hit_s, miss_s)


def unknown(work: Work) -> SequenceNames:
    """A sequence that nobody has stored. The first one that is asked for opens a connection."""
    keys = [make_offload_key(BlockHash(random.randbytes(32)), GroupIdx(0)) for _ in work.keys]
    return SequenceNames(NO_TENANT, [ChunkChain(TOKENS_PER_CHUNK, keys)])


def look_up(tier: Tier, sequence: SequenceNames) -> float:
    begun = time.perf_counter()
    while tier.ask(sequence):
        time.sleep(0.0005)
        tier.poll(time.monotonic())
    return time.perf_counter() - begun


def move(tier: Tier, submit: Callable[..., bool], work: Work, buffers: list[memoryview]) -> float:
    begun = time.perf_counter()
    waiting, under_way = deque(enumerate(work.jobs)), 0
    while waiting or under_way:
        while waiting and under_way < work.depth:
            number, places = waiting.popleft()
            chunks = [ChunkBytes(work.keys[place], [buffers[place]], ALL_BLOCKS) for place in places]
            assert submit(number, chunks)
            under_way += 1
        for result in tier.poll(time.monotonic()):
            assert not result.failed, tier.status()
            under_way -= 1
        time.sleep(0.0005)
    return time.perf_counter() - begun


# ---- stores ---------------------------------------------------------------------------------------------------------


class Place(ABC):
    """A store, and its client's own way of putting and getting."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    @property
    def port(self) -> int:
        return urlsplit(self.settings.get("endpoint") or self.settings["url"]).port or 0

    def at_port(self, port: int) -> "Place":
        moved = {name: value.replace(f":{self.port}", f":{port}") for name, value in self.settings.items()}
        return type(self)(moved)

    @abstractmethod
    def empty(self) -> None:
        """Deletes all that is there."""

    @abstractmethod
    async def bench_client(self, work: Work) -> Side:
        """The client's own stores and loads of the work."""


class Objects(Place):
    """Whole objects, each of a job's chunks."""

    def empty(self) -> None:
        import obstore

        store = self._open()
        for page in obstore.list(store):
            obstore.delete(store, [meta["path"] for meta in page])

    async def bench_client(self, work: Work) -> Side:
        import obstore

        store = self._open()
        await obstore.put_async(store, "plain/first", b"")
        bodies = [b"".join(work.payloads[place] for place in places) for places in work.jobs]

        async def get(name: str) -> int:
            return len(await (await obstore.get_async(store, name)).bytes_async())

        store_s = await at_depth(
            work.depth,
            [partial(obstore.put_async, store, f"plain/{n}", body) for n, body in enumerate(bodies)],
        )
        load_s = await at_depth(work.depth, [partial(get, f"plain/{n}") for n in range(len(bodies))])
        return Side(store_s, load_s)

    def _open(self) -> Any:
        from octavo.stores.objects import ObjectsConfig, open_store

        return open_store(ObjectsConfig(**self.settings))


class RedisServer(Place):
    """Pipelines, each of a job's chunks."""

    def empty(self) -> None:
        from redis import Redis

        with Redis.from_url(self.settings["url"]) as redis:
            for name in redis.scan_iter(count=1000):
                redis.unlink(name)

    async def bench_client(self, work: Work) -> Side:
        from redis.asyncio import Redis

        async with Redis.from_url(self.settings["url"]) as redis:
            await redis.get("octavo-plain")

            async def put(places: range) -> None:
                pipeline = redis.pipeline(transaction=False)
                for place in places:
                    pipeline.set(f"octavo-plain-{place}", work.payloads[place])
                await pipeline.execute()

            async def get(places: range) -> None:
                pipeline = redis.pipeline(transaction=False)
                for place in places:
                    pipeline.get(f"octavo-plain-{place}")
                await pipeline.execute()

            store_s = await at_depth(work.depth, [partial(put, places) for places in work.jobs])
            load_s = await at_depth(work.depth, [partial(get, places) for places in work.jobs])
        return Side(store_s, load_s)


async def at_depth(depth: int, calls: list[Callable[[], Awaitable[object]]]) -> float:
    at_once = asyncio.Semaphore(depth)

    async def run(call: Callable[[], Awaitable[object]]) -> None:
        async with at_once:
            await call()

    begun = time.perf_counter()
    await asyncio.gather(*map(run, calls))
    return time.perf_counter() - begun


@contextmanager
def new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-stores-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def start_folder() -> Iterator[Place]:
    with new_folder() as folder:
        yield Objects({"url": f"file://{folder}"})


@contextmanager
def start_s3() -> Iterator[Place]:
    with new_folder() as folder, serving("start_object_store.sh", folder) as told:
        os.environ.update({name: told[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")})
        yield Objects({"url": "s3://octavo/bench", "endpoint": told["ENDPOINT"]})


@contextmanager
def start_redis() -> Iterator[Place]:
    try:
        import redis  # noqa: F401
    except ImportError:
        raise MissingError("the package redis") from None
    with new_folder() as folder, serving("start_redis.sh", folder) as told:
        yield RedisServer({"url": told["TCP_URL"]})


STARTS = {"file": start_folder, "s3": start_s3, "redis": start_redis}

if __name__ == "__main__":
    main()
