"""An offloading manager whose chunks have bytes that key and block decide, written and read as a worker would."""

from collections.abc import Sequence
from hashlib import blake2b, shake_128
from typing import Any

from xxhash import xxh3_64_intdigest

from octavo.chunks import (
    ALL_BLOCKS,
    GroupOffloadConfig,
    LookupResult,
    OffloadKey,
    PromisedPoint,
    WantedChunk,
    get_offload_group_idx,
    make_offload_key,
)
from octavo.host import PAGE_BYTES, HostArena
from octavo.ids import BlockHash, GroupIdx
from octavo.offload import OffloadingManager, PreparedLoad, PreparedStore
from octavo.policies import EvictionPolicy
from octavo.specs import FullAttentionSpec
from octavo.tiers import Tier

_SPEC = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=2)
GROUPS = (
    GroupOffloadConfig(spec=_SPEC, blocks_per_chunk=2, page_size_bytes=1500),
    GroupOffloadConfig(spec=_SPEC, blocks_per_chunk=2, page_size_bytes=5000),
)
"""Chunks of one slot and of three; with one block of two, of one slot and two."""
MOST_SLOTS_PER_CHUNK = 3
NUM_SLOTS = 24
MAX_CHUNK_BYTES = 10_000
MISS, HIT, HIT_PENDING, RETRY = LookupResult.MISS, LookupResult.HIT, LookupResult.HIT_PENDING, LookupResult.RETRY


def key_of(number: int, group_idx: GroupIdx = 0) -> OffloadKey:
    """The key of a chunk of the one sequence there is."""
    return make_offload_key(BlockHash(blake2b(number.to_bytes(8, "big"), digest_size=16).digest()), group_idx)


def wanted(number: int, group_idx: GroupIdx = 0, held_blocks: int = ALL_BLOCKS) -> WantedChunk:
    parent = key_of(number - 1, group_idx) if number else None
    return WantedChunk(key_of(number, group_idx), number, parent, held_blocks)


def content(key: OffloadKey, mask: int) -> bytes:
    """The bytes of the held blocks of a chunk."""
    group = GROUPS[get_offload_group_idx(key)]
    blocks = [i for i in range(group.blocks_per_chunk) if mask == ALL_BLOCKS or mask >> i & 1]
    return b"".join(shake_128(key + bytes([i])).digest(group.page_size_bytes) for i in blocks)


class OffloadWorld:
    """A manager over a real arena, and the part of a worker. `options` are the manager's."""

    def __init__(
        self, policy: EvictionPolicy, tiers: Sequence[Tier] = (), arena: HostArena | None = None, **options: Any
    ) -> None:
        self.arena = arena or HostArena(NUM_SLOTS, PAGE_BYTES)
        self.manager = OffloadingManager(self.arena, GROUPS, policy, tiers, **{"logs_changes": True, **options})
        self.now = 0.0

    def store(self, *chunks: WantedChunk, promises: Sequence[PromisedPoint] = ()) -> int | None:
        """Stores at once; how many had to be written, None for no room."""
        prepared = self.manager.prepare_store(chunks, promises)
        if prepared is None:
            return None
        if prepared.indices:
            self.manager.complete_store(prepared.job_id, (), self.write_store(chunks, prepared))
        return len(prepared.indices)

    def write_store(self, chunks: Sequence[WantedChunk], prepared: PreparedStore) -> list[int]:
        """What a device writes to the slots of a store; its checksums."""
        checksums = []
        for index, slots in zip(prepared.indices, prepared.slots, strict=True):
            left = data = content(chunks[index].key, chunks[index].held_blocks)
            for buffer in self.arena.buffers(slots, len(data)):
                buffer[:], left = left[: len(buffer)], left[len(buffer) :]
            checksums.append(xxh3_64_intdigest(data))
        return checksums

    def read_load(self, keys: Sequence[OffloadKey], prepared: PreparedLoad) -> set[int]:
        """What a device reads from the slots of a load: indices that a worker would report as failed. The others are
        right, byte by byte."""
        failed = set()
        for index, (key, slots) in enumerate(zip(keys, prepared.slots, strict=True)):
            expected, checksum = content(key, prepared.held_blocks[index]), prepared.checksums[index]
            found = b"".join(self.arena.buffers(slots, len(expected)))
            if checksum is not None and xxh3_64_intdigest(found) != checksum:
                failed.add(index)
            else:
                assert found == expected, f"wrong bytes under {key.hex()}"
        return failed

    def load(self, *keys: OffloadKey) -> set[int] | None:
        """Loads at once, and verifies; indices that failed. None if something is not there."""
        prepared = self.manager.prepare_load(keys)
        if prepared is None:
            return None
        failed = self.read_load(keys, prepared)
        self.manager.complete_load(prepared.job_id, failed)
        return failed

    def poll(self, seconds: float = 0.0) -> None:
        """Time passes."""
        self.now += seconds
        self.manager.poll(self.now)

    def settle(self) -> None:
        """Whatever does not hang gets as far as it can."""
        for _ in range(NUM_SLOTS):
            for lower in self.manager._below.lowers:
                lower.flush(60.0)
            self.poll()
            if not self.manager.has_pending_work():
                break

    def flip_bit(self, key: OffloadKey) -> None:
        """In the slots of a chunk that is resident."""
        prepared = self.manager.prepare_load([key])
        assert prepared is not None
        self.arena.view[prepared.slots[0][0], 7] ^= 16
        self.manager.complete_load(prepared.job_id)


def fill(world: OffloadWorld, first: int = 100) -> None:
    """Stores others until nothing else is in memory."""
    for number in range(first, first + NUM_SLOTS):
        assert world.store(wanted(number)) == 1


def evicted_to_tier(world: OffloadWorld, *numbers: int) -> None:
    """These chunks are on the tier below, and not in memory."""
    assert world.store(*map(wanted, numbers)) == len(numbers)
    world.poll()
    world.settle()
    fill(world)
    world.poll()
    world.settle()
