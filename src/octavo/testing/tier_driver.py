"""`TierDriver` drives one tier as an engine does, with chunks whose bytes follow from their key and mask.

So what a tier returns can be checked by content, however often a key was stored, removed or evicted.
"""

import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from octavo.chunks import ALL_BLOCKS, NO_TENANT, ChunkBytes, ChunkChain, OffloadKey, SequenceNames, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.tiers import Tier

BLOCKS_PER_CHUNK = 4
BLOCK_BYTES = 1500
NAMESPACE = bytes(range(16))
OTHER_NAMESPACE = bytes(range(1, 17))
MAX_CHUNK_BYTES = BLOCKS_PER_CHUNK * BLOCK_BYTES
_GROUPS = 3
_MOST_NUMBERS = 600
_SLOT_BYTES = 1024
_DEADLINE_S = 60.0
UNTOUCHED = 0xA5
"""The bytes in a load's buffers before the load."""


class Chunk(NamedTuple):
    """A key, and the blocks with which it is stored or asked for."""

    key: OffloadKey
    held_blocks: int = ALL_BLOCKS

    @property
    def content(self) -> bytes:
        blocks = BLOCKS_PER_CHUNK if self.held_blocks == ALL_BLOCKS else self.held_blocks.bit_count()
        return random.Random(repr(tuple(self))).randbytes(blocks * BLOCK_BYTES)  # noqa: S311 - not a secret


def key(number: int) -> OffloadKey:
    return make_offload_key(BlockHash(number.to_bytes(32, "big")), GroupIdx(number % _GROUPS))


def chunks(numbers: Iterable[int], held_blocks: int = ALL_BLOCKS) -> list[Chunk]:
    return [Chunk(key(number), held_blocks) for number in numbers]


ALL_KEYS = SequenceNames(
    NO_TENANT, [ChunkChain(16, list(map(key, range(first, _MOST_NUMBERS, _GROUPS)))) for first in range(_GROUPS)]
)
"""All keys as one sequence of three groups."""


class PendingLoad(NamedTuple):
    asked: list[Chunk]
    memory: list[bytearray]


