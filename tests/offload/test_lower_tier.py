"""The fence around a tier: its failure is its own."""

import logging

import pytest

from octavo.chunks import ALL_BLOCKS, ChunkBytes, ChunkSizes, LookupResult, TierResult
from octavo.host import PAGE_BYTES
from octavo.offload.lower_tier import LowerTier, OffloadLimits
from octavo.policies import LRUPolicy
from octavo.tiers import TierState
from rigs.faulty_tier import METHODS, FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld, key_of, wanted

MISS, HIT, RETRY = LookupResult.MISS, LookupResult.HIT, LookupResult.RETRY
LONG_S = 100.0
"""Longer than any pause."""


class LyingTier(FaultyTier):
    """Answers what the contract does not know."""

    is_lying = False

    mask = None
    """What it has of every chunk, if it is not the truth."""

    def lookup(self, keys):
        if self.mask is not None:
            return [self.mask] * len(keys)
        return super().lookup(keys)[: -1 if self.is_lying else None]

    come = ()
    """Keys of chunks that nobody stored."""

    def take_changes(self):
        changes = super().take_changes()
        return changes._replace(stored=[*changes.stored, *self.come])

    def poll(self, now):
        results = super().poll(now)
        if self.is_lying:
            return [TierResult(job_id, frozenset([99])) for job_id, _ in results]
        return [*results, *results[:1], TierResult(987_654, frozenset())]


@pytest.fixture
def below():
    return LyingTier(NaiveTier(1 << 20))


@pytest.fixture
def world(below):
    world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [below])
    yield world
    below.get_well()
    below.is_lying = False
    for _ in range(10):
        world.settle()
        world.poll(LONG_S)
    world.manager.check_invariants()
    assert not world.manager.has_pending_work()
    assert not world.manager._below.lowers[0].quarantined_heads
    world.manager.close()


def drop_from_memory(world):
    world.store(*(wanted(100 + number) for number in range(NUM_SLOTS)))


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("method", sorted({*METHODS} - {"stored_bytes", "remove", "close"}))
def test_a_call_that_raises_is_said_once_and_the_tier_comes_back(world, below, method, is_late, caplog):
    world.store(wanted(0))
    world.settle()
    drop_from_memory(world)
    below.raises, below.raises_late = {method, "lookup"}, is_late
    with caplog.at_level(logging.INFO):
        for round_ in range(3):
            world.manager.touch([key_of(0)])
            assert world.manager.lookup([key_of(0)]) == [MISS]
            assert world.store(wanted(50 + round_)) == 1
            world.manager.take_changes()
            world.manager.flush(0.1, lambda: world.now)
            world.poll(LONG_S)
        assert world.manager.lookup([key_of(0)]) == [MISS]
        assert world.manager.status().tiers[0][1].state is TierState.DEGRADED
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "raised in" in caplog.text
        below.get_well()
        world.poll(LONG_S)
        assert world.manager.lookup([key_of(0)]) == [RETRY]
        assert world.manager.status().tiers[0][1].state is TierState.OK
        world.poll(LONG_S)
        world.store(wanted(60))
        world.settle()
        assert "works again" in caplog.text
    assert world.manager.status().counters["tier_errors"] >= 3
    assert world.manager.lookup([key_of(60)]) == [HIT]


def test_a_reset_that_the_tier_missed_is_made_up_for(world, below):
    world.store(wanted(0))
    world.settle()
    below.raises = {"reset"}
    world.manager.reset()
    assert world.manager.lookup([key_of(0)]) == [MISS]
    world.poll(LONG_S)  # and it raises again
    assert world.manager.lookup([key_of(0)]) == [MISS]
    below.get_well()
    world.poll(LONG_S)
    assert below.lookup([key_of(0)]) == [0]


def test_slots_of_a_job_that_cannot_be_cancelled_are_used_by_nobody(world, below):
    world.store(wanted(0, group_idx=1), wanted(1))
    world.settle()
    drop_from_memory(world)
    below.fault, below.raises = TierFault.HANGS, {"cancel"}
    chunks = [wanted(0, group_idx=1), wanted(1)]
    world.manager.promote(chunks, world.now, world.now + 5.0)
    world.poll(6.0)  # at the deadline: four slots are the tier's still
    assert world.manager.lookup([chunk.key for chunk in chunks]) == [MISS, MISS]
    assert world.store(*(wanted(200 + number) for number in range(NUM_SLOTS))) is None
    fitting = [wanted(200 + number) for number in range(NUM_SLOTS - 4)]
    assert world.store(*fitting) == len(fitting)
    world.manager.reset()
    assert world.store(*fitting) == len(fitting)
    below.spoil_what_hangs()
    assert world.load(*(chunk.key for chunk in fitting)) == set()
    assert world.manager.status().free_slots == 0
    below.get_well()
    world.poll(LONG_S)
    assert world.manager.status().free_slots == 4


def test_answers_that_the_contract_does_not_know_are_errors(world, below):
    world.store(wanted(0))
    below.is_lying = True
    assert world.manager.lookup([key_of(0), key_of(1)]) == [HIT, MISS]
    assert world.manager.status().counters["tier_errors"] == 1
    world.poll(LONG_S)
    world.store(wanted(1))
    world.settle()
    assert world.manager.status().counters["tier_errors"] >= 2


