"""Eviction policies at a million keys: nanoseconds per key, and the longest pause of one call.

    python benchmarks/bench_policies.py [--keys 1000000] [--batch 256] [--rounds 3]

Beside vLLM's whole CPU offload manager, where vLLM can be imported: its policies cannot be asked without it. So a ratio
is what a policy leaves room for, not what a manager around it will show. Times are of the thread's CPU, garbage
collections included; the modes are measured in turn, round after round, and the best round counts. The longest pause is
that of all calls, those included that fill the empty policy.
"""

import argparse
import gc
import os
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from octavo.chunks import GroupOffloadConfig, OffloadKey, StoredChunk, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.policies import POLICIES, make_policy
from octavo.specs import FullAttentionSpec

CHAIN = 64
"""Chunks of one sequence."""
BATCHES_PER_ROUND = 300
MODES = ("fill", "store + evict", "touch", "pin + unpin")


class OctavoSubject:
    """One of our policies behind the calls of the benchmark."""

    def __init__(self, name: str, num_keys: int) -> None:
        spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8)
        group = GroupOffloadConfig(spec=spec, blocks_per_chunk=1, page_size_bytes=spec.page_size_bytes)
        self.policy = make_policy(name, (group,), num_keys)
        self._gone: list[list[OffloadKey]] = []

    def prepare(self, keys: Sequence[OffloadKey]) -> list[StoredChunk]:
        """A batch's chunks, made outside the measured time."""
        return [StoredChunk(key, 1, i % CHAIN, keys[i - 1] if i % CHAIN else None) for i, key in enumerate(keys)]

    def fill(self, batch: list[StoredChunk]) -> None:
        self.policy.insert(batch)

    def store(self, batch: list[StoredChunk]) -> None:
        self._gone.append(self.policy.evict(len(batch)) or [])
        self.policy.insert(batch)

    def touch(self, keys: list[OffloadKey]) -> None:
        self.policy.touch(keys)

    def those_there(self, batches: list[list[OffloadKey]]) -> list[list[OffloadKey]]:
        """Some of what was stored last may have gone already, where others are worth more."""
        gone = set().union(*self._gone)
        return [[key for key in keys if key not in gone] for keys in batches]

    def load(self, keys: list[OffloadKey]) -> None:
        self.policy.pin(keys)
        self.policy.unpin(keys)


class VllmSubject:
    """vLLM's manager with one of its policies."""

    def __init__(self, name: str, num_keys: int) -> None:
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        self.manager = CPUOffloadingManager(num_keys, cache_policy=name)
        self.context: Callable[[], Any] = lambda: ReqContext(req_id="r")

    def prepare(self, keys: Sequence[OffloadKey]) -> list[OffloadKey]:
        return list(keys)

    def fill(self, batch: list[OffloadKey]) -> None:
        context = self.context()
        self.manager.prepare_store(batch, context)
        self.manager.complete_store(batch, context)

    store = fill

    def those_there(self, batches: list[list[OffloadKey]]) -> list[list[OffloadKey]]:
        return batches

    def touch(self, keys: list[OffloadKey]) -> None:
        self.manager.touch(keys, self.context())

    def load(self, keys: list[OffloadKey]) -> None:
        context = self.context()
        self.manager.prepare_load(keys, context)
        self.manager.complete_load(keys, context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.keys < (fewest := 2 * args.rounds * BATCHES_PER_ROUND * args.batch):
        parser.error(f"--keys: at least {fewest:,}, so that what a round stores is there when it is used")

    subjects: dict[str, Any] = {}
    try:
        subjects = {f"vLLM {name}": VllmSubject(name, args.keys) for name in ("lru", "arc")}
    except ImportError:
        print("vLLM is not installed here: its rows are left out")
    subjects |= {name: OctavoSubject(name, args.keys) for name in POLICIES.names()}

    best: dict[tuple[str, str], float] = {}
    pause: dict[str, tuple[float, str]] = dict.fromkeys(subjects, (0.0, ""))
    filler = make_keys(args.keys)
    for name, subject in subjects.items():
        if name == POLICIES.names()[0]:
            gc.collect()
            gc.freeze()  # collections in our calls shall not look through what vLLM and the benchmark hold
        run(subject.fill, batches(subject.prepare, filler, args.batch), (name, "fill"), best, pause)
    for round_ in range(args.rounds):
        newcomers = make_keys(BATCHES_PER_ROUND * args.batch)
        starts = random.Random(round_).sample(range(0, len(newcomers) - args.batch, CHAIN), BATCHES_PER_ROUND)
        used = [newcomers[start : start + args.batch] for start in starts]
        for name, subject in subjects.items():
            run(subject.store, batches(subject.prepare, newcomers, args.batch), (name, "store + evict"), best, pause)
            run(
                subject.touch,
                [newcomers[i : i + args.batch] for i in range(0, len(newcomers), args.batch)],
                (name, "touch"),
                best,
                pause,
            )
            run(subject.load, subject.those_there(used), (name, "pin + unpin"), best, pause)
    print_table(subjects, best, pause)


def make_keys(count: int) -> list[OffloadKey]:
    return [make_offload_key(BlockHash(os.urandom(32)), GroupIdx(0)) for _ in range(count)]


def batches(
    prepare: Callable[[Sequence[OffloadKey]], list[Any]], keys: Sequence[OffloadKey], size: int
) -> list[list[Any]]:
    return [prepare(keys[i : i + size]) for i in range(0, len(keys), size)]


def run(
    call: Callable[[list[Any]], None],
    arguments: list[list[Any]],
    row: tuple[str, str],
    best: dict[tuple[str, str], float],
    pause: dict[str, tuple[float, str]],
) -> None:
    """Times one round of one mode; keeps the best round's mean and the worst call."""
    name, mode = row
    total_ns = 0
    for argument in arguments:
        start = time.thread_time_ns()
        call(argument)
        took_ns = time.thread_time_ns() - start
        total_ns += took_ns
        pause[name] = max(pause[name], (took_ns / 1e6, mode))
    ns = total_ns / sum(map(len, arguments))
    best[row] = min(best.get(row, float("inf")), ns)


def print_table(
    subjects: Collection[str], best: dict[tuple[str, str], float], pause: dict[str, tuple[float, str]]
) -> None:
    print(f"{'ns per key':26}" + "".join(f"{mode:>16}" for mode in MODES) + f"{'longest pause':>28}")
    for name in subjects:
        print(
            f"{name:26}"
            + "".join(f"{best[name, mode]:16.0f}" for mode in MODES)
            + f"{f'{pause[name][0]:.2f} ms ({pause[name][1]})':>28}"
        )
    for peer in (name for name in subjects if name.startswith("vLLM")):
        for name in POLICIES.names():
            ratios = "".join(f"{f'{best[peer, mode] / best[name, mode]:.1f}x':>16}" for mode in MODES)
            print(f"{f'{peer} / {name}':26}" + ratios)


if __name__ == "__main__":
    main()
