"""An eviction policy of one's own, by name: first in, first out, with a second chance.

    python examples/own_policy.py

A chunk that was used since it came to the front of the queue goes to its end once more; one that was not is given up.
The script plays the same requests to every policy that has a name, and prints how many chunks each of them finds.
"""

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from octavo import OffloadConfig
from octavo.chunks import (
    GroupOffloadConfig,
    OffloadKey,
    PromisedPoint,
    StoredChunk,
    get_offload_block_hash,
    make_offload_key,
)
from octavo.hashing import PLAIN, BlockHasher
from octavo.ids import GroupIdx
from octavo.policies import POLICIES, EvictionPolicy, make_policy
from octavo.specs import FullAttentionSpec
from octavo.tables import Part


@POLICIES.register("second_chance")
class SecondChancePolicy(EvictionPolicy):
    """Idle chunks wait in one queue. A chunk that is pinned stands in no queue, and comes back to the end of it."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int) -> None:
        self._start()

    def _start(self) -> None:
        self._queue: OrderedDict[OffloadKey, int] = OrderedDict()
        """Idle chunks with their slots, the next victim first."""
        self._num_slots = 0
        """Of the chunks in the queue."""
        self._used: dict[OffloadKey, None] = {}
        """Chunks of the queue that were touched since they joined it."""
        self._pinned: dict[OffloadKey, list[int]] = {}
        """Chunks with pins: their slots, and the number of pins."""

    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        for chunk in reversed(chunks):  # the end of a sequence goes first: it is worth nothing without its beginning
            self._join(chunk.key, chunk.num_slots)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._used.update((key, None) for key in keys if key in self._queue)

    def promise(self, point: PromisedPoint) -> None:
        """Of no interest here."""

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key not in self._pinned:
                self._pinned[key] = [self._leave(key), 0]
            self._pinned[key][1] += 1

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        for key in reversed(keys):
            if pinned := self._pinned.get(key):  # else it was removed while it was pinned
                pinned[1] -= 1
                if not pinned[1]:
                    self._join(key, self._pinned.pop(key)[0])
                    self._used[key] = None  # reading is using

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if self._pinned.pop(key, None) is None:
                self._leave(key)

    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        if self._num_slots < num_slots:
            return None
        victims: list[OffloadKey] = []
        wanted = self._num_slots - num_slots
        while self._num_slots > wanted:
            key = next(iter(self._queue))
            if key in self._used:  # each touch is paid for once, so the work stays in proportion to the calls
                del self._used[key]
                self._queue.move_to_end(key)
            else:
                self._leave(key)
                victims.append(key)
        return victims

    def clear(self) -> Sequence[Part]:
        parts: list[Part] = [self._queue, self._used, self._pinned]
        self._start()
        return parts

    def check_invariants(self) -> None:
        assert self._num_slots == sum(self._queue.values())
        assert self._used.keys() <= self._queue.keys()
        assert not self._pinned.keys() & self._queue.keys()

    def _join(self, key: OffloadKey, num_slots: int) -> None:
        self._queue[key] = num_slots
        self._num_slots += num_slots

    def _leave(self, key: OffloadKey) -> int:
        num_slots = self._queue.pop(key)
        self._num_slots -= num_slots
        self._used.pop(key, None)
        return num_slots


GROUP = GroupOffloadConfig(
    spec=FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64), blocks_per_chunk=1, page_size_bytes=4096
)
NUM_SLOTS = 50


def requests() -> Iterator[list[StoredChunk]]:
    """Two system prompts of 160 tokens, each with questions of its own, and between them long texts that nobody sends
    twice."""
    numbers = random.Random(7)  # noqa: S311 - not a secret
    hasher = BlockHasher(hash_block_size=16)
    systems = [[numbers.randrange(1000) for _ in range(160)] for _ in range(2)]
    for turn in range(400):
        text = [numbers.randrange(1000) for _ in range(480 if turn % 3 == 2 else 48)]
        tokens = text if turn % 3 == 2 else systems[turn % 2] + text
        keys = [make_offload_key(block_hash, GroupIdx(0)) for block_hash in hasher.hash_tokens(tokens, PLAIN)]
        parents = [None, *keys[:-1]]
        yield [StoredChunk(key, 1, i, parent) for i, (key, parent) in enumerate(zip(keys, parents, strict=True))]


def play(name: str) -> tuple[int, int]:
    """How many chunks were asked for, and how many of them were there."""
    policy = make_policy(name, [GROUP], NUM_SLOTS)
    held: set[OffloadKey] = set()
    num_asked = num_found = 0
    for chunks in requests():
        found = [chunk.key for chunk in chunks if chunk.key in held]
        missing = [chunk for chunk in chunks if chunk.key not in held]
        num_asked, num_found = num_asked + len(chunks), num_found + len(found)
        policy.touch(found)
        policy.pin(found)  # a request's own chunks do not give way to it
        room = NUM_SLOTS - len(held)
        victims = policy.evict(len(missing) - room) if len(missing) > room else []
        held.difference_update(victims or ())
        policy.unpin(found)
        if victims is not None:
            policy.insert(missing)
            held.update(chunk.key for chunk in missing)
            policy.promise(PromisedPoint(16 * len(chunks), get_offload_block_hash(chunks[-1].key)))
        policy.check_invariants()
    return num_asked, num_found


def main() -> None:
    OffloadConfig.from_mapping({"memory": "1GiB", "policy": "second_chance"})  # a configuration may name it
    print(f"{NUM_SLOTS} slots, policy and share of chunks found")
    for name in POLICIES.names():
        num_asked, num_found = play(name)
        print(f"{name:16}{num_found / num_asked:6.1%}")


if __name__ == "__main__":
    main()
