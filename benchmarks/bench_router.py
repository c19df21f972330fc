"""Octavo's index of a fleet beside Dynamo's `SelectionService`, on the same events.

    python benchmarks/bench_router.py [--part choices | busy | query | ingest | decide] [--trace FILE]
                                      [--requests 400] [--engines 4] [--memory 64] [--seeds 3]

Dynamo's wheel from PyPI (`pip install ai-dynamo-runtime`; 1.6.1 was tried) must be in the same environment; without it
only Octavo is shown. `--part choices`: for each family of models both routers send the same conversations to engines of
their own, block managers in small pools: each waits until it knows what the engines hold, and sends the prompt where it
expects the most tokens. `--part busy`: both choose by their own costs, before engines under load, in four kinds of
traffic (`router_traffic.py`) or that of a trace.

expected   tokens that the router thought would be resumed, of all prompt tokens
resumed    tokens that the engines really resumed
ratio      Octavo's over Dynamo's

And how long a question takes of 1,024 tokens before 8 engines, asked in turn (`--part query`), how many blocks a second
they take in from events with tokens (`--part ingest`), and how long one decision takes (`--part decide`).
"""

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import zmq
from router_busy import compare_busy
from router_fleet import BLOCK_SIZE, FAMILIES, Engine, conversations
from router_rates import BLOCKS_OF_SOCKET_EVENT, decide, in_process, over_a_socket, publish

from octavo.events import KVEventBatch, encode_batch, encode_sequence, external_hashes
from octavo.hashing import PLAIN, BlockHasher
from octavo.router import FleetIndex

os.environ.setdefault("DYN_LOG", "error")
MOST_POLLS = 500
MOST_SECONDS = 60.0
NOTHING = (0, 0)
QUERY_TOKENS, QUERY_ENGINES, QUERIES = 1024, 8, 300


class Router(Protocol):
    """Learns what engines hold, and says how much of a prompt it expects each to have."""

    async def tell(self, engine: int, batch: KVEventBatch, prompt: list[int]) -> None:
        """What an engine did when it served a prompt. Returns when the router has taken it in."""

    async def expect(self, prompt: list[int]) -> dict[int, tuple[int, int]]:
        """By engine: how many tokens; and among engines with as many, which are better."""

    async def close(self) -> None: ...


class OctavoRouter:
    def __init__(self, engines: Sequence[Engine]) -> None:
        self._index = FleetIndex.of_plan(engines[0].plan)
        self._hasher = BlockHasher(hash_block_size=BLOCK_SIZE)
        for engine in range(len(engines)):
            self._index.add_engine(str(engine))

    async def tell(self, engine: int, batch: KVEventBatch, prompt: list[int]) -> None:
        self._index.apply(str(engine), batch.events)

    async def expect(self, prompt: list[int]) -> dict[int, tuple[int, int]]:
        hashes = external_hashes(self._hasher.hash_tokens(prompt, PLAIN))
        resumes, branches, _ = self._index.read(hashes, len(prompt))
        return {int(name): (resumes.get(name, 0), shared) for name, shared in branches.items()}

    async def close(self) -> None:
        pass


class DynamoRouter:
    def __init__(self, engines: Sequence[Engine | None]) -> None:
        from dynamo.llm import SelectionService

        self._service: Any = SelectionService(indexer_threads=1)
        self._context = zmq.Context()
        self._sockets = [self._context.socket(zmq.PUB) for _ in engines]
        for socket in self._sockets:
            socket.set_hwm(0)
        self._sequences = [0] * len(engines)
        self._is_ready = False

    async def tell(self, engine: int, batch: KVEventBatch, prompt: list[int]) -> None:
        frames = [b"", encode_sequence(self._sequences[engine]), encode_batch(batch)]
        self._sockets[engine].send_multipart(frames)
        self._sequences[engine] += 1
        for _ in range(MOST_POLLS):
            if (await self.expect(prompt)).get(engine, NOTHING)[0] >= len(prompt) // BLOCK_SIZE * BLOCK_SIZE:
                return
            await asyncio.sleep(0.001)

    async def seconds_to_take(self, encoded: list[bytes], prompt: list[int]) -> float:
        """Until the last prompt of some batches of one engine is known."""
        await self.expect(prompt)
        begin = time.perf_counter()
        sending = threading.Thread(target=publish, args=(self._sockets[0], encoded))
        sending.start()
        while (await self.expect(prompt)).get(0, NOTHING)[0] < BLOCKS_OF_SOCKET_EVENT * BLOCK_SIZE:
            if time.perf_counter() - begin > MOST_SECONDS:
                raise SystemExit("Dynamo has lost events: the machine is too busy")
            await asyncio.sleep(0.001)
        sending.join()
        return time.perf_counter() - begin

    async def expect(self, prompt: list[int]) -> dict[int, tuple[int, int]]:
        if not self._is_ready:
            await self._begin()
        request = {"model_name": "m", "tenant_id": "default", "selection_id": "x", "token_ids": prompt}
        answer = await self._service.overlap_scores(request)
        return {worker["worker_id"] - 1: (worker["device_blocks"] * BLOCK_SIZE, 0) for worker in answer["workers"]}

    async def close(self) -> None:
        await self._service.shutdown_async()
        self._context.destroy(linger=0)

    async def _begin(self) -> None:
        for engine, socket in enumerate(self._sockets):
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            worker = {"worker_id": engine + 1, "model_name": "m", "tenant_id": "default", "endpoint": f"ray://{engine}"}
            worker |= {"block_size": BLOCK_SIZE, "max_num_batched_tokens": 8192, "data_parallel_start_rank": 0}
            worker |= {"data_parallel_size": 1, "kv_events_endpoints": {0: f"tcp://127.0.0.1:{port}"}}
            await self._service.upsert_worker(worker)
        await asyncio.sleep(1.5)  # it does not say when its listeners are connected
        self._is_ready = True


