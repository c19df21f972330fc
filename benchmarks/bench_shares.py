"""One rank's copies between its pages and slots that hold whole pages, beside a memcpy of as many bytes.

    python benchmarks/bench_shares.py [--mib 64] [--rounds 9]

Blocks of 16 tokens of 32 layers with 8 KV heads of 128, K and V in bfloat16, in slots of a whole block, each row and
slot at random. The best round counts, ways in turn. Heads first, a rank's share of a layer is one run; tokens first, it
is one for each token (and for keys and values apart, twice as many, half as long).
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from octavo.chunks import ChunkCopy
from octavo.ids import GroupIdx, Row, Slot
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    CpuWorker,
    attention_page,
    share_page,
)

LAYERS, HEADS, HEAD_BYTES, TOKENS = 32, 8, 256, 16
WAYS = {
    "heads first": attention_page(num_heads=HEADS, head_bytes=2 * HEAD_BYTES, num_tokens=TOKENS, heads_first=True),
    "tokens first": attention_page(num_heads=HEADS, head_bytes=2 * HEAD_BYTES, num_tokens=TOKENS, heads_first=False),
    "tokens first, K and V apart": attention_page(
        num_heads=HEADS, head_bytes=HEAD_BYTES, num_tokens=TOKENS, heads_first=False, are_halves_apart=True
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="that one rank moves in a round")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    total = args.mib << 20
    calls: dict[str, Callable[[], object]] = {"memcpy": memcpy(total)}
    for num_ranks in (1, 2, 4, 8):
        for name in WAYS if num_ranks > 1 else ["heads first"]:
            calls |= copies(f"{num_ranks} ranks, {name}", name, num_ranks, total)
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(args.rounds):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - started)
    for name, seconds in best.items():
        print(f"{name:45}{total / seconds / 1e9:8.1f} GB/s{best['memcpy'] / seconds:8.2f}")


def memcpy(total: int) -> Callable[[], object]:
    source, to = np.ones(total, np.uint8), np.ones(total, np.uint8)
    return lambda: np.copyto(to, source)


def copies(title: str, way: str, num_ranks: int, total: int) -> dict[str, Callable[[], object]]:
    """Rank 0's stores and loads."""
    share = share_page(WAYS[way] * LAYERS, 0, num_ranks)
    num_blocks = total // share.page_bytes
    rows = torch.ones((num_blocks, share.page_bytes), dtype=torch.int8)
    caches = CanonicalKVCaches(
        tensors=(CanonicalKVCacheTensor(tensor=rows, page_size_bytes=share.page_bytes),),
        group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=share.page_bytes),),),
    )
    worker = CpuWorker(
        caches, np.ones((num_blocks, share.whole_bytes), np.uint8), shares=[share], inline_bytes=total * 8
    )
    random = np.random.default_rng(0)
    places = zip(random.permutation(num_blocks).tolist(), random.permutation(num_blocks).tolist(), strict=True)
    chunks = [ChunkCopy(GroupIdx(0), [Row(row)], [Slot(slot)]) for row, slot in places]

    def run(submit: Callable[[int, list[ChunkCopy]], None]) -> None:
        submit(0, chunks)
        assert not worker.get_finished()[0].failed

    return {f"{title}: store": lambda: run(worker.submit_store), f"{title}: load": lambda: run(worker.submit_load)}


if __name__ == "__main__":
    main()
