"""The contract of an `EvictionPolicy`, as a suite that its test subclasses:

class TestMyPolicy(EvictionPolicySuite):
    policy_class = MyPolicy

A state machine runs a tier of a few slots against a naive model of the contract. Sequences share prefixes, chunks of
one group differ in size, and readers hold chunks that are to be evicted.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.policies import EvictionPolicy
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from octavo.tables import Discards

TOKENS_PER_CHUNK = 8
_NUM_CHUNKS = 5
"""The number of chunks of the longest sequence."""


def policy_group(spec: KVCacheSpec) -> GroupOffloadConfig:
    return GroupOffloadConfig(
        spec=spec, blocks_per_chunk=TOKENS_PER_CHUNK // spec.block_size, page_size_bytes=spec.page_size_bytes
    )


FULL = policy_group(FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8))
WINDOW = policy_group(SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=8, sliding_window=13))
LOCAL = policy_group(ChunkedLocalAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, attention_chunk_size=16))
STATE = policy_group(MambaSpec(block_size=8, shapes=((4, 4),), dtypes=(CacheDType.FLOAT32,)))
CIRCULAR = policy_group(CircularBufferSpec(block_size=8, num_kv_heads=1, head_size=8, tokens_per_state=4))
CROSS = policy_group(CrossAttentionSpec(block_size=4, num_kv_heads=1, head_size=8))

GROUPS: Sequence[Sequence[GroupOffloadConfig]] = (
    (FULL,),
    (WINDOW, FULL),
    (FULL, STATE),
    (FULL, WINDOW, STATE, FULL),
    (STATE,),
    (WINDOW, STATE),
    (LOCAL, STATE),
    (LOCAL, FULL),
    (FULL, CROSS),
    (FULL, STATE, CIRCULAR),
)
"""The shapes of models that the suite tries."""


def block_hash_of(path: Sequence[int]) -> BlockHash:
    """The hash of the last block of a sequence of chunks."""
    return BlockHash(bytes([sum(path) % 256, *path]).ljust(12, b"\xff"))


def chunk_of(path: Sequence[int], group_idx: GroupIdx, num_slots: int = 1) -> StoredChunk:
    """The last chunk of a sequence of chunks."""
    return StoredChunk(
        key=make_offload_key(block_hash_of(path), group_idx),
        num_slots=num_slots,
        position=len(path) - 1,
        parent=make_offload_key(block_hash_of(path[:-1]), group_idx) if len(path) > 1 else None,
    )


FIRST = GroupIdx(0)

PATHS = st.lists(st.integers(0, 1), min_size=1, max_size=_NUM_CHUNKS)
WHICH = st.lists(st.integers(0, 999), max_size=6)


class EvictionPolicySuite:
    """The contract of a policy. A subclass names its class."""

    policy_class: ClassVar[type[EvictionPolicy]]

    @pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: "+".join(group.spec.kind for group in groups))
    def test_behaves_like_the_model(self, groups: Sequence[GroupOffloadConfig]) -> None:
        run_state_machine_as_test(
            partial(PolicyMachine, self.policy_class, groups),  # type: ignore[arg-type]  # it makes a machine
            settings=settings(max_examples=15, stateful_step_count=30, deadline=None),
        )

    def test_gives_up_everything_idle_and_nothing_pinned(self) -> None:
        policy = self.policy_class((FULL,), 10)
        chunks = [chunk_of([0] * (n + 1), FIRST) for n in range(10)]
        policy.insert(chunks)
        policy.pin([chunks[4].key])
        assert policy.evict(10) is None
        assert sorted(policy.evict(9) or ()) == sorted(chunk.key for chunk in chunks if chunk is not chunks[4])
        assert policy.evict(1) is None
        policy.unpin([chunks[4].key])
        assert policy.evict(1) == [chunks[4].key]

    def test_pins_nest(self) -> None:
        policy = self.policy_class((FULL,), 10)
        chunk = chunk_of([0], FIRST)
        policy.insert([chunk])
        policy.pin([chunk.key, chunk.key])
        policy.pin([chunk.key])
        for _ in range(3):
            assert policy.evict(1) is None
            policy.unpin([chunk.key])
        assert policy.evict(1) == [chunk.key]

    def test_a_sequence_is_given_up_from_its_end(self) -> None:
        policy = self.policy_class((FULL,), 10)
        chunks = [chunk_of([0] * (n + 1), FIRST) for n in range(10)]
        policy.insert(chunks)
        policy.touch([chunk.key for chunk in chunks])
        assert policy.evict(4) == [chunk.key for chunk in reversed(chunks[6:])]


class PolicyMachine(RuleBasedStateMachine):
    """A tier's calls in any order that the contract allows."""

    def __init__(self, policy_class: type[EvictionPolicy], groups: Sequence[GroupOffloadConfig]) -> None:
        super().__init__()
        self.policy_class = policy_class
        self.groups = groups
        self.slots: dict[OffloadKey, int] = {}
        """The number of slots of each chunk in the tier."""
        self.readers: Counter[OffloadKey] = Counter()

    @initialize(num_slots=st.integers(4, 40), are_promised=st.booleans())
    def set_up(self, num_slots: int, are_promised: bool) -> None:
        """`are_promised`: whether the tier has a writer that says where the resume points are."""
        self.num_slots, self.are_promised = num_slots, are_promised
        self.policy = self.policy_class(self.groups, num_slots)

    @property
    def idle_slots(self) -> int:
        return sum(slots for key, slots in self.slots.items() if not self.readers[key])

    @rule(
        path=PATHS,
        start=st.integers(0, _NUM_CHUNKS),
        sizes=st.lists(st.integers(1, 3), min_size=4, max_size=4),
        which=st.just({0, 1, 2, 3}) | st.sets(st.integers(0, 3), min_size=1),
    )
    def store(self, path: list[int], start: int, sizes: list[int], which: set[int]) -> None:
        """Stores the chunks of a sequence from `start` that the tier lacks, of all groups or of some, as far as room
        can be made."""
        chunks = [
            chunk
            for group_idx in sorted(which & set(range(len(self.groups))))
            for stop in range(min(start, len(path) - 1) + 1, len(path) + 1)
            if (chunk := chunk_of(path[:stop], GroupIdx(group_idx), sizes[group_idx])).key not in self.slots
        ]
        missing = sum(chunk.num_slots for chunk in chunks) + sum(self.slots.values()) - self.num_slots
        if missing > 0 and not self._evict(missing):
            return
        self.policy.insert(chunks)
        self.slots |= {chunk.key: chunk.num_slots for chunk in chunks}

    @rule(num_slots=st.integers(1, 12))
    def evict(self, num_slots: int) -> None:
        self._evict(num_slots)

    def _evict(self, num_slots: int) -> bool:
        idle_slots = self.idle_slots
        victims = self.policy.evict(num_slots)
        if victims is None:
            assert idle_slots < num_slots, f"{idle_slots} idle slots, and no victims for {num_slots}"
            return False
        assert len(victims) == len(set(victims)), "a victim twice"
        assert not any(self.readers[key] for key in victims), "a pinned victim"
        freed = sum(self.slots.pop(key) for key in victims)
        assert freed >= num_slots, f"{freed} slots freed, {num_slots} asked for"
        return True

    @rule(path=PATHS, group=st.integers(0, 3))
    def touch(self, path: list[int], group: int) -> None:
        """Touches a sequence, of which the tier may have all or nothing."""
        group_idx = group % len(self.groups)
        self.policy.touch([chunk_of(path[:stop], GroupIdx(group_idx)).key for stop in range(1, len(path) + 1)])

    @precondition(lambda self: self.are_promised)
    @rule(path=PATHS, num_before=st.integers(0, 3))
    def promise(self, path: list[int], num_before: int) -> None:
        """The same request has promised this many chunks before."""
        tokens, before = len(path) * TOKENS_PER_CHUNK, min(num_before, len(path)) * TOKENS_PER_CHUNK
        self.policy.promise(PromisedPoint(tokens, block_hash_of(path), before))

    @rule(path=PATHS, weight=st.sampled_from([0.0, 1.0, 2.0, 1000.0]))
    def weigh(self, path: list[int], weight: float) -> None:
        """Weighs chunks. That keeps none for ever: `evict` can still give up all idle ones."""
        self.policy.weigh(block_hash_of(path), weight)

    @precondition(lambda self: self.slots)
    @rule(which=WHICH)
    def pin(self, which: list[int]) -> None:
        keys = self._pick(sorted(self.slots), which)
        self.policy.pin(keys)
        self.readers.update(keys)

    @precondition(lambda self: +self.readers)
    @rule(which=WHICH)
    def unpin(self, which: list[int]) -> None:
        keys = list(dict.fromkeys(self._pick(sorted((+self.readers).keys()), which)))
        self.policy.unpin(keys)
        self.readers.subtract(keys)

    @precondition(lambda self: self.slots)
    @rule(which=WHICH)
    def remove(self, which: list[int]) -> None:
        keys = list(dict.fromkeys(self._pick(sorted(self.slots), which)))
        self.policy.remove(keys)
        for key in keys:
            del self.slots[key], self.readers[key]

    @precondition(lambda self: self.slots)
    @rule(really=st.integers(0, 7))
    def clear(self, really: int) -> None:
        if not really:
            discards = Discards()
            discards.add(self.policy.clear())
            while discards:
                discards.free(3)  # none of it is in use
            self.slots.clear()
            self.readers.clear()

    def _pick(self, keys: Sequence[OffloadKey], which: Sequence[int]) -> list[OffloadKey]:
        return [keys[number % len(keys)] for number in which]

    @invariant()
    def policy_agrees_with_itself(self) -> None:
        if hasattr(self, "policy"):
            self.policy.check_invariants()

    def teardown(self) -> None:
        """Checks that all chunks can be evicted when no reader is left."""
        if not hasattr(self, "policy"):
            return
        self.policy.unpin(list(self.readers.elements()))
        self.readers.clear()
        if self.slots:
            assert self._evict(self.idle_slots)
        assert not self.slots
        assert self.policy.evict(1) is None
