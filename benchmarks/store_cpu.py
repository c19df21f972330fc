"""CPU time that storing takes beside computing: of the engine's other threads and of the store's server.

    python benchmarks/store_cpu.py [--store s3 redis] [--prompt 1024] [--rounds 4] [--kind "state + full"]

A prompt that nobody knows, with a store on the same machine and one thread that computes: whatever else runs before the
first token would take turns with it where all cores compute. "In all" ends when everything is stored. On Linux.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from bench_resume_ttft import FLUSH_TIMEOUT_S, Side, make_side, start_stores
from engine_models import KINDS, SHAPE, save_model

from octavo.engine import SamplingParams


class Spent(NamedTuple):
    """CPU time, in seconds."""

    computing: float
    threads: float
    server: float

    @classmethod
    def now(cls) -> "Spent":
        own = time.thread_time()
        return cls(own, time.process_time() - own, sum(map(seconds_of, descendants(os.getpid()))))

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(a - b for a, b in zip(self, before, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", nargs="*", default=["s3", "redis"], choices=["s3", "redis"])
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kind", default="state + full", choices=list(KINDS))
    args = parser.parse_args()
    args.prefix, args.question, args.device, args.latency_ms = args.prompt, 0, "cpu", [0]
    torch.set_num_threads(1)
    print(f"{'ms, median':20}{'computing':>12}{'before the first token: threads':>34}{'server':>8}", end="")
    print(f"{'in all: threads':>18}{'server':>8}")
    for store in args.store:
        with ExitStack() as stack:
            args.store = [store]
            ((name, settings),) = start_stores(stack, args).items()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            save_model(args.kind, folder / "model")
            side = make_side(folder / "model", args, {"staging": "128MiB", "shared": settings})
            chooser = random.Random(0)
            prompts = [
                [chooser.randrange(3, SHAPE["vocab_size"]) for _ in range(args.prompt)] for _ in range(args.rounds)
            ]
            rounds = [ask(side, prompt) for prompt in prompts]
            side.engine.close()
        to_first, in_all = (Spent(*map(median, zip(*part, strict=True))) for part in zip(*rounds, strict=True))
        print(
            f"{name:20}{to_first.computing * 1e3:12.0f}{to_first.threads * 1e3:34.0f}{to_first.server * 1e3:8.0f}",
            end="",
        )
        print(f"{in_all.threads * 1e3:18.0f}{in_all.server * 1e3:8.0f}", flush=True)


def ask(side: Side, prompt: list[int]) -> tuple[Spent, Spent]:
    """Until the first token, and until all is stored."""
    assert side.offload is not None
    side.engine.manager.reset_prefix_cache()
    begun = Spent.now()
    side.engine.add_request("question", prompt, SamplingParams(max_tokens=1, temperature=0, ignore_eos=True))
    while side.engine.has_unfinished:
        side.engine.step()
    to_first = Spent.now().since(begun)
    if not side.offload.flush(FLUSH_TIMEOUT_S, time.monotonic):
        sys.exit("stores do not end")
    return to_first, Spent.now().since(begun)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for child in found:
        found += children.get(child, [])
    return found


def seconds_of(pid: int) -> float:
    """CPU time of all threads of a process."""
    total = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(schedstat.read_text().split()[0])
        except OSError:  # it has ended
            continue
    return total / 1e9


if __name__ == "__main__":
    main()