async def serve(
    kind: Callable[[Sequence[Engine]], Router], family: str, args: argparse.Namespace, seed: int
) -> tuple[int, int, int]:
    """One fleet and one router: tokens asked for, tokens that the router expected, and tokens that were resumed."""
    engines = [Engine(family, memory_bytes=args.memory << 20) for _ in range(args.engines)]
    router = kind(engines)
    asked = expected = resumed = 0
    for prompt in conversations(seed, num_requests=args.requests):
        scores = await router.expect(prompt)
        best = max(range(len(engines)), key=lambda e: (scores.get(e, NOTHING), -engines[e].computed_tokens))
        asked += len(prompt)
        expected += scores.get(best, NOTHING)[0]
        resumed += engines[best].serve(prompt)
        await router.tell(best, engines[best].take_batch(), prompt)
    await router.close()
    return asked, expected, resumed


async def compare(args: argparse.Namespace, kinds: dict[str, Callable[[Sequence[Engine]], Router]]) -> None:
    print(f"{'':28}" + "".join(f"{name + ' expected':>20}{'resumed':>10}" for name in kinds) + f"{'ratio':>8}")
    for family in FAMILIES:
        totals = {name: [0, 0, 0] for name in kinds}
        for seed in range(args.seeds):
            for name, kind in kinds.items():
                served = await serve(kind, family, args, seed)
                totals[name] = [a + b for a, b in zip(totals[name], served, strict=True)]
        row = "".join(
            f"{expected / asked:>19.1%} {resumed / asked:>9.1%}" for asked, expected, resumed in totals.values()
        )
        ratio = f"{totals['octavo'][2] / totals['dynamo'][2]:.2f}x" if "dynamo" in totals else ""
        print(f"{family:28}{row}{ratio:>8}", flush=True)


async def query(kinds: dict[str, Callable[[Sequence[Engine]], Router]]) -> None:
    """Each engine has another beginning of the prompt."""
    print(f"{'1,024 tokens, 8 engines, us':28}" + "".join(f"{name:>10}" for name in kinds))
    prompt = list(range(QUERY_TOKENS))
    for family in FAMILIES:
        routers = {}
        for name, kind in kinds.items():
            engines = [Engine(family, memory_bytes=64 << 20) for _ in range(QUERY_ENGINES)]
            routers[name] = kind(engines)
            for number, engine in enumerate(engines, start=1):
                beginning = prompt[: number * QUERY_TOKENS // QUERY_ENGINES]
                engine.serve(beginning)
                await routers[name].tell(number - 1, engine.take_batch(), beginning)
        took: dict[str, list[float]] = {name: [] for name in routers}
        for _ in range(QUERIES):
            for name, router in routers.items():
                begin = time.perf_counter()
                await router.expect(prompt)
                took[name].append(time.perf_counter() - begin)
        print(f"{family:28}" + "".join(f"{1e6 * median(times):>10.0f}" for times in took.values()), flush=True)
        for router in routers.values():
            await router.close()


async def seconds_of_dynamo(encoded: list[bytes], prompt: list[int]) -> float:
    router = DynamoRouter([None])
    try:
        return await router.seconds_to_take(encoded, prompt)
    finally:
        await router.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["choices", "busy", "query", "ingest", "decide"]
    parser.add_argument("--part", choices=parts, default=None, help="by default all")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--memory", type=int, default=64, help="MiB of each engine's pool")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trace", type=Path, default=None, help="in place of the traffic of --part busy")
    parser.add_argument("--max-model-len", type=int, default=None, help="leaves out longer requests of a trace")
    args = parser.parse_args()
    kinds: dict[str, Callable[[Sequence[Engine]], Router]] = {"octavo": OctavoRouter}
    try:
        import dynamo.llm  # noqa: F401
    except ImportError as error:
        print(f"Dynamo is left out: {error}")
    else:
        kinds["dynamo"] = DynamoRouter
    if args.part in {None, "choices"}:
        asyncio.run(compare(args, kinds))
    if args.part in {None, "busy"}:
        compare_busy(args, with_dynamo="dynamo" in kinds)
    if args.part in {None, "query"}:
        asyncio.run(query(kinds))
    if args.part in {None, "decide"}:
        decide()
    if args.part in {None, "ingest"}:
        in_process()
        asyncio.run(over_a_socket(seconds_of_dynamo if "dynamo" in kinds else None))


if __name__ == "__main__":
    main()
