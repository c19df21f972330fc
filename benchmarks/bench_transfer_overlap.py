"""Do transfers and compute run at the same time? A transfer alone, matrix products alone, and both at once.

    python benchmarks/bench_transfer_overlap.py [--device cuda] [--mib 512] [--page-kib 256] [--rounds 5] [--size 4096]

The products last about as long as the transfer. "overlap" is the longer of the two alone over both together: 1.00 is
perfect, 0.50 is one after the other. "compute" is what the products alone take over what they take beside a transfer.
Rows are measured in turn, and the best round counts. On a CPU both share the cores, so the figures only show that this
script runs.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from bench_transfer import Bench, Buffers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--page-kib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=4096, help="of the matrices")
    args = parser.parse_args()
    buffers = Buffers(args.device, args.mib << 20, args.mib << 20)
    bench = Bench(buffers, args.page_kib << 10)
    compute = Products(buffers.device, args.size)
    compute.last_about(timed(partial(transfer, bench, "load")))
    print(f"{'':8}{'alone ms':>10}{'products ms':>13}{'both ms':>9}{'overlap':>9}{'compute':>9}")
    for way in ("store", "load"):
        best = measure(bench, compute, way, args.rounds)
        overlap = max(best["transfer"], best["compute"]) / best["both"]
        beside = best["compute"] / best["compute beside"]
        figures = f"{best['transfer'] * 1e3:10.1f}{best['compute'] * 1e3:13.1f}{best['both'] * 1e3:9.1f}"
        print(f"{way:8}{figures}{overlap:8.2f}x{beside:8.2f}x")
    bench.close()


class Products:
    """Matrix products on the device, one after the other."""

    def __init__(self, device: torch.device, size: int) -> None:
        self._device, self._count = device, 1
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        self._left, self._right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        self._result = torch.empty_like(self._left)

    def last_about(self, seconds: float) -> None:
        """Takes as many products as last so long."""
        self.run()
        one = min(timed(self.run) for _ in range(3))
        self._count = max(1, round(seconds / one))

    def run(self) -> None:
        for _ in range(self._count):
            torch.mm(self._left, self._right, out=self._result)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()


def measure(bench: Bench, compute: Products, way: str, rounds: int) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        seconds = {"transfer": timed(partial(transfer, bench, way)), "compute": timed(compute.run)}
        start = time.perf_counter()
        num_jobs = submit(bench, way)
        seconds["compute beside"] = timed(compute.run)
        finish(bench, num_jobs)
        seconds["both"] = time.perf_counter() - start
        best = {name: min(best.get(name, float("inf")), found) for name, found in seconds.items()}
    return best


def transfer(bench: Bench, way: str) -> None:
    finish(bench, submit(bench, way))


def submit(bench: Bench, way: str) -> int:
    """The number of jobs."""
    chunks = bench.chunks(None)
    steps = range(0, len(chunks), bench.pages_per_step)
    send = bench.plain.submit_store if way == "store" else bench.plain.submit_load
    for job_id, start in enumerate(steps):
        send(job_id, chunks[start : start + bench.pages_per_step])
    return len(steps)


def finish(bench: Bench, num_jobs: int) -> None:
    assert bench.plain.wait(range(num_jobs), 60)
    assert not any(result.failed for result in bench.plain.get_finished())


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
