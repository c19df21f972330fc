"""Whether loading is ever slower than computing: the first token under a tier that is fast, and one that is slow.

    python benchmarks/bench_load_or_compute.py [--requests 600] [--sessions 60] [--seed 0]

Octavo's own scheduler and offloading serve sessions that come back again and again, in the simulator's time: with the
rule that measures, with one that always loads, and with one that never does. The device holds a few sessions, memory a
third of them, the disk all. The disk is a usual one, or throttled to a tenth of its rate with 50 ms of latency, or to a
hundredth; the load is low (requests hardly meet) or high (an engine without a cache cannot keep up).

A ratio is the rule's time over that of the better of the other two, for each percentile by itself; below 1 both lose.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from octavo.offload import LoadRule
from octavo.planning import plan_kv_cache
from octavo.sim import SimConfig, SimulatedEngine, Speeds, TraceRequest
from octavo.specs import FullAttentionSpec, KVCacheSpec, RequestLimits, SlidingWindowSpec

BLOCK = 64
DISKS = {
    "usual": Speeds(),
    "a tenth, 50 ms": replace(Speeds(), disk_bytes_per_s=3e8, disk_latency_s=0.05),
    "a hundredth, 50 ms": replace(Speeds(), disk_bytes_per_s=3e7, disk_latency_s=0.05),
}
LOADS = {"low": 2.0, "high": 0.28}
"""Seconds between two requests."""
LONGEST = 12_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(
        f"{'disk':20}{'load':6}{'':5}{'never':>9}{'always':>9}{'measured':>10}{'ratio':>7}   loads refused, cut short"
    )
    for disk, speeds in DISKS.items():
        for load, every_s in LOADS.items():
            asked = list(requests(args, every_s))
            show(disk, load, {rule: serve(asked, speeds, rule) for rule in LoadRule})


def requests(args: argparse.Namespace, every_s: float) -> Iterator[TraceRequest]:
    """Sessions that grow by a turn each time, in random order and at random times."""
    chooser = random.Random(args.seed)
    fresh = partial(next, iter(range(1 << 30)))
    sessions = [[fresh() for _ in range(chooser.randrange(8, 80))] for _ in range(args.sessions)]
    now = 0.0
    for _ in range(args.requests):
        session = chooser.choice(sessions)
        session += [fresh() for _ in range(chooser.randrange(1, 12))]
        if len(session) * BLOCK > LONGEST:
            session[:] = [fresh() for _ in range(chooser.randrange(8, 80))]
        now += chooser.expovariate(1 / every_s)
        yield TraceRequest(
            arrival_s=now,
            num_prompt_tokens=len(session) * BLOCK,
            num_output_tokens=32,
            block_ids=np.array(session, dtype=np.int32),
            block_tokens=BLOCK,
            knows_output=False,
        )


def serve(asked: list[TraceRequest], speeds: Speeds, rule: LoadRule) -> tuple[list[float], SimulatedEngine]:
    """Times to the first token, of all but the first third, in which the rule learns."""
    page: dict[str, Any] = {"block_size": BLOCK, "num_kv_heads": 8, "head_size": 128}
    layers: dict[str, KVCacheSpec] = {f"full.{index}": FullAttentionSpec(**page) for index in range(16)}
    layers |= {f"window.{index}": SlidingWindowSpec(**page, sliding_window=1024) for index in range(16)}
    limits = RequestLimits(max_model_len=LONGEST + 1024, max_step_tokens=2048)
    plan = plan_kv_cache(layers, memory_bytes=4 << 30, limits=limits)
    config = SimConfig(plan=plan, memory_bytes=8 << 30, disk_bytes=200 << 30, speeds=speeds, loads=rule)
    engine = SimulatedEngine(config)
    for number, request in enumerate(asked):
        engine.run_until(request.arrival_s)
        engine.submit(number, request)
    engine.finish()
    return [outcome.ttft_s or 0.0 for outcome in engine.outcomes[len(asked) // 3 :]], engine


def show(disk: str, load: str, served: dict[LoadRule, tuple[list[float], SimulatedEngine]]) -> None:
    offload = served[LoadRule.MEASURED][1].offload
    assert offload is not None
    stats = offload.stats()
    for percent in (50, 99):
        never, always, measured = (
            float(np.percentile(served[rule][0], percent))
            for rule in (LoadRule.NEVER, LoadRule.ALWAYS, LoadRule.MEASURED)
        )
        print(
            f"{disk:20}{load:6}{f'p{percent}':5}{never:8.2f}s{always:8.2f}s{measured:9.2f}s"
            f"{measured / min(never, always):7.2f}   {stats.loads_too_slow}, {stats.loads_cut_short}"
        )


if __name__ == "__main__":
    main()