class TierDriver:
    """One tier, its jobs, and the changes that it announced."""

    def __init__(
        self, tier: Tier, await_progress: Callable[[Tier], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tier = tier
        self.announced: set[OffloadKey] = set()
        """Keys that changes stored and did not remove, since the last announcement."""
        self.followed: set[OffloadKey] = set()
        """The same, since the beginning."""
        self.loads: dict[int, PendingLoad] = {}
        self.stores: dict[int, list[Chunk]] = {}
        self.failed: dict[int, frozenset[int]] = {}
        """Per job that was reported, the chunks that failed."""
        self._await_progress = await_progress
        self._clock = clock
        self._next_id = 1
        tier.ask(ALL_KEYS, wants_answer=False)

    def await_answer(self) -> None:
        """Polls until the tier knows which chunks it has."""
        self.poll_until(lambda: not self.tier.ask(ALL_KEYS), "an answer")

    # Jobs

    def submit_store(self, wanted: Sequence[Chunk], damaged: Collection[int] = ()) -> int | None:
        """Submits a store; returns the job, or None if it was refused. Chunks at `damaged` indices have wrong bytes."""
        job_id = self._take_id()
        memory = [bytearray(c.content) for c in wanted]
        checksums = [xxh3_64_intdigest(m) for m in memory]
        for index in damaged:
            memory[index][-1] ^= 1
        jobs = [
            ChunkBytes(c.key, _slots(m), c.held_blocks, checksum)
            for c, m, checksum in zip(wanted, memory, checksums, strict=True)
        ]
        if not self.tier.submit_store(job_id, jobs):
            return None
        self.stores[job_id] = list(wanted)
        return job_id

    def submit_load(self, wanted: Sequence[Chunk], lengths: Sequence[int] | None = None) -> int | None:
        job_id = self._take_id()
        lengths = lengths or [len(c.content) for c in wanted]
        memory = [bytearray([UNTOUCHED]) * length for length in lengths]
        jobs = [ChunkBytes(c.key, _slots(m), c.held_blocks) for c, m in zip(wanted, memory, strict=True)]
        if not self.tier.submit_load(job_id, jobs):
            return None
        self.loads[job_id] = PendingLoad(list(wanted), memory)
        return job_id

    def cancel(self, job_id: int) -> list[bytearray]:
        """Cancels a load and returns its memory, to which nothing writes any more."""
        self.tier.cancel(job_id)
        self.stores.pop(job_id, None)
        load = self.loads.pop(job_id, None)
        return load.memory if load else []

    def poll(self) -> list[int]:
        """Returns the jobs that were reported, and checks every byte of the loads among them."""
        reported = []
        for job_id, failed, _ in self.tier.poll(self._clock()):
            assert (job_id in self.stores) != (job_id in self.loads), f"job {job_id} was reported, and is not under way"
            self.stores.pop(job_id, None)
            load = self.loads.pop(job_id, None)
            if load is not None:
                for index, (asked, memory) in enumerate(zip(*load, strict=True)):
                    assert index in failed or memory == asked.content, f"wrong bytes of {asked}"
            self.failed[job_id] = failed
            reported.append(job_id)
        self.take_changes()
        return reported

    def finish(self, job_id: int | None) -> frozenset[int]:
        """Polls until the job is reported; returns the chunks that failed."""
        assert job_id is not None, "the tier has refused the job"
        self.poll_until(lambda: job_id in self.failed, f"job {job_id} to end")
        return self.failed[job_id]

    def settle(self) -> None:
        """Polls until no job is under way and nothing changes any more."""
        self.poll_until(lambda: not self.stores and not self.loads, "all jobs to end")
        assert self.tier.flush(_DEADLINE_S)
        self.poll_until(self._is_consistent, "lookup and changes to agree")

    def poll_until(self, is_reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            self.poll()
            if is_reached():
                return
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self._await_progress(self.tier)

    # In one go

    def store(self, wanted: Sequence[Chunk]) -> frozenset[int]:
        return self.finish(self.submit_store(wanted))

    def load(self, wanted: Sequence[Chunk], lengths: Sequence[int] | None = None) -> frozenset[int]:
        return self.finish(self.submit_load(wanted, lengths))

    def found(self, numbers: Iterable[int]) -> list[int]:
        """The masks found, by the key's number."""
        self.await_answer()
        return self.tier.lookup([key(number) for number in numbers])

    def take_changes(self) -> None:
        changes = self.tier.take_changes()
        assert len(set(changes.removed)) == len(changes.removed), "a removal is announced once"
        assert len(set(changes.stored)) == len(changes.stored), "a store is announced once"
        assert not set(changes.removed) & set(changes.stored), "changes are net"
        for known in (self.announced, self.followed):
            known.difference_update(changes.removed)
            known.update(changes.stored)

    def announce(self) -> None:
        """Forgets the announced keys, and asks the tier to announce all again. Who follows the tier already goes on."""
        self.announced = set()
        self.tier.announce()

    def adopt(self, keys: Sequence[OffloadKey]) -> None:
        """Takes the chunks that a tier has kept from before: they are there without an announcement."""
        self.await_answer()
        self.announced = {k for k, mask in zip(keys, self.tier.lookup(keys), strict=True) if mask}
        self.followed = set(self.announced)

    def _is_consistent(self) -> bool:
        return len(self.announced) == self.tier.status().num_chunks and all(self.tier.lookup(list(self.announced)))

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id


def _slots(memory: bytearray) -> list[memoryview]:
    view = memoryview(memory)
    return [view[i : i + _SLOT_BYTES] for i in range(0, len(view), _SLOT_BYTES)]
