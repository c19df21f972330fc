"""What it costs an engine's step to tell anew what it holds below the device.

    python benchmarks/bench_telling.py [--keys 200000] [--rounds 3]

The manager holds as many chunks as `--keys` says, in memory or on disk, and is asked to tell them all. Columns are
milliseconds of the thread's CPU for one portion, which is what one step does: `changes`, what the manager tells;
`events`, to make messages of it; `encoded`, to encode these, which no design does without; `longest`, the longest
portion, all three of it. `us/block` is the mean of all three for one block, and the ratio is that of all to `encoded`
alone. The best round counts. `named` chunks are those whose blocks the engine has named; of others only the last block
is known. Chunks on disk are those of a former process.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from disk_many_keys import CHUNK_BYTES, make_log

from octavo.chunks import (
    GroupOffloadConfig,
    OffloadKey,
    PromisedPoint,
    WantedChunk,
    get_offload_block_hash,
    make_offload_key,
)
from octavo.events import BlockStored, KVEventBatch, encode_batch
from octavo.host import HostArena
from octavo.ids import BlockHash, GroupIdx
from octavo.offload import OffloadEventSource, OffloadingManager
from octavo.policies import make_policy
from octavo.specs import FullAttentionSpec, KVCacheSpec, SlidingWindowSpec
from octavo.tiers import Tier, TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier

NAMESPACE = bytes(16)
CHUNKS_PER_STORE = 64
FULL = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=1, sliding_window=64)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is held, and where."""

    name: str
    specs: tuple[KVCacheSpec, ...] = (FULL,)
    blocks_per_chunk: int = 1
    is_named: bool = False
    is_on_disk: bool = False

    @property
    def groups(self) -> tuple[GroupOffloadConfig, ...]:
        return tuple(
            GroupOffloadConfig(spec=spec, blocks_per_chunk=self.blocks_per_chunk, page_size_bytes=64)
            for spec in self.specs
        )


CASES = (
    Case(name="memory"),
    Case(name="memory, window + full", specs=(WINDOW, FULL)),
    Case(name="memory, 4 blocks named", blocks_per_chunk=4, is_named=True),
    Case(name="memory, 4 blocks unnamed", blocks_per_chunk=4),
    Case(name="disk", is_on_disk=True),
    Case(name="disk, 4 blocks unnamed", blocks_per_chunk=4, is_on_disk=True),
)


@dataclass
class Portions:
    """Thread time in nanoseconds, by portion."""

    changes: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    encoded: list[int] = field(default_factory=list)
    num_blocks: int = 0

    @property
    def longest_ms(self) -> float:
        return max(map(sum, zip(self.changes, self.events, self.encoded, strict=True))) / 1e6

    @property
    def total(self) -> int:
        return sum(self.changes) + sum(self.events) + sum(self.encoded)


def hash_of(number: int) -> BlockHash:
    return BlockHash(number.to_bytes(32, "little"))


class Holder:
    """A manager that holds so many chunks, and who makes messages of its changes."""

    def __init__(self, case: Case, num_keys: int, tiers: tuple[Tier, ...]) -> None:
        groups = case.groups
        num_slots = CHUNKS_PER_STORE if case.is_on_disk else num_keys * case.blocks_per_chunk
        arena = HostArena(num_slots, 64)
        policy = make_policy("resume_points", groups, num_slots)
        self.manager = OffloadingManager(arena, groups, policy, tiers, logs_changes=True)
        self.source = OffloadEventSource(groups)
        if not case.is_on_disk:
            for first in range(0, num_keys, CHUNKS_PER_STORE):
                self._store(case, range(first, min(num_keys, first + CHUNKS_PER_STORE)))
        self.tell(lambda: None)

    def _store(self, case: Case, numbers: range) -> None:
        groups = range(len(case.specs))
        keys: list[OffloadKey] = []
        for number in numbers:
            keys.append(make_offload_key(hash_of(number), GroupIdx(number % len(groups))))
            if case.is_named:
                last = number * case.blocks_per_chunk
                self.source.name(keys[-1], [hash_of((last + i) << 32) for i in range(1, 4)] + [hash_of(number)])
        chunks = [WantedChunk(key, position, None) for position, key in enumerate(keys)]
        point = PromisedPoint(len(keys) * 16, get_offload_block_hash(keys[-1]))
        prepared = self.manager.prepare_store(chunks, [point])
        assert prepared is not None
        self.manager.complete_store(prepared.job_id)

    def tell(self, begin: Callable[[], None]) -> Portions:
        """Takes changes until all that is under way is told."""
        portions, clock = Portions(), time.thread_time_ns
        begin()
        is_first = True
        while is_first or self.manager.has_more_changes:
            is_first = False
            self.manager.poll(time.monotonic())
            began = clock()
            changes = self.manager.take_changes()
            taken = clock()
            events = self.source.messages(changes)
            made = clock()
            if events:
                encode_batch(KVEventBatch(ts=0.0, events=events))
            done = clock()
            portions.changes.append(taken - began)
            portions.events.append(made - taken)
            portions.encoded.append(done - made)
            portions.num_blocks += sum(len(event.block_hashes) for event in events if isinstance(event, BlockStored))
        return portions


@contextmanager
def holder_of(case: Case, num_keys: int) -> Iterator[Holder]:
    with tempfile.TemporaryDirectory() as folder:
        tiers: tuple[Tier, ...] = ()
        if case.is_on_disk:
            directory = Path(folder) / "disk"
            total = make_log(directory, NAMESPACE, num_keys)
            config = DiskConfig.from_mapping({"path": str(directory), "size": str(2 * total + (1 << 31))})
            tiers = (DiskTier(config, TierContext(namespace=NAMESPACE, max_chunk_bytes=CHUNK_BYTES), DiskIO()),)
        holder = Holder(case, num_keys, tiers)
        try:
            yield holder
        finally:
            holder.manager.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    columns = ("portions", "changes", "events", "encoded", "longest", "us/block", "ratio")
    print(f"{args.keys:,} chunks{'':>14}" + "".join(f"{column:>10}" for column in columns))
    for case in CASES:
        with holder_of(case, args.keys) as holder:
            gc.collect()
            gc.freeze()
            rounds = [holder.tell(holder.manager.tell_all) for _ in range(args.rounds)]
            gc.unfreeze()
        best = min(rounds, key=lambda portions: portions.total)
        count = len(best.changes)
        means = [sum(times) / count / 1e6 for times in (best.changes, best.events, best.encoded)]
        longest = min(portions.longest_ms for portions in rounds)
        print(
            f"{case.name:<26}{count:>10}"
            + "".join(f"{mean:>10.2f}" for mean in means)
            + f"{longest:>10.2f}{best.total / best.num_blocks / 1e3:>10.2f}{best.total / sum(best.encoded):>9.1f}x"
        )


if __name__ == "__main__":
    main()
