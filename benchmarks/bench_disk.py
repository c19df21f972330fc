"""The disk tier beside raw O_DIRECT of the same size and depth, on the same disk, in the same run.

    python benchmarks/bench_disk.py [--encrypted] [--folder /nvme/scratch] [--mebibytes 192] [--rounds 4] [--depth 4]

Both sides move whole chunks of one size, made and read back in the same order; the tier's go through its public
contract, in jobs of `--depth` chunks from slots of an arena, and every read is verified. Raw writes and reads keep
`--depth` chunks under way too: one call each for writes (one writer), a thread each for reads. Interleaved, round after
round; the best round counts. A second table: bytes of memory per key, the longest calls, and the start at many keys.
`--encrypted` measures an encrypted tier beside the plain one instead.
"""

import argparse
import gc
import mmap
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from octavo.chunks import ALL_BLOCKS, ChunkBytes, OffloadKey, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier, RecordCipher

SIZES = (16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20)
SLOT_BYTES = 64 << 10
NAMESPACE = bytes(range(16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--mebibytes", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--encrypted", action="store_true")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-disk-", dir=args.folder))
    try:
        if args.encrypted:
            bench_encrypted(folder, args.sizes, args.mebibytes << 20, args.rounds, args.depth)
            return
        bench_bytes(folder, args.sizes, args.mebibytes << 20, args.rounds, args.depth)
        bench_keys(folder, args.keys)
    finally:
        shutil.rmtree(folder)


def bench_bytes(folder: Path, sizes: Sequence[int], total: int, rounds: int, depth: int) -> None:
    print(f"GB/s, {total >> 20} MiB a round, depth {depth}; ratio: tier / raw")
    print(
        f"{'chunk':>8} | {'raw':>6}{'tier':>7}{'ratio':>7}  store | {'raw':>6}{'tier':>7}{'ratio':>7}  load, verified"
    )
    for size in sizes:
        raw, tier = RawDisk(folder / "raw", size, total, depth), TierDisk(folder / "tier", size, total, depth)
        best = dict.fromkeys(("raw store", "tier store", "raw load", "tier load"), float("inf"))
        for _ in range(rounds):
            tier.fresh()
            for name, run in (
                ("raw store", raw.store),
                ("tier store", tier.store),
                ("raw load", raw.load),
                ("tier load", tier.load),
            ):
                best[name] = min(best[name], timed(run))
        tier.close()
        speed = {name: total / seconds / 1e9 for name, seconds in best.items()}
        stored, loaded = speed["tier store"] / speed["raw store"], speed["tier load"] / speed["raw load"]
        print(
            f"{size >> 10:5} KiB | {speed['raw store']:6.2f}{speed['tier store']:7.2f}{stored:7.2f}        | "
            f"{speed['raw load']:6.2f}{speed['tier load']:7.2f}{loaded:7.2f}"
        )


def bench_encrypted(folder: Path, sizes: Sequence[int], total: int, rounds: int, depth: int) -> None:
    print(f"GB/s, {total >> 20} MiB a round, depth {depth}; ratio: encrypted / plain")
    print(f"{'chunk':>8} | {'plain':>6}{'encr.':>7}{'ratio':>7}  store | {'plain':>6}{'encr.':>7}{'ratio':>7}  load")
    for size in sizes:
        plain = TierDisk(folder / "plain", size, total, depth)
        encrypted = TierDisk(folder / "encrypted", size, total, depth, RecordCipher(bytes(range(32))))
        best = dict.fromkeys(("plain store", "encrypted store", "plain load", "encrypted load"), float("inf"))
        for _ in range(rounds):
            for name, tier in (("plain", plain), ("encrypted", encrypted)):
                tier.fresh()
                best[f"{name} store"] = min(best[f"{name} store"], timed(tier.store))
                best[f"{name} load"] = min(best[f"{name} load"], timed(tier.load))
        plain.close()
        encrypted.close()
        cells = []
        for way in ("store", "load"):
            speeds = [total / best[f"{name} {way}"] / 1e9 for name in ("plain", "encrypted")]
            cells.append(f"{speeds[0]:6.2f}{speeds[1]:7.2f}{speeds[1] / speeds[0]:7.2f}        ")
        print(f"{size >> 10:5} KiB | " + "| ".join(cells))


class RawDisk:
    """Aligned memory to one preallocated file, with O_DIRECT, and back; synced at the end as the tier is flushed."""

    def __init__(self, path: Path, size: int, total: int, depth: int) -> None:
        self._path, self._size, self._total = path, size, total
        self._buffers = [filled(size) for _ in range(depth)]
        self._threads = ThreadPoolExecutor(depth)

    def store(self) -> None:
        self._path.unlink(missing_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        os.posix_fallocate(fd, 0, self._total)
        for i, offset in enumerate(range(0, self._total, self._size)):
            os.pwrite(fd, self._buffers[i % len(self._buffers)], offset)
        os.fdatasync(fd)
        os.close(fd)

    def load(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
        depth = len(self._buffers)

        def read(lane: int) -> None:
            for offset in range(lane * self._size, self._total, depth * self._size):
                os.preadv(fd, [self._buffers[lane]], offset)

        list(self._threads.map(read, range(depth)))
        os.close(fd)


class TierDisk:
    """The same chunks through the contract: from slots of an arena, and back into them."""

    def __init__(self, path: Path, size: int, total: int, depth: int, cipher: RecordCipher | None = None) -> None:
        self._path, self._size, self._depth, self._cipher = path, size, depth, cipher
        self._budget = str(int(total * 1.5) + (1 << 30))
        slots = [filled(SLOT_BYTES)[:] for _ in range(max(1, size // SLOT_BYTES) * depth * 2)]
        random.Random(0).shuffle(slots)
        per_chunk = max(1, size // SLOT_BYTES)
        piece = min(size, SLOT_BYTES)
        self._lanes = [[slot[:piece] for slot in slots[i * per_chunk : (i + 1) * per_chunk]] for i in range(2 * depth)]
        self._num_jobs = total // size // depth
        self._tier: DiskTier | None = None

    def fresh(self) -> None:
        self.close()
        config = DiskConfig.from_mapping(
            {"path": str(self._path), "size": self._budget, "segment_size": "256MiB", "read_threads": self._depth}
        )
        self._tier = DiskTier(
            config, TierContext(namespace=NAMESPACE, max_chunk_bytes=self._size), DiskIO(), self._cipher
        )

    def close(self) -> None:
        if self._tier is not None:
            self._tier.close()
            shutil.rmtree(self._path)

    def store(self) -> None:
        assert self._tier is not None
        self._run(self._tier.submit_store)
        assert self._tier.flush(60.0)

    def load(self) -> None:
        assert self._tier is not None
        self._run(self._tier.submit_load)

    def _run(self, submit: Callable[[int, list[ChunkBytes]], bool]) -> None:
        """Two jobs under way: while one ends the next is there."""
        tier, submitted, ended = self._tier, 0, 0
        assert tier is not None
        while ended < self._num_jobs:
            if submitted < self._num_jobs and submitted - ended < 2:
                half = submitted % 2 * self._depth
                chunks = [
                    ChunkBytes(key_of(submitted * self._depth + i), self._lanes[half + i], ALL_BLOCKS)
                    for i in range(self._depth)
                ]
                assert submit(submitted, chunks)
                submitted += 1
                continue
            results = tier.poll(time.monotonic())
            assert not any(result.failed for result in results)
            ended += len(results)
            if not results:
                tier.wait(1.0)


def bench_keys(folder: Path, num_keys: int) -> None:
    """An index of many keys: one sparse log whose summaries name them, opened as any other."""
    from disk_many_keys import make_log  # beside this file

    directory = folder / "keys"
    total = make_log(directory, NAMESPACE, num_keys)
    config = DiskConfig.from_mapping(
        {"path": str(directory), "size": str(2 * total + (1 << 31)), "segment_size": "64MiB"}
    )
    context = TierContext(namespace=NAMESPACE, max_chunk_bytes=1 << 20)
    empty = DiskTier(DiskConfig.from_mapping({"path": str(folder / "empty"), "size": "1GiB"}), context, DiskIO())
    gc.collect()
    gc.freeze()  # what Python and numpy brought along is none of the tier's
    without = resident_bytes()
    empty.close()
    del empty
    gc.collect()
    buffers = without - resident_bytes()
    before, start = resident_bytes(), time.perf_counter()
    tier = DiskTier(config, context, DiskIO())
    opened = time.perf_counter() - start
    print(f"\n{tier.status().num_chunks:,} keys: opened in {opened:.2f} s, ", end="")
    print(f"{(resident_bytes() - before - buffers) / num_keys:.0f} bytes of memory per key")
    draw = random.Random(0)
    batch = [[key_of(draw.randrange(num_keys)) for _ in range(256)] for _ in range(400)]
    slots = [memoryview(bytearray(4096)) for _ in range(256)]
    clock = iter(range(1 << 40))
    number = iter(range(num_keys, 1 << 40))

    def store_256() -> None:
        chunks = [ChunkBytes(key_of(next(number)), [slot], ALL_BLOCKS) for slot in slots]
        tier.submit_store(next(clock), chunks)

    calls: dict[str, Callable[[], object]] = {
        "lookup": lambda: tier.lookup(batch[next(clock) % 400]),
        "touch": lambda: tier.touch(batch[next(clock) % 400]),
        "store": store_256,
        "poll": lambda: tier.poll(time.monotonic()),
        "remove": lambda: tier.remove(batch[next(clock) % 400]),
        "take_changes": tier.take_changes,
    }
    print(f"{'in batches of 256':>18}{'ns per key':>12}{'longest call, ms of thread CPU':>34}")
    spent = {name: [0, 0] for name in calls}
    for _ in range(400):
        for name, call in calls.items():
            measure(spent[name], call)
    measure(spent.setdefault("reset", [0, 0]), tier.reset)
    for _ in range(900):
        measure(spent.setdefault("poll after reset", [0, 0]), calls["poll"])
        tier.take_changes()
    for name, (sum_ns, longest_ns) in spent.items():
        print(f"{name:>18}{sum_ns / 400 / 256:12.0f}{longest_ns / 1e6:34.2f}")
    tier.close()


def measure(spent: list[int], call: Callable[[], object]) -> None:
    start = time.thread_time_ns()
    call()
    ns = time.thread_time_ns() - start
    spent[0] += ns
    spent[1] = max(spent[1], ns)


def key_of(number: int) -> OffloadKey:
    return make_offload_key(BlockHash(number.to_bytes(32, "big")), GroupIdx(0))


def filled(num_bytes: int) -> memoryview:
    memory = mmap.mmap(-1, num_bytes)
    memory[:] = random.Random(num_bytes).randbytes(num_bytes)
    return memoryview(memory)


def timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def resident_bytes() -> int:
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


if __name__ == "__main__":
    main()
