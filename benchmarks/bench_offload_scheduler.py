"""What offloading adds to a request of 4,096 blocks, in microseconds, beside what the device cache itself takes for it.

    python benchmarks/bench_offload_scheduler.py

No byte is moved: the worker ends every job at once. Each line is one request, of a model with full attention or of one
with windows and recurrent state beside it; the ratio is to `find_resume` + `allocate` + `commit` + `free` of the same
request on the device alone, in the same round.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from octavo.blocks import DeviceCache, KVCacheManager, RequestBlocks
from octavo.chunks import ChunkCopy, GroupOffloadConfig, TransferResult
from octavo.host import HostArena
from octavo.offload import OffloadingManager, OffloadScheduler, Readiness
from octavo.planning import plan_kv_cache
from octavo.policies import make_policy
from octavo.specs import CacheDType, FullAttentionSpec, KVCacheSpec, MambaSpec, RequestLimits, SlidingWindowSpec
from octavo.transfer import OffloadingWorker

NUM_BLOCKS = 4096
NUM_TOKENS = NUM_BLOCKS * 16 + 1
ROUNDS = 7

FULL = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=1024)
STATE = MambaSpec(block_size=256, shapes=((64, 64),), dtypes=(CacheDType.FLOAT32,))
MODELS: dict[str, dict[str, KVCacheSpec]] = {
    "full attention": {"full": FULL},
    "full + window + state": {"full": FULL, "window": WINDOW, "state": STATE},
}


class InstantWorker(OffloadingWorker):
    """Ends every job when it is asked."""

    def __init__(self) -> None:
        self._results: list[TransferResult] = []

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._results.append(TransferResult(job_id, frozenset()))

    submit_load = submit_store

    def get_finished(self) -> list[TransferResult]:
        results, self._results = self._results, []
        return results

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        return True

    def wait_any(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


class Bench:
    """One model's device cache and offloading."""

    def __init__(self, layers: dict[str, KVCacheSpec]) -> None:
        limits = RequestLimits(max_model_len=NUM_TOKENS + 64, max_step_tokens=NUM_TOKENS + 64)
        self.plan = plan_kv_cache(layers, memory_bytes=256 << 20, limits=limits, checkpoint_interval_tokens=8192)
        self.device = KVCacheManager(self.plan)
        groups = [
            GroupOffloadConfig(spec=g.spec.rule, blocks_per_chunk=1, page_size_bytes=g.page_bytes)
            for g in self.plan.groups
        ]
        arena = HostArena(160_000, 4096)
        self.manager = OffloadingManager(arena, groups, make_policy("lru", groups, arena.num_slots))
        self.offload = OffloadScheduler(DeviceCache(self.device), self.manager, InstantWorker(), groups)
        self.now, self.number = 0.0, 0

    def prompt(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, 1 << 17, NUM_TOKENS, dtype=np.int32)

    def begin(self, seed: int) -> RequestBlocks:
        self.number += 1
        return self.device.begin_request(str(self.number), self.prompt(seed))

    def drain(self) -> None:
        while True:
            self.now += 0.001
            self.offload.poll(self.now)
            if not self.offload.has_pending_work():
                return

    def compute(self, request: RequestBlocks) -> tuple[float, float]:
        """Seconds of the device cache, and of offloading, for a request from its lookup to its end."""
        on_device = offloading = 0.0
        start = perf_counter()
        plan = self.device.find_resume(request)
        at = plan.num_tokens
        while at < NUM_TOKENS:
            end = self.device.cut_prefill(request, NUM_TOKENS, plan)
            assert self.device.allocate(request, end, resume=plan) is not None
            on_device += perf_counter() - start
            start = perf_counter()
            self.offload.started(request)
            offloading += perf_counter() - start
            start = perf_counter()
            self.device.commit(request, end)
            on_device += perf_counter() - start
            start = perf_counter()
            self.offload.computed(request, self.now)
            offloading += perf_counter() - start
            start = perf_counter()
            at = end
        self.device.free(request)
        on_device += perf_counter() - start
        start = perf_counter()
        self.offload.finished(request, self.now)
        self.drain()
        return on_device, offloading + perf_counter() - start

    def prepare(self, request: RequestBlocks) -> float:
        """Seconds until the request may start, its load included."""
        start = perf_counter()
        while self.offload.prepare(request, self.now) is not Readiness.READY:
            self.drain()
        return perf_counter() - start


def main() -> None:
    for name, layers in MODELS.items():
        bench = Bench(layers)
        best: dict[str, tuple[float, float]] = {}

        def note(what: str, device_s: float, offload_s: float, best: dict[str, tuple[float, float]] = best) -> None:
            best[what] = min(best.get(what, (1e9, 1e9)), (device_s, offload_s), key=lambda pair: pair[1])

        for number in range(ROUNDS):
            request = bench.begin(number)
            waited = bench.prepare(request)
            device_s, offload_s = bench.compute(request)
            note("nothing is anywhere, all is stored", device_s, waited + offload_s)
            request = bench.begin(number)
            waited = bench.prepare(request)
            device_s, offload_s = bench.compute(request)
            note("all is on the device, and stored", device_s, waited + offload_s)
            bench.device.reset_prefix_cache()
            request = bench.begin(number)
            waited = bench.prepare(request)
            loaded = bench.offload.resumed_from(request)["memory"]
            assert loaded >= NUM_TOKENS - 8192, loaded
            device_s, offload_s = bench.compute(request)
            note("all is loaded from memory", device_s, waited + offload_s)
        print(f"{name}, {NUM_BLOCKS:,} blocks")
        for what, (device_s, offload_s) in best.items():
            print(
                f"  {what:36} device {device_s * 1e6:8,.0f} us   offloading {offload_s * 1e6:8,.0f} us   "
                f"{offload_s / device_s:5.2f}x   {offload_s * 1e9 / NUM_BLOCKS:6,.0f} ns a block"
            )


if __name__ == "__main__":
    main()
