"""Microseconds of the block manager, vLLM's and Octavo's in turn, phase by phase.

    python benchmarks/compare_managers.py [--rounds 3] [--blocks 16,512,4096] [--configs full1,gptoss2,gemma6,mamba2]

A prompt has so many blocks of 16 tokens. Each phase is timed often within a round, and its median counts; the rounds
of the two managers alternate, and the best one counts, since noise only adds time. Pools have equal bytes; requests
are hashed before the clock runs.

hit         lookup of a prompt that is all cached, allocation of the rest, block ids, free
miss        lookup of a new prompt, allocation of all of it, free
eviction    the same, where every block takes the place of a cached one; `+ events` also takes the step's events
divergent   lookup where full attention has everything, and windows and state have nothing
decode      one step of 256 requests, one token each, per request; Octavo's commits and allocates the batch in one call
"""

import argparse
import gc
import importlib
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parent))

NUM_GROUPS = {"full1": 1, "gptoss2": 2, "gemma6": 6, "mamba2": 2, "mamba4_528": 4}
"""One layer each; a pool's blocks are counted per layer."""
DECODING, CONTEXT, STEPS = 256, 1024, 48


class Adapter(Protocol):
    """A block manager. Requests, hits and allocations are its own; lengths are in tokens."""

    name: str
    block_size: int

    def new_request(self, tokens: Sequence[int]) -> Any: ...
    def clone_request(self, request: Any) -> Any: ...
    def lookup(self, request: Any) -> tuple[Any, int]: ...
    def allocate(self, request: Any, new_tokens: int, hit: Any = None, hit_tokens: int = 0) -> Any: ...
    def block_ids(self, allocation: Any) -> Any: ...
    def all_block_ids(self, request: Any) -> Any: ...
    def append_token(self, request: Any, token: int) -> None: ...
    def free(self, request: Any) -> None: ...
    def step(self) -> None: ...
    def take_events(self) -> list[Any]: ...
    def evict_sparse_groups(self) -> None: ...


MakeAdapter = Callable[..., Adapter]
Timings = dict[str, float]


class Laps:
    """Times of named phases; the median of each in microseconds."""

    def __init__(self) -> None:
        self.laps: dict[str, list[int]] = {}
        self.last = 0

    def start(self) -> None:
        self.last = perf_counter_ns()

    def lap(self, phase: str) -> None:
        now = perf_counter_ns()
        self.laps.setdefault(phase, []).append(now - self.last)
        self.last = perf_counter_ns()

    def medians(self) -> Timings:
        timings = {phase: median(times) / 1000 for phase, times in self.laps.items()}
        return timings | {"total": sum(timings.values())}


def time_hit(make: MakeAdapter, config: str, num_blocks: int) -> Timings:
    adapter = make(config, num_blocks * NUM_GROUPS[config] + num_blocks + 256)
    tokens = random_tokens(random.Random(1), num_blocks * 16 + 1)
    cached = fill(adapter, tokens)
    laps = Laps()
    for _ in range(repetitions(num_blocks)):
        request = adapter.clone_request(cached)
        adapter.step()
        laps.start()
        hit, hit_tokens = adapter.lookup(request)
        laps.lap("lookup")
        adapter.allocate(request, len(tokens) - hit_tokens, hit, hit_tokens)
        laps.lap("allocate")
        adapter.all_block_ids(request)
        laps.lap("block ids")
        adapter.free(request)
        laps.lap("free")
        assert hit_tokens == (len(tokens) - 1) // adapter.block_size * adapter.block_size
    return laps.medians()


