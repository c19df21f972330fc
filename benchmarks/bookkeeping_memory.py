"""Bytes of bookkeeping per block of the pool, vLLM's manager and Octavo's in the same run.

    python benchmarks/bookkeeping_memory.py [--blocks 50000]

A pool is filled by requests that end, so every block is cached and nobody holds one. Counted is what Python has
allocated since before the manager was made (tracemalloc): pool, indexes, hashes and the order of eviction. A block is
one layer's 16 tokens; both pools have as many. What a manager costs before anything is cached stands beside it.
"""

import argparse
import gc
import importlib
import random
import sys
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compare_managers import NUM_GROUPS, MakeAdapter, random_tokens

PROMPT_BLOCKS = 256


def measure(make: MakeAdapter, config: str, num_blocks: int) -> tuple[float, float]:
    """Bytes per block when empty, and when everything is cached."""
    make(config, 4 * PROMPT_BLOCKS * NUM_GROUPS[config])  # what is made once for the process
    gc.collect()
    tracemalloc.start()
    adapter = make(config, num_blocks)
    empty = allocated_bytes()
    rng = random.Random(6)
    for _ in range(2 * num_blocks // PROMPT_BLOCKS // NUM_GROUPS[config] + 1):
        request = adapter.new_request(random_tokens(rng, PROMPT_BLOCKS * 16))
        adapter.step()
        adapter.allocate(request, PROMPT_BLOCKS * 16)
        adapter.free(request)
    del request
    full = allocated_bytes()
    tracemalloc.stop()
    return empty / num_blocks, full / num_blocks


def allocated_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=50_000)
    args = parser.parse_args()

    adapters = [importlib.import_module(module).Adapter for module in ("vllm_adapter", "octavo_adapter")]
    print(f"{'bytes per block':16}{'':10}{adapters[0].name:>12}{adapters[1].name:>12}{'ratio':>8}")
    for config in ("full1", "gptoss2", "gemma6"):
        sizes = [measure(make, config, args.blocks) for make in adapters]
        for state, theirs, ours in zip(("empty", "cached"), *sizes, strict=True):
            print(f"{config:16}{state:10}{theirs:12.0f}{ours:12.0f}{theirs / ours:7.1f}x")


if __name__ == "__main__":
    main()
