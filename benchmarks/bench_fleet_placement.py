"""Where a fleet's requests should go: the same traffic on ever more simulated engines, by every placement.

    python benchmarks/bench_fleet_placement.py [--trace FILE] [--requests 1200] [--engines 10 100 1000]
                                               [--model examples/models/qwen3-next-80b.json] [--device 8]
                                               [--memory 0] [--disk 0] [--disk-speed 3]
                                               [--routers 1 2 4 [--told-after 0.01 inf]] [--seed 0]

Without --trace it makes chats of a hybrid's users, many of which begin with one of forty documents. Engines compute
10,000 prompt tokens a second. With --routers it compares numbers of routers instead, among which requests are spread by
chance, and which hear of each other's requests from the engines. Last, the size of the router's index, whose blocks a
tenth of the engines hold.

resumed    of the prompt tokens
ratio      resumed tokens over those of longest_prefix, which is the same router if it knows full attention only
decision   wall time for choosing one engine: hashes, index and costs (the mean)
"""

import argparse
import random
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from pathlib import Path

import numpy as np

from octavo.events import BlockStored
from octavo.ids import GroupIdx
from octavo.planning import plan_kv_cache, read_model
from octavo.router import FleetIndex
from octavo.sim import (
    PLACEMENTS,
    TOLD_AFTER_S,
    MakePlace,
    Place,
    SeveralRouters,
    SimConfig,
    SimulatedEngine,
    Speeds,
    Trace,
    TraceRequest,
    read_trace,
    replay,
)
from octavo.specs import FullAttentionSpec, RequestLimits

MODELS = Path(__file__).parents[1] / "examples" / "models"
BLOCK = 256
REQUESTS_PER_S = 20.0
DOCUMENTS = 40
BLOCKS_OF_INDEX = 20_000


def chats(num_requests: int, seed: int = 0) -> Trace:
    """Chats of some turns, with time to read and to think between them."""
    rng = random.Random(seed)
    new_ids = count(1)
    documents = [[next(new_ids) for _ in range(rng.randrange(8, 33))] for _ in range(DOCUMENTS)]
    due: list[tuple[float, int, list[int]]] = []
    asked: list[TraceRequest] = []
    now = 0.0
    while len(asked) < num_requests:
        now += rng.expovariate(REQUESTS_PER_S)
        if due and due[0][0] <= now:
            _, session, ids = heappop(due)
        else:
            session, ids = len(asked), [*rng.choice(documents)] if rng.random() < 0.6 else []
        ids = [*ids, *(next(new_ids) for _ in range(rng.randrange(1, 9)))]
        asked.append(
            TraceRequest(
                arrival_s=now,
                num_prompt_tokens=len(ids) * BLOCK - rng.randrange(BLOCK),
                num_output_tokens=64,
                block_ids=np.array(ids, dtype=np.int32),
                block_tokens=BLOCK,
                knows_output=False,
                session=str(session),
            )
        )
        if rng.random() < 0.85:
            heappush(due, (now + rng.uniform(5.0, 40.0), session, ids))
    return Trace(requests=asked, block_tokens=BLOCK)


class Timed:
    """Makes a placement, and tells how long its choices took."""

    def __init__(self, make_place: MakePlace) -> None:
        self._make = make_place
        self._seconds: list[float] = []

    def __call__(self, engines: Sequence[SimulatedEngine]) -> Place:
        place = self._make(engines)

        def timed(number: int, request: TraceRequest) -> int:
            begin = time.perf_counter()
            chosen = place(number, request)
            self._seconds.append(time.perf_counter() - begin)
            return chosen

        return timed

    @property
    def mean_s(self) -> float:
        return sum(self._seconds) / len(self._seconds)


def config_of(args: argparse.Namespace, trace: Trace) -> SimConfig:
    layers = read_model(args.model, block_size=trace.block_tokens).layers
    limits = RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=8192)
    return SimConfig(
        plan=plan_kv_cache(layers, memory_bytes=int(args.device * (1 << 30)), limits=limits),
        memory_bytes=int(args.memory * (1 << 30)),
        disk_bytes=args.disk << 30,
        speeds=Speeds(disk_bytes_per_s=args.disk_speed * 1e9),
    )


