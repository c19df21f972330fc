"""Calls of the offloading manager at a million keys, beside vLLM's CPU offloading manager where it is installed.

    python benchmarks/bench_offload_manager.py [--keys 1048576] [--batch 256] [--batches 200] [--rounds 5]

Both keep as many chunks of one slot as there are keys. In each turn a run that is there is looked up, touched and
loaded, and as many new chunks are stored; all was replaced once in this way before the first round. Columns are
nanoseconds of thread CPU time per key, best round of several, in turn; then the longest of all calls and of all garbage
collections in them, whatever else the machine did meanwhile, and bytes per key. Last, what the longest pause of each
call of Octavo's, a reset among them, is by its own work: see `offload_pauses`.
"""

import argparse
import gc
import importlib.util
import multiprocessing
import random
import time
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import Any

from offload_pauses import longest_pauses

from octavo.chunks import (
    GroupOffloadConfig,
    OffloadKey,
    PromisedPoint,
    WantedChunk,
    get_offload_block_hash,
    make_offload_key,
)
from octavo.host import HostArena
from octavo.ids import BlockHash, GroupIdx
from octavo.offload import OffloadingManager
from octavo.policies import POLICIES, make_policy
from octavo.specs import FullAttentionSpec

SLOT_BYTES = 64
"""Bytes are not touched here."""
SPEC = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1)
GROUPS = (GroupOffloadConfig(spec=SPEC, blocks_per_chunk=1, page_size_bytes=SLOT_BYTES),)
LONGEST, COLLECTION, MEMORY = "longest ms", "collection ms", "bytes per key"
Run = tuple[OffloadKey, ...]
COLUMNS = ("lookup", "touch", "load", "store+evict", "complete_store")


class Octavo:
    def __init__(self, policy: str, num_keys: int) -> None:
        self.manager = OffloadingManager(HostArena(num_keys, SLOT_BYTES), GROUPS, make_policy(policy, GROUPS, num_keys))
        self.lookup = self.manager.lookup
        self.touch = self.manager.touch

    def chunks(self, keys: Run) -> Any:
        return [
            WantedChunk(key, position, keys[position - 1] if position else None) for position, key in enumerate(keys)
        ]

    def load(self, keys: Run) -> None:
        prepared = self.manager.prepare_load(keys)
        assert prepared is not None
        self.manager.complete_load(prepared.job_id)

    def prepare_store(self, chunks: Any) -> Any:
        promised = PromisedPoint(chunks[-1].position * 16 + 16, get_offload_block_hash(chunks[-1].key))
        return self.manager.prepare_store(chunks, [promised])

    def complete_store(self, chunks: Any, prepared: Any) -> None:
        self.manager.complete_store(prepared.job_id)