def time_miss(
    make: MakeAdapter, config: str, num_blocks: int, *, evicts: bool = False, has_events: bool = False
) -> Timings:
    times = max(4, repetitions(num_blocks) // 3)
    room = (num_blocks + 64) * NUM_GROUPS[config] * (1 if evicts else times + 2)
    adapter = make(config, room, events=has_events)
    rng = random.Random(2)
    requests = [adapter.new_request(random_tokens(rng, num_blocks * 16 + 1)) for _ in range(times + 2)]
    laps = Laps()
    for turn, request in enumerate(requests):
        adapter.step()
        laps.start()
        adapter.lookup(request)
        laps.lap("lookup")
        adapter.allocate(request, num_blocks * 16 + 1)
        laps.lap("allocate")
        if has_events:
            adapter.take_events()
            laps.lap("events")
        adapter.free(request)
        laps.lap("free")
        if turn == 1:
            laps = Laps()  # the first two fill the pool
    return laps.medians()


def time_divergent(make: MakeAdapter, config: str, num_blocks: int) -> Timings:
    adapter = make(config, (num_blocks + 64) * NUM_GROUPS[config])
    cached = fill(adapter, random_tokens(random.Random(5), num_blocks * 16 + 1))
    adapter.evict_sparse_groups()
    laps = Laps()
    for _ in range(9):
        request = adapter.clone_request(cached)
        laps.start()
        adapter.lookup(request)
        laps.lap("lookup")
    return laps.medians()


def time_decode(make: MakeAdapter, config: str, *, has_events: bool = False) -> Timings:
    adapter = make(config, DECODING * ((CONTEXT + STEPS) // 16 + 4) * NUM_GROUPS[config] + 64, events=has_events)
    rng = random.Random(3)
    requests = []
    for i in range(DECODING):
        num_tokens = CONTEXT + i % 16  # a live batch crosses boundaries in every step
        request = adapter.new_request(random_tokens(rng, num_tokens))
        adapter.step()
        adapter.lookup(request)
        adapter.allocate(request, num_tokens)
        requests.append(request)
    adapter.take_events()
    batch_step = getattr(adapter, "batch_step", None)
    laps = Laps()
    for _ in range(STEPS):
        adapter.step()
        laps.start()
        if batch_step is not None:
            batch_step(requests, [7] * DECODING)
        else:
            for request in requests:
                adapter.append_token(request, 7)
            for request in requests:
                adapter.block_ids(adapter.allocate(request, 1))
        adapter.take_events()
        laps.lap("step")
    return {"per request": laps.medians()["total"] / DECODING}


def fill(adapter: Adapter, tokens: Sequence[int]) -> Any:
    """A request that is computed and freed, so that all its full blocks, and state at its last boundary, are cached."""
    request = adapter.new_request(tokens)
    boundary = (len(tokens) - 1) // adapter.block_size * adapter.block_size
    for num_tokens in (boundary, len(tokens) - boundary):
        adapter.step()
        adapter.allocate(request, num_tokens)
    adapter.free(request)
    adapter.take_events()
    return request


def random_tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(1, 150_000) for _ in range(count)]


def repetitions(num_blocks: int) -> int:
    return max(9, min(60, 30_000 // num_blocks))


def benchmarks(configs: Sequence[str], lengths: Sequence[int]) -> dict[str, Callable[[MakeAdapter], Timings]]:
    """By row of the table."""
    rows: dict[str, Callable[[MakeAdapter], Timings]] = {}
    for c in configs:
        for n in lengths:
            rows[f"{c} hit, {n} blocks"] = partial(time_hit, config=c, num_blocks=n)
            rows[f"{c} miss, {n} blocks"] = partial(time_miss, config=c, num_blocks=n)
            rows[f"{c} eviction, {n} blocks"] = partial(time_miss, config=c, num_blocks=n, evicts=True)
        n = lengths[0]
        rows[f"{c} eviction + events, {n} blocks"] = partial(
            time_miss, config=c, num_blocks=n, evicts=True, has_events=True
        )
        if NUM_GROUPS[c] > 1:
            rows[f"{c} divergent, {lengths[-1]} blocks"] = partial(time_divergent, config=c, num_blocks=lengths[-1])
        rows[f"{c} decode"] = partial(time_decode, config=c)
        rows[f"{c} decode + events"] = partial(time_decode, config=c, has_events=True)
    return rows


def time_once(run: Callable[[MakeAdapter], Timings], make: MakeAdapter) -> Timings:
    gc.collect()
    gc.freeze()  # neither pays for the other's objects
    try:
        return run(make)
    finally:
        gc.unfreeze()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", default="16,512,4096", help="lengths of prompts")
    parser.add_argument("--configs", default="full1,gptoss2,gemma6,mamba2")
    args = parser.parse_args()

    adapters = [importlib.import_module(module).Adapter for module in ("vllm_adapter", "octavo_adapter")]
    rows = benchmarks(args.configs.split(","), [int(n) for n in args.blocks.split(",")])
    best: dict[tuple[str, str], list[float]] = {}
    for _ in range(args.rounds):
        for row, run in rows.items():
            for side, make in enumerate(adapters):
                for phase, us in time_once(run, make).items():
                    times = best.setdefault((row, phase), [float("inf")] * len(adapters))
                    times[side] = min(times[side], us)

    print(f"{'microseconds':40}{'':12}{adapters[0].name:>12}{adapters[1].name:>12}{'ratio':>8}")
    for (row, phase), (theirs, ours) in best.items():
        print(f"{row:40}{phase:12}{theirs:12.2f}{ours:12.2f}{theirs / ours:7.1f}x")


if __name__ == "__main__":
    main()
