"""Store and load through a device's worker, beside one copy of as many bytes, which is the limit.

    python benchmarks/bench_transfer.py [--device cpu] [--mib 64] [--buffer-mib 512] [--rounds 9] [--pages-kib 16 ...]

Each round moves other pages: random rows of the device to random slots of the arena, or back. The limit is one piece
from a random place to another, which no copy of random pages can reach: on a CPU a memcpy between the same buffers, on
a GPU a copy between the device and pinned memory, over the link. A page fills a slot. Rows are measured in turn, and
the best round counts. "verified": checksums are taken by stores, and checked by loads. "in steps": the same as jobs of
1 MiB, as an engine's steps bring them.

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
from octavo.ids import GroupIdx
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    OffloadingWorker,
    make_worker,
)

PAGES_KIB = (16, 64, 256, 2048, 8192)
STEP_BYTES = 1 << 20
FLOORS = {("plain", 16): 0.65, ("plain", 64): 0.8, ("verified", 16): 0.35, ("verified", 64): 0.6}
"""What Octavo promises on a CPU: by kind and the page size in KiB from which it holds."""
FLOORS_ON_A_GPU = {1024: 0.85, 256: 0.75, 64: 0.5}
"""Of the link, without checksums: by the page size in KiB from which it holds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--buffer-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pages-kib", type=int, nargs="+", default=PAGES_KIB)
    args = parser.parse_args()
    total, buffer_bytes = args.mib << 20, max(args.mib, args.buffer_mib) << 20
    buffers = Buffers(args.device, buffer_bytes, total)
    print(f"{'page':>9}{'':24}{'GB/s':>8}{'x limit':>10}")
    for page_kib in args.pages_kib:
        best = measure(Bench(buffers, page_kib << 10), args.rounds)
        for name, seconds in best.items():
            ratio = best[buffers.limit_of(name)] / seconds
            floor = floor_of(name, page_kib, buffers.device)
            verdict = "" if floor is None else f"   floor {floor}" + ("" if ratio >= floor else "  MISSED")
            print(f"{page_kib:5} KiB  {name:24}{total / seconds / 1e9:8.1f}{ratio:10.2f}{verdict}")


class Buffers:
    """A device's memory and an arena, and the fastest way between them.

    All pages are alike, so whatever was moved before, every checksum is right, and no slot need be stored first.
    """

    def __init__(self, device: str, num_bytes: int, total: int) -> None:
        self.device, self.num_bytes, self.total = torch.device(device), num_bytes, total
        self.rows = torch.full((num_bytes,), 7, dtype=torch.int8, device=self.device)
        self.arena = np.full(num_bytes, 7, np.uint8)
        self.second_arena = np.full(num_bytes, 7, np.uint8) if self.has_link else self.arena
        self._pinned = torch.full((total,), 7, dtype=torch.int8, pin_memory=True) if self.has_link else None

    @property
    def has_link(self) -> bool:
        return self.device.type != "cpu"

    def limits(self, rng: np.random.Generator) -> Iterator[tuple[str, Callable[[], Any]]]:
        first, second = (int(rng.integers(0, self.num_bytes - self.total + 1)) & ~4095 for _ in range(2))
        piece = self.rows[first : first + self.total]
        if self._pinned is None:
            to, source = self.arena[second : second + self.total], piece.numpy().view(np.uint8)
            yield "memcpy", lambda: np.copyto(to, source)
        else:
            yield "link, store", partial(self._copy, self._pinned, piece)
            yield "link, load", partial(self._copy, piece, self._pinned)

    def _copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        to.copy_(source, non_blocking=True)
        torch.cuda.synchronize(self.device)

    def limit_of(self, name: str) -> str:
        if not self.has_link:
            return "memcpy"
        return "link, store" if "store" in name else "link, load"


class Bench:
    """The buffers as rows and slots of pages, and a worker that takes checksums beside one that does not."""

    def __init__(self, buffers: Buffers, page: int) -> None:
        self.buffers = buffers
        self.rng = np.random.default_rng(0)
        self.num_pages = buffers.total // page
        self.pages_per_step = max(1, STEP_BYTES // page)
        caches = CanonicalKVCaches(
            tensors=(CanonicalKVCacheTensor(tensor=buffers.rows.view(-1, page), page_size_bytes=page),),
            group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=page),),),
        )
        self.slots = buffers.arena.reshape(-1, page)
        self.checksum = xxh3_64_intdigest(self.slots[0])
        self.plain = make_worker(caches, self.slots)
        # Only one worker can pin an arena for a GPU.
        self.verifying = make_worker(caches, buffers.second_arena.reshape(-1, page), take_checksums=True)

    def calls(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Name -> what moves the bytes once. Each is to be timed when it comes."""
        yield from self.buffers.limits(self.rng)
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
        return [ChunkCopy(GroupIdx(0), [row], [slot], checksum) for row, slot in zip(rows, slots, strict=True)]

    def close(self) -> None:
        self.plain.close()
        self.verifying.close()


def run(submit: Callable[[int, Any], None], worker: OffloadingWorker, jobs: list[list[ChunkCopy]]) -> None:
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


def floor_of(name: str, page_kib: int, device: torch.device) -> float | None:
    if name.startswith(("memcpy", "link")) or "in steps" in name:
        return None
    if device.type != "cpu":
        floors = [floor for least, floor in FLOORS_ON_A_GPU.items() if page_kib >= least]
        return None if "verified" in name else max(floors, default=None)
    kind = "verified" if "verified" in name else "plain"
    return FLOORS[kind, 16 if page_kib < 64 else 64]


if __name__ == "__main__":
    main()
