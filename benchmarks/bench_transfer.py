"""Store and load through the CPU worker, beside one memcpy of as many bytes between the same buffers.

    python benchmarks/bench_transfer.py [--mib 64] [--buffer-mib 512] [--rounds 9] [--pages-kib 16 64 ...]

Each round moves other pages: random rows of the device to random slots of the arena, or back, against a memcpy of one
piece from a random place to another: the best case, which no copy of random pages can reach. A page fills a slot. Rows
are measured in turn, and the best round counts. "verified": checksums are taken by stores, and checked by loads. "in
steps": the same as jobs of 1 MiB, as an engine's steps bring them.

For a memcpy of more than a part of the last cache (100 MiB on a Xeon with 260), glibc writes past the cache, which is
up to 1.8 times as fast and which no copy of a page is long enough for: --mib 256 shows it.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from xxhash import xxh3_64_intdigest

from octavo.chunks import ChunkCopy
from octavo.transfer import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor, CpuWorker

PAGES_KIB = (16, 64, 256, 2048, 8192)
STEP_BYTES = 1 << 20
FLOORS = {("plain", 16): 0.65, ("plain", 64): 0.8, ("verified", 16): 0.35, ("verified", 64): 0.6}
"""What Octavo promises: by kind and the page size in KiB from which it holds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--buffer-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pages-kib", type=int, nargs="+", default=PAGES_KIB)
    args = parser.parse_args()
    total, buffer_bytes = args.mib << 20, max(args.mib, args.buffer_mib) << 20
    # All pages are alike, so whatever was moved before, every checksum is right, and no slot need be stored first.
    device, arena = np.full(buffer_bytes, 7, np.uint8), np.full(buffer_bytes, 7, np.uint8)
    print(f"{'page':>9}{'':24}{'GB/s':>8}{'x memcpy':>10}")
    for page_kib in args.pages_kib:
        best = measure(Bench(device, arena, page_kib << 10, total), args.rounds)
        for name, seconds in best.items():
            ratio = best["memcpy"] / seconds
            floor = floor_of(name, page_kib)
            verdict = "" if floor is None else f"   floor {floor}" + ("" if ratio >= floor else "  MISSED")
            print(f"{page_kib:5} KiB  {name:24}{total / seconds / 1e9:8.1f}{ratio:10.2f}{verdict}")


class Bench:
    """The buffers as rows and slots of pages, and a worker that takes checksums beside one that does not."""

    def __init__(self, device: np.ndarray, arena: np.ndarray, page: int, total: int) -> None:
        self.device, self.arena, self.total = device, arena, total
        self.rng = np.random.default_rng(0)
        self.num_pages = total // page
        self.pages_per_step = max(1, STEP_BYTES // page)
        tensor = torch.from_numpy(device).view(torch.int8).view(-1, page)
        caches = CanonicalKVCaches(
            tensors=(CanonicalKVCacheTensor(tensor=tensor, page_size_bytes=page),),
            group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=page),),),
        )
        self.slots = arena.reshape(-1, page)
        self.checksum = xxh3_64_intdigest(self.slots[0])
        self.plain = CpuWorker(caches, self.slots)
        self.verifying = CpuWorker(caches, self.slots, take_checksums=True)

    def calls(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Name -> what moves the bytes once. Each is to be timed when it comes."""
        first, second = (int(self.rng.integers(0, len(self.device) - self.total + 1)) & ~4095 for _ in range(2))
        to, source = self.arena[first : first + self.total], self.device[second : second + self.total]
        yield "memcpy", lambda: np.copyto(to, source)
        for suffix, worker, checksum, pages_per_job in (
            ("", self.plain, None, self.num_pages),
            (", in steps", self.plain, None, self.pages_per_step),
            (", verified", self.verifying, self.checksum, self.num_pages),
        ):
            for name, submit in (("store", worker.submit_store), ("load", worker.submit_load)):
                chunks = self.chunks(checksum)
                jobs = [chunks[i : i + pages_per_job] for i in range(0, self.num_pages, pages_per_job)]
                yield name + suffix, partial(run, submit, worker, jobs)

    def chunks(self, checksum: int | None) -> list[ChunkCopy]:
        rows, slots = (self.rng.permutation(len(self.slots))[: self.num_pages].tolist() for _ in range(2))
        return [ChunkCopy(0, [row], [slot], checksum) for row, slot in zip(rows, slots, strict=True)]

    def close(self) -> None:
        self.plain.close()
        self.verifying.close()


def run(submit: Callable[[int, Any], None], worker: CpuWorker, jobs: list[list[ChunkCopy]]) -> None:
    for job_id, chunks in enumerate(jobs):
        submit(job_id, chunks)
    assert worker.wait(range(len(jobs)), 60)
    results = worker.get_finished()
    assert len(results) == len(jobs)
    assert not any(result.failed for result in results)


def measure(bench: Bench, rounds: int) -> dict[str, float]:
    """The best seconds of each row."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in bench.calls():
            start = time.perf_counter()
            call()
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    bench.close()
    return best


def floor_of(name: str, page_kib: int) -> float | None:
    if name == "memcpy" or "in steps" in name:
        return None
    kind = "verified" if "verified" in name else "plain"
    return FLOORS[kind, 16 if page_kib < 64 else 64]


if __name__ == "__main__":
    main()