class Vllm:
    def __init__(self, policy: str, num_keys: int) -> None:
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        self.manager = CPUOffloadingManager(num_keys, cache_policy=policy)
        self.new_context: Callable[[], Any] = lambda: ReqContext(req_id="r")
        self.context = self.new_context()

    def chunks(self, keys: Run) -> Any:
        return keys

    def lookup(self, keys: Run) -> list[Any]:
        lookup, context = self.manager.lookup, self.context
        return [lookup(key, context) for key in keys]

    def touch(self, keys: Run) -> None:
        self.manager.touch(keys, self.context)

    def load(self, keys: Run) -> None:
        context = self.new_context()
        self.manager.prepare_load(keys, context)
        self.manager.complete_load(keys, context)
        self.manager.on_request_finished(context)  # counts as a use

    def prepare_store(self, chunks: Any) -> Any:
        self.context = self.new_context()
        return self.manager.prepare_store(chunks, self.context)

    def complete_store(self, chunks: Any, prepared: Any) -> None:
        self.manager.complete_store(chunks, self.context)
        self.manager.on_request_finished(self.context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1 << 20, help="a multiple of the batch")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    makers: dict[str, Callable[[int], Any]] = {f"octavo {name}": partial(Octavo, name) for name in POLICIES.names()}
    if importlib.util.find_spec("vllm"):
        makers |= {f"vLLM {name}": partial(Vllm, name) for name in ("lru", "arc")}
    else:
        print("vLLM is not installed here: its rows are left out")
    print_table(measure(makers, args))
    make_run = partial(make_run_of, args.batch)
    for name in POLICIES.names():
        pauses = longest_pauses(partial(Octavo, name, args.keys), make_run, args.keys // args.batch)
        print(f"{f'octavo {name}':24}longest ms: " + ", ".join(f"{call} {ms:.1f}" for call, ms in pauses.items()))


def measure(makers: dict[str, Callable[[int], Any]], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Each manager has a process of its own, or one's objects would be in the other's garbage collections. They take
    turns, round by round; the best round counts, and the longest pause of all."""
    fork = multiprocessing.get_context("fork")
    lines, processes = {}, []
    for name, make in makers.items():
        lines[name], far_end = fork.Pipe()
        processes.append(fork.Process(target=serve, args=(far_end, make, args), daemon=True))
        processes[-1].start()
        far_end.close()
        lines[name].recv()  # filled
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in makers}
    for _ in range(args.rounds):
        for name, line in lines.items():
            line.send("go")
            rounds[name].append(line.recv())
    for process in processes:
        process.terminate()
    return {
        name: {
            column: (max if column in (LONGEST, COLLECTION) else min)(figures[column] for figures in own)
            for column in (*COLUMNS, LONGEST, COLLECTION, MEMORY)
        }
        for name, own in rounds.items()
    }


def serve(line: Connection, make: Callable[[int], Any], args: argparse.Namespace) -> None:
    bytes_per_key = measure_memory(make, args)
    rng = random.Random(0)
    num_runs = args.keys // args.batch
    ring = Ring(args.keys, args.batch)
    gc.collect()
    gc.freeze()  # as engines do once all is imported: collections count from here
    collections = Collections()
    manager = make(args.keys)
    longest = fill(manager, map(ring.__getitem__, range(num_runs)))
    num_stored = num_runs

    def turn() -> dict[str, int]:
        """Nanoseconds of each call: new chunks come, those of a run that is there are used."""
        nonlocal num_stored
        is_there = False
        while not is_there:
            run = ring[rng.randrange(num_runs)]
            began = time.thread_time_ns()
            stands = manager.lookup(run)
            took = {"lookup": time.thread_time_ns() - began}
            is_there = all(map(is_hit, stands))
        new = make_keys(num_stored * args.batch, args.batch)
        took |= one_of_each(manager, run, new)
        ring[num_stored % num_runs] = new
        num_stored += 1
        return took

    for _ in range(num_runs):  # until what is evicted is a mixture of used and unused
        longest = max(longest, *turn().values())
    line.send("filled")
    while line.recv():
        total = dict.fromkeys(COLUMNS, 0)
        for _ in range(args.batches):
            for name, took in turn().items():
                total[name] += took
                longest = max(longest, took)
        figures = {name: took / (args.batches * args.batch) for name, took in total.items()}
        line.send({**figures, LONGEST: longest / 1e6, COLLECTION: collections.longest_ns / 1e6, MEMORY: bytes_per_key})


class Ring:
    """The keys that should be there, in one list that was made before collections count: none looks into it."""

    def __init__(self, num_keys: int, batch: int) -> None:
        self._keys = list(make_keys(0, num_keys))
        self._batch = batch

    def __getitem__(self, number: int) -> Run:
        return tuple(self._keys[number * self._batch : (number + 1) * self._batch])

    def __setitem__(self, number: int, run: Run) -> None:
        self._keys[number * self._batch : (number + 1) * self._batch] = run


class Collections:
    """The longest garbage collection since it was made."""

    def __init__(self) -> None:
        self.longest_ns = self._began = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time_ns()
        else:
            self.longest_ns = max(self.longest_ns, time.thread_time_ns() - self._began)


def is_hit(stand: Any) -> bool:
    return bool(stand.name == "HIT")


def one_of_each(manager: Any, run: Run, new: Run) -> dict[str, int]:
    """Nanoseconds of each further call."""
    took = {}
    chunks = manager.chunks(new)
    prepared: Any = None

    def prepare_store() -> None:
        nonlocal prepared
        prepared = manager.prepare_store(chunks)

    calls: dict[str, Callable[[], Any]] = {
        "touch": lambda: manager.touch(run),
        "load": lambda: manager.load(run),
        "store+evict": prepare_store,
        "complete_store": lambda: manager.complete_store(chunks, prepared),
    }
    for name, call in calls.items():
        began = time.thread_time_ns()
        call()
        took[name] = time.thread_time_ns() - began
    return took


def fill(manager: Any, runs: Iterable[Run]) -> int:
    """Nanoseconds of the longest call."""
    longest = 0
    for run in runs:
        chunks = manager.chunks(run)
        began = time.thread_time_ns()
        prepared = manager.prepare_store(chunks)
        between = time.thread_time_ns()
        manager.complete_store(chunks, prepared)
        longest = max(longest, between - began, time.thread_time_ns() - between)
    return longest


def measure_memory(make: Callable[[int], Any], args: argparse.Namespace) -> float:
    """Bytes per key, the key itself included, of a full manager a tenth as large."""
    num_runs: int = args.keys // 10 // args.batch
    num_keys = num_runs * args.batch
    make(args.batch)  # imports what it needs
    tracemalloc.start()
    manager = make(num_keys)
    fill(manager, [make_keys(i * args.batch, args.batch) for i in range(num_runs)])
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return float(used / num_keys)


def make_keys(first: int, count: int) -> Run:
    digests = (blake2b(n.to_bytes(8, "big"), digest_size=32).digest() for n in range(first, first + count))
    return tuple(make_offload_key(BlockHash(digest), GroupIdx(0)) for digest in digests)


def make_run_of(batch: int, number: int) -> Run:
    return make_keys(number * batch, batch)


def print_table(results: dict[str, dict[str, float]]) -> None:
    columns = (*COLUMNS, LONGEST, COLLECTION, MEMORY)
    print(f"{'ns per key':24}" + "".join(f"{column:>16}" for column in columns))
    for name, figures in results.items():
        print(f"{name:24}" + "".join(f"{figures[column]:16.1f}" for column in columns))
    for peer in (name for name in results if name.startswith("vLLM")):
        for name in (name for name in results if name.startswith("octavo")):
            ratios = [results[peer][column] / max(results[name][column], 1e-3) for column in columns]
            print(f"{f'{peer} / {name}':32}" + "".join(f"{ratio:16.1f}" for ratio in ratios)[8:])


if __name__ == "__main__":
    main()