@pytest.mark.parametrize("mask", [0b100, (1 << 63) - 1, -2, -(1 << 63)])
def test_blocks_that_no_chunk_has_are_a_miss_and_stored(world, below, mask):
    below.mask = mask
    assert world.manager.lookup([key_of(0), key_of(0, 1)]) == [MISS, MISS]
    world.store(wanted(0))
    world.settle()
    below.mask = None
    drop_from_memory(world)
    assert world.manager.lookup([key_of(0), key_of(0, 1)]) == [RETRY, MISS]
    assert world.manager.status().counters["tier_errors"] == 0


def test_chunks_of_no_group_are_told_to_nobody():
    """Anybody may have written them, and copied them to a disk with `octavo store warm`."""
    below = LyingTier(NaiveTier(1 << 20))
    world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [below], logs_changes=True)
    world.store(wanted(0))
    world.settle()
    below.come, below.mask = [key_of(0, len(GROUPS)), b"\0", key_of(0)], -1
    told = [key for medium in world.manager.take_changes().media for key in (*medium.stored, *medium.removed)]
    assert set(told) == {key_of(0)}
    world.manager.close()


def test_a_tier_that_raises_from_its_first_call_on(below):
    below.raises = METHODS
    world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [below])
    assert world.store(wanted(0)) == 1
    world.poll(LONG_S)
    assert world.load(key_of(0)) == set()
    world.manager.close()


@pytest.mark.parametrize(
    ("names", "stores", "off_after_first"),
    [(["a"], ["a"], ["faulty"]), (["a", "a"], ["a"], []), (["a", "b"], [], []), ([""], [], [])],
)
def test_a_shared_store_is_off_when_all_ways_to_it_are(names, stores, off_after_first):
    tiers = [FaultyTier(NaiveTier(1 << 20)) for _ in names]
    for tier, name in zip(tiers, names, strict=True):
        tier.shared_as = name
    world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), tiers)
    manager = world.manager

    def off_after(seconds):
        for _ in range(4):
            world.poll(seconds / 4)
        return manager.media.stores_off

    assert (list(manager.media.stores.values()), manager.media.stores_off) == (stores, [])
    for tier, off in zip(tiers, [off_after_first, ["faulty"] if stores else []], strict=False):
        tier.raises = METHODS
        assert off_after(1.0) == []
        assert off_after(4.0) == off
    for tier in tiers:
        tier.get_well()
    assert off_after(2 * LONG_S) == []
    manager.close()


@pytest.fixture
def released():
    return []


@pytest.fixture
def lower(below, released):
    """The fence alone, between a tier and whoever gets its slots back."""
    release = lambda keys, heads: released.extend(heads)  # noqa: E731
    lower = LowerTier(below, OffloadLimits(), release, sizes=ChunkSizes(GROUPS, PAGE_BYTES))
    yield lower
    lower.close()


def chunk(number):
    return ChunkBytes(key_of(number), [memoryview(bytearray(3000))], ALL_BLOCKS)


def test_pauses_grow_to_a_minute_and_no_longer(lower):
    now = 0.0
    for _ in range(10):
        lower.missed_deadline()
        assert not lower.is_available
        lower.poll(now := now + 60.0)
        assert lower.is_available


def test_jobs_that_are_late_together_cost_one_pause(lower):
    for _ in range(3):
        lower.missed_deadline()
    lower.poll(1.0)
    lower.missed_deadline()
    lower.poll(2.9)
    assert not lower.is_available
    lower.poll(3.0)
    assert lower.is_available


def test_a_tier_that_raised_is_well_when_it_has_worked_for_as_long_as_its_next_pause(lower, below, caplog):
    below.raises = {"lookup"}
    assert lower.masks([key_of(0)]) == [0]
    below.get_well()
    with caplog.at_level(logging.INFO):
        for now, is_well in ((1.0, False), (2.9, False), (3.0, True)):
            lower.poll(now)
            lower.worked()
            assert ("works again" in caplog.text) is is_well


def test_what_could_not_be_read_is_stored_and_found_again_after_a_reset(lower):
    lower.could_not_read([key_of(0)])
    lower.reset()
    assert lower.submit_store(1, [chunk(0)])
    lower.poll(0.1)
    assert lower.masks([key_of(0)]) == [ALL_BLOCKS]


def test_a_job_counts_as_taken_if_its_call_raised_and_it_cannot_be_cancelled(lower, below, released):
    """The tier may write to its slots yet."""
    below.fault, below.raises, below.raises_late = TierFault.HANGS, {"submit_load", "cancel"}, True
    assert lower.submit_load(1, [chunk(0)])
    lower.cancel(1, [key_of(0)], [7])
    for now in (2.0, 100.0):
        lower.poll(now)
        assert (lower.quarantined_heads, released, lower.is_available) == ([7], [], False)
    below.get_well()
    lower.poll(200.0)
    assert (lower.quarantined_heads, released, lower.is_available) == ([], [7], True)