def placements(args: argparse.Namespace) -> dict[str, MakePlace]:
    if args.routers:
        return {
            f"octavo x{number}, {'untold' if age is None else f'{1000 * age:.0f} ms'}": partial(
                SeveralRouters, num_routers=number, told_after_s=age
            )
            for number in args.routers
            for age in [None if age == inf else age for age in args.told_after]
        }
    return dict(PLACEMENTS)


def compare(args: argparse.Namespace) -> None:
    trace = (
        chats(args.requests, args.seed) if args.trace is None else read_trace(args.trace, most_requests=args.requests)
    )
    config = config_of(args, trace)
    print(f"{len(trace.requests):,} requests, {trace.num_prompt_tokens:,} prompt tokens, {args.model.stem}")
    print(f"{'engines':>7}  {'placement':18}{'resumed':>9}{'ratio':>8}{'TTFT p50':>10}{'p99':>9}{'decision':>11}")
    for num_engines in args.engines:
        reports, timed = {}, {}
        for name, make_place in placements(args).items():
            timed[name] = Timed(make_place)
            reports[name] = replay(trace, config, num_engines=num_engines, make_place=timed[name])
            print(f"{num_engines:7,}  {name:18}{reports[name].resumed_share:9.1%}", end="", flush=True)
            ratio = reports[name].resumed_share / reports["longest_prefix"].resumed_share if name == "octavo" else None
            print(f"{'' if ratio is None else f'{ratio:.2f}x':>8}", end="")
            print(f"{reports[name].ttft_p50_s:8.2f} s{reports[name].ttft_p99_s:7.2f} s", end="")
            print(f"{timed[name].mean_s * 1e6:8,.0f} us", flush=True)


def stored(first: int) -> BlockStored:
    """A hundred blocks, each with a hash of 64 bits."""
    return BlockStored(
        block_hashes=[(number << 40) + 12345 for number in range(first, first + 100)],
        parent_block_hash=None,
        token_ids=[],
        block_size=BLOCK,
        lora_id=None,
        lora_name=None,
        medium="GPU",
        group_idx=GroupIdx(0),
    )


def index_bytes_per_block(num_engines: int) -> float:
    """Of full attention, with hashes and holders."""
    tracemalloc.start()
    index = FleetIndex([FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=64)], hash_block_size=BLOCK)
    for engine in range(num_engines):
        index.add_engine(str(engine))
        held = range(engine % 10 * 100, BLOCKS_OF_INDEX, 1000)
        index.apply(str(engine), [stored(first) for first in held])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / index.num_blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=None)
    parser.add_argument("--requests", type=int, default=1200)
    parser.add_argument("--engines", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--model", type=Path, default=MODELS / "qwen3-next-80b.json")
    parser.add_argument("--device", type=float, default=8, help="GiB of each engine's pool")
    parser.add_argument("--memory", type=float, default=0, help="GiB of each engine's host memory")
    parser.add_argument("--disk", type=int, default=0, help="GiB of each engine's disk")
    parser.add_argument("--disk-speed", type=float, default=3.0, help="GB/s that a disk reads and writes")
    parser.add_argument("--routers", type=int, nargs="+", default=[], help="beside each other, instead of placements")
    parser.add_argument(
        "--told-after",
        type=float,
        nargs="+",
        default=[TOLD_AFTER_S],
        help="seconds until a router hears what others have sent to an engine; inf: never",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the chats")
    args = parser.parse_args()
    compare(args)
    if args.routers:
        return
    print("\nthe index, bytes per block")
    for num_engines in args.engines:
        print(f"{num_engines:7,}  {index_bytes_per_block(num_engines):6.0f}", flush=True)


if __name__ == "__main__":
    main()
