"""The offloading manager, call by call."""

import time
from collections import Counter

import pytest

from octavo.chunks import ALL_BLOCKS, ChunkSizes, GroupOffloadConfig, LookupResult, PromisedPoint
from octavo.errors import InputError, OffloadError
from octavo.host import PAGE_BYTES
from octavo.ids import BlockHash
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager import MEMORY
from octavo.policies import LRUPolicy
from rigs.faulty_tier import FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld, key_of, wanted

MISS, HIT, HIT_PENDING, RETRY = LookupResult.MISS, LookupResult.HIT, LookupResult.HIT_PENDING, LookupResult.RETRY


class CountingTier(FaultyTier):
    """Counts how often a key was to be read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.num_reads = Counter()

    def submit_load(self, job_id, chunks):
        self.num_reads.update(chunk.key for chunk in chunks)
        return super().submit_load(job_id, chunks)


@pytest.fixture
def make_world():
    worlds = []

    def make(*tiers, **options):
        worlds.append(OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), tiers, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.manager.check_invariants()
        world.manager.close()


@pytest.fixture
def world(make_world):
    return make_world()


@pytest.fixture
def below():
    return CountingTier(NaiveTier(64 * PAGE_BYTES))


@pytest.fixture
def tiered(make_world, below):
    return make_world(below)


def fill(world, first=100):
    """Stores others until nothing else is in memory."""
    for number in range(first, first + NUM_SLOTS):
        assert world.store(wanted(number)) == 1


def evicted_to_tier(world, *numbers):
    """These chunks are on the tier below, and not in memory."""
    assert world.store(*map(wanted, numbers)) == len(numbers)
    world.poll()
    world.settle()
    fill(world)
    world.poll()
    world.settle()


class TestStores:
    def test_a_chunk_is_pending_then_there(self, world):
        chunks = [wanted(0), wanted(1, group_idx=1)]
        keys = [chunk.key for chunk in chunks]
        prepared = world.manager.prepare_store(chunks)
        assert prepared.places == [0, 1]
        assert [len(slots) for slots in prepared.slots] == [1, 3]
        assert world.manager.lookup(keys) == [HIT_PENDING, HIT_PENDING]
        assert world.manager.prepare_load(keys) is None
        world.manager.complete_store(prepared.job_id, (), world.write_store(chunks, prepared))
        assert world.manager.lookup(keys) == [HIT, HIT]
        assert world.load(*keys) == set()

    def test_what_is_there_or_on_its_way_is_skipped(self, world):
        world.store(wanted(0))
        prepared = world.manager.prepare_store([wanted(1)])
        again = world.manager.prepare_store([wanted(0), wanted(1), wanted(2), wanted(2)])
        assert again.places == [2]
        world.manager.complete_store(prepared.job_id, failed=[0])
        world.manager.complete_store(again.job_id, failed=[0])

    def test_no_room_changes_nothing(self, world):
        world.store(*(wanted(n) for n in range(NUM_SLOTS)))
        load = world.manager.prepare_load([key_of(n) for n in range(NUM_SLOTS - 1)])
        before = world.manager.status()
        assert world.manager.prepare_store([wanted(50, group_idx=1)]) is None
        after = world.manager.status()
        assert after.num_chunks == before.num_chunks == NUM_SLOTS
        assert after.counters["refused_stores"] == 1
        world.manager.complete_load(load.job_id)
        assert world.store(wanted(50, group_idx=1)) == 1

    def test_chunks_of_the_same_call_are_no_victims(self, world):
        world.store(*(wanted(n) for n in range(NUM_SLOTS)))
        assert world.store(*(wanted(n) for n in range(NUM_SLOTS + 1))) is None  # all others are to stay
        assert world.store(wanted(0), wanted(NUM_SLOTS)) == 1
        assert world.manager.lookup([key_of(0), key_of(NUM_SLOTS)]) == [HIT, HIT]

    def test_what_failed_is_not_there(self, world):
        chunks = [wanted(0), wanted(1)]
        prepared = world.manager.prepare_store(chunks)
        world.manager.complete_store(prepared.job_id, [1], world.write_store(chunks, prepared))
        assert world.manager.lookup([key_of(0), key_of(1)]) == [HIT, MISS]
        assert world.manager.status().counters["failed_stores"] == 1

    def test_more_blocks_replace_fewer_while_these_are_read(self, world):
        world.store(wanted(0, held_blocks=0b01))
        assert world.manager.held_blocks([key_of(0), key_of(1)]) == [0b01, 0]
        assert world.store(wanted(0, held_blocks=0b01)) == 0
        load = world.manager.prepare_load([key_of(0)])
        assert world.store(wanted(0)) == 1
        assert world.manager.held_blocks([key_of(0)]) == [ALL_BLOCKS]
        assert world.read_load([key_of(0)], load) == set()
        world.manager.check_invariants()
        world.manager.complete_load(load.job_id)
        assert world.manager.status().free_slots == NUM_SLOTS - 1
        assert world.store(wanted(0, held_blocks=0b10)) == 0

    def test_a_job_is_completed_once_and_as_it_was_prepared(self, world):
        prepared = world.manager.prepare_store([wanted(0)])
        with pytest.raises(OffloadError, match="none at place 1"):
            world.manager.complete_store(prepared.job_id, failed=[1])
        with pytest.raises(OffloadError, match="1 chunks, but 2 checksums"):
            world.manager.complete_store(prepared.job_id, checksums=[1, 2])
        world.manager.complete_store(prepared.job_id)
        with pytest.raises(OffloadError, match=f"no store {prepared.job_id}"):
            world.manager.complete_store(prepared.job_id)
        with pytest.raises(OffloadError, match=f"no load {prepared.job_id}"):
            world.manager.complete_load(prepared.job_id)

    def test_a_promise_reaches_the_policy_when_its_chunks_are_there(self, make_world):
        promised = []

        class Watching(LRUPolicy):
            def promise(self, point):
                promised.append((point, world.manager.lookup([key_of(0)])))

        world = OffloadWorld(Watching(GROUPS, NUM_SLOTS))
        point = PromisedPoint(8, BlockHash(b"h"))
        prepared = world.manager.prepare_store([wanted(0)], [point])
        assert promised == []
        world.manager.complete_store(prepared.job_id)
        assert world.store(wanted(0), promises=[point]) == 0
        assert promised == [(point, [HIT])] * 2
        world.manager.close()


class TestLoads:
    def test_pinned_chunks_are_no_victims(self, world):
        world.store(wanted(0))
        load = world.manager.prepare_load([key_of(0), key_of(0)])
        fill(world)
        assert world.manager.lookup([key_of(0)]) == [HIT]
        world.manager.complete_load(load.job_id)
        fill(world, first=200)
        assert world.manager.lookup([key_of(0)]) == [MISS]

    def test_all_or_nothing(self, world):
        world.store(wanted(0))
        assert world.manager.prepare_load([key_of(0), key_of(1)]) is None
        fill(world)
        assert world.manager.lookup([key_of(0)]) == [MISS]

    def test_wrong_bytes_are_a_miss_from_then_on(self, world):
        world.store(wanted(0), wanted(1))
        world.flip_bit(key_of(0))
        assert world.load(key_of(0), key_of(1)) == {0}
        assert world.manager.lookup([key_of(0), key_of(1)]) == [MISS, HIT]
        assert world.manager.status().counters["failed_loads"] == 1
        assert world.store(wanted(0)) == 1
        assert world.load(key_of(0)) == set()

    def test_a_late_report_of_wrong_bytes_does_not_hurt_new_ones(self, world):
        world.store(wanted(0, held_blocks=1))
        load = world.manager.prepare_load([key_of(0)])
        world.store(wanted(0))
        world.manager.complete_load(load.job_id, failed=[0])
        assert world.manager.lookup([key_of(0)]) == [HIT]


class TestReset:
    def test_older_completions_free_and_never_publish(self, world):
        world.store(wanted(0), wanted(1))
        load = world.manager.prepare_load([key_of(0)])
        chunks = [wanted(2, group_idx=1)]
        store = world.manager.prepare_store(chunks)
        world.manager.reset()
        assert world.manager.lookup([key_of(0), key_of(1), chunks[0].key]) == [MISS, MISS, MISS]
        assert world.manager.status().free_slots == NUM_SLOTS - 4
        again = world.manager.prepare_store(chunks)
        assert again.places == [0]
        assert not set(again.slots[0]) & {*store.slots[0], *load.slots[0]}
        world.manager.complete_store(store.job_id)
        assert world.manager.lookup([chunks[0].key]) == [HIT_PENDING]
        world.manager.complete_load(load.job_id, failed=[0])
        world.manager.complete_store(again.job_id, (), world.write_store(chunks, again))
        assert world.load(chunks[0].key) == set()
        assert world.manager.status().free_slots == NUM_SLOTS - 3

    def test_what_is_discarded_is_freed_little_by_little(self, world):
        fill(world)
        load = world.manager.prepare_load([key_of(100)])
        world.manager.reset()
        world.manager.reset()
        assert world.manager.has_pending_work()
        assert world.manager.status().free_slots == NUM_SLOTS - 1
        fill(world, first=200)
        for _ in range(NUM_SLOTS):
            world.poll()
        assert not world.manager.has_pending_work()
        world.manager.complete_load(load.job_id)
        assert world.manager.status().free_slots == 1

    def test_tiers_forget_too(self, tiered, below):
        evicted_to_tier(tiered, 0)
        assert tiered.manager.lookup([key_of(0)]) == [RETRY]
        below.fault = TierFault.HANGS
        tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 5)
        tiered.manager.reset()
        assert tiered.manager.lookup([key_of(0), key_of(110)]) == [MISS, MISS]
        assert tiered.manager.status().free_slots == NUM_SLOTS
        below.fault = TierFault.NONE
        tiered.settle()
        tiered.settle()
        assert tiered.manager.lookup([key_of(0)]) == [MISS]


class TestTiersBelow:
    def test_what_memory_gives_up_comes_back_from_below(self, tiered):
        evicted_to_tier(tiered, 0, 1)
        keys = [key_of(0), key_of(1), key_of(2)]
        assert tiered.manager.lookup(keys) == [RETRY, RETRY, MISS]
        assert tiered.manager.held_blocks(keys) == [ALL_BLOCKS, ALL_BLOCKS, 0]
        chunks = [wanted(0), wanted(1), wanted(2)]
        assert tiered.manager.promote(chunks, 0, 5) == [HIT_PENDING, HIT_PENDING, MISS]
        assert tiered.manager.held_blocks(keys) == [ALL_BLOCKS, ALL_BLOCKS, 0]
        tiered.settle()
        assert tiered.manager.lookup(keys) == [HIT, HIT, MISS]
        assert tiered.load(*keys[:2]) == set()

    def test_memory_that_goes_wrong_before_it_is_written_reaches_no_tier(self, tiered, below):
        tiered.store(wanted(0), wanted(1))
        tiered.flip_bit(key_of(0))
        tiered.poll()
        tiered.settle()
        assert below.lookup([key_of(0), key_of(1)]) == [0, ALL_BLOCKS]
        assert tiered.manager.status().counters["failed_write_through"] == 1
        assert tiered.load(key_of(0)) == {0}

    def test_one_read_serves_all_who_wait(self, tiered, below):
        evicted_to_tier(tiered, 0)
        below.fault = TierFault.HANGS
        assert tiered.manager.promote([wanted(0)], 0, 5) == [HIT_PENDING]
        assert tiered.manager.promote([wanted(0)], 1, 50) == [HIT_PENDING]
        assert tiered.manager.prepare_store([wanted(0)]).places == []
        assert below.num_reads == {key_of(0): 1}

    def test_a_late_promotion_is_a_miss_and_its_tier_is_left_alone_ever_longer(self, tiered, below):
        evicted_to_tier(tiered, 0, 1)
        below.fault = TierFault.HANGS
        for pause in (1, 2, 4):
            tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 5)
            tiered.poll(4.5)
            assert tiered.manager.lookup([key_of(0)]) == [HIT_PENDING]
            tiered.poll(0.5)
            assert tiered.manager.lookup([key_of(0), key_of(1)]) == [MISS, MISS]
            assert tiered.manager.promote([wanted(1)], tiered.now, tiered.now + 5) == [MISS]
            tiered.poll(pause - 0.25)
            assert tiered.manager.lookup([key_of(1)]) == [MISS]
            tiered.poll(0.25)
            assert tiered.manager.lookup([key_of(1)]) == [RETRY]
        assert tiered.manager.status().counters["late_promotions"] == 3
        below.fault = TierFault.NONE
        assert tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 5) == [HIT_PENDING]
        tiered.settle()
        assert tiered.load(key_of(0)) == set()

    def test_a_failed_read_is_a_miss_for_a_while(self, tiered, below):
        evicted_to_tier(tiered, 0)
        below.fault = TierFault.FAILS
        tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 5)
        tiered.poll()
        assert tiered.manager.lookup([key_of(0)]) == [MISS]
        assert tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 5) == [MISS]
        tiered.poll(1)
        assert tiered.manager.lookup([key_of(0)]) == [RETRY]
        assert tiered.manager.status().counters["failed_promotions"] == 1

    def test_a_refused_read_may_be_asked_for_again(self, tiered, below):
        evicted_to_tier(tiered, 0)
        below.fault = TierFault.REFUSES
        assert tiered.manager.promote([wanted(0)], 0, 5) == [RETRY]
        below.fault = TierFault.NONE
        assert tiered.manager.promote([wanted(0)], 0, 5) == [HIT_PENDING]

    def test_promoted_chunks_stay_until_loaded_or_their_deadline(self, tiered):
        evicted_to_tier(tiered, 0, 1)
        tiered.manager.promote([wanted(0), wanted(1)], tiered.now, tiered.now + 5)
        tiered.settle()
        assert tiered.load(key_of(0)) == set()
        assert tiered.store(*(wanted(n) for n in range(200, 200 + NUM_SLOTS - 1))) == NUM_SLOTS - 1
        assert tiered.manager.lookup([key_of(0), key_of(1)]) == [RETRY, HIT]
        tiered.settle()
        tiered.poll(5)
        tiered.settle()
        assert tiered.store(*(wanted(n) for n in range(300, 300 + NUM_SLOTS))) == NUM_SLOTS
        assert tiered.manager.lookup([key_of(1)]) == [RETRY]

    def test_as_many_from_the_front_as_there_is_room_for(self, tiered):
        evicted_to_tier(tiered, 0, 1, 2, 3)
        others = [key_of(100 + n) for n in range(NUM_SLOTS - 2)]
        load = tiered.manager.prepare_load([key for key in others if tiered.manager.lookup([key]) == [HIT]])
        stands = tiered.manager.promote([wanted(n) for n in range(4)], 0, 5)
        assert stands == [HIT_PENDING, HIT_PENDING, RETRY, RETRY]
        tiered.manager.complete_load(load.job_id)

    def test_a_tier_that_lacks_wanted_blocks_is_passed_over(self, make_world, below):
        world = make_world(below)
        world.store(wanted(0, held_blocks=1))
        world.poll()
        world.settle()
        fill(world)
        assert world.manager.promote([wanted(0)], 0, 5) == [RETRY]
        assert below.num_reads == {}
        assert world.manager.promote([wanted(0, held_blocks=1)], 0, 5) == [HIT_PENDING]
        world.settle()
        assert world.manager.held_blocks([key_of(0)]) == [1]
        assert world.load(key_of(0)) == set()

    def test_a_wider_copy_below_takes_the_place_of_a_narrow_one(self, tiered):
        evicted_to_tier(tiered, 0)
        tiered.store(wanted(0, held_blocks=1))
        assert tiered.manager.promote([wanted(0, held_blocks=1)], tiered.now, tiered.now + 5) == [HIT]
        assert tiered.manager.promote([wanted(0, held_blocks=2)], tiered.now, tiered.now + 5) == [HIT_PENDING]
        load = tiered.manager.prepare_load([key_of(0)])
        tiered.settle()
        assert tiered.read_load([key_of(0)], load) == set()
        tiered.manager.complete_load(load.job_id)
        assert tiered.manager.held_blocks([key_of(0)]) == [ALL_BLOCKS]
        assert tiered.load(key_of(0)) == set()
        tiered.store(wanted(50, held_blocks=1))
        assert tiered.manager.promote([wanted(50)], tiered.now, tiered.now + 5) == [MISS]

    def test_a_promotion_from_a_deep_tier_fills_those_above(self, make_world):
        upper = NaiveTier(2 * PAGE_BYTES)
        deep = NaiveTier(64 * PAGE_BYTES)
        world = make_world(upper, deep)
        evicted_to_tier(world, 0)
        assert (upper.lookup([key_of(0)]), deep.lookup([key_of(0)])) == ([0], [ALL_BLOCKS])
        world.manager.promote([wanted(0)], world.now, world.now + 5)
        world.settle()
        world.poll()
        world.settle()
        assert upper.lookup([key_of(0)]) == [ALL_BLOCKS]
        assert world.load(key_of(0)) == set()

    def test_a_hanging_tier_does_not_pin_memory_for_ever(self, tiered, below):
        below.fault = TierFault.HANGS
        tiered.store(*(wanted(n) for n in range(NUM_SLOTS)))
        tiered.poll()
        tiered.poll()
        others = NUM_SLOTS - NUM_SLOTS // 4
        assert tiered.store(*(wanted(100 + n) for n in range(NUM_SLOTS))) is None
        assert tiered.store(*(wanted(100 + n) for n in range(others))) == others
        tiered.poll(30)
        tiered.poll()
        assert tiered.store(*(wanted(200 + n) for n in range(NUM_SLOTS))) == NUM_SLOTS
        assert not tiered.manager.has_pending_work()

    def test_what_comes_faster_than_a_tier_writes_is_written_later(self, tiered, below):
        keys = [key_of(n) for n in range(NUM_SLOTS)]
        tiered.store(*(wanted(n) for n in range(NUM_SLOTS)))
        tiered.poll()
        assert any(mask == 0 for mask in below.lookup(keys))
        tiered.settle()
        assert all(below.lookup(keys))
        assert tiered.manager.status().counters["dropped_write_through"] == 0

    def test_what_memory_gave_up_before_its_turn_is_dropped_and_counted(self, tiered):
        tiered.store(*(wanted(n) for n in range(NUM_SLOTS)))
        tiered.poll()
        tiered.store(*(wanted(100 + n) for n in range(NUM_SLOTS // 2)))
        tiered.settle()
        counters = tiered.manager.status().counters
        assert counters["dropped_write_through"] > 0
        assert counters["dropped_write_through"] + counters["written_through"] == NUM_SLOTS + NUM_SLOTS // 2

    @pytest.mark.parametrize("fault", [TierFault.REFUSES, TierFault.FAILS])
    def test_what_a_tier_does_not_take_is_dropped_and_counted(self, tiered, below, fault):
        below.fault = fault
        tiered.store(wanted(0), wanted(1), wanted(2))
        tiered.poll()
        tiered.poll()
        counters = tiered.manager.status().counters
        assert counters["dropped_write_through"] + counters["failed_write_through"] == 3
        assert not tiered.manager.has_pending_work()

    def test_what_a_tier_has_is_not_written_again(self, tiered):
        evicted_to_tier(tiered, 0)
        written = tiered.manager.status().counters["written_through"]
        tiered.store(wanted(0), wanted(1))
        tiered.poll()
        tiered.settle()
        assert tiered.manager.status().counters["written_through"] == written + 1

    def test_a_promoted_chunk_that_is_replaced_and_promoted_again_is_held_once(self, tiered, below):
        world = tiered
        world.store(wanted(0, held_blocks=1))
        world.poll()
        world.settle()
        fill(world)
        for first in (200, 300):
            world.manager.promote([wanted(0, held_blocks=1)], world.now, world.now + 500)
            for _ in range(3):  # nothing is left in flight for which the tier's refusal would be waited
                world.settle()
            assert world.manager.held_blocks([key_of(0)]) == [1]
            below.fault = TierFault.REFUSES
            assert world.store(wanted(0)) == 1
            world.poll()
            fill(world, first)
            below.fault = TierFault.NONE
        world.settle()
        world.poll(500)
        world.poll()
        assert not world.manager.has_pending_work()
        assert not any(world.manager._resident.table.readers)

    def test_flush_brings_all_below(self, tiered, below):
        tiered.store(wanted(0), wanted(1))
        assert tiered.manager.flush(10.0, time.monotonic)
        assert below.lookup([key_of(0), key_of(1)]) == [ALL_BLOCKS] * 2
        below.fault = TierFault.HANGS
        tiered.store(wanted(2))
        assert not tiered.manager.flush(10.0, time.monotonic)


class TestStaging:
    """An arena that keeps nothing: chunks pass through."""

    @pytest.fixture
    def staging(self, make_world, below):
        return make_world(below, keeps_in_memory=False)

    def test_a_chunk_leaves_when_it_is_below_and_when_it_was_loaded(self, staging):
        staging.store(wanted(0), wanted(1, group_idx=1))
        assert staging.manager.lookup([key_of(0)]) == [HIT]
        staging.poll()
        staging.settle()
        keys = [key_of(0), key_of(1, 1)]
        assert staging.manager.lookup(keys) == [RETRY, RETRY]
        assert staging.manager.status().free_slots == NUM_SLOTS
        staging.manager.promote([wanted(0), wanted(1, group_idx=1)], staging.now, staging.now + 5)
        staging.settle()
        assert staging.manager.lookup(keys) == [HIT, HIT]
        assert staging.load(*keys) == set()
        assert staging.manager.status().free_slots == NUM_SLOTS
        assert staging.manager.lookup(keys) == [RETRY, RETRY]

    def test_a_chunk_that_no_tier_takes_leaves_too(self, staging, below):
        below.fault = TierFault.REFUSES
        staging.store(wanted(0))
        staging.poll()
        assert staging.manager.lookup([key_of(0)]) == [MISS]
        assert staging.manager.status().free_slots == NUM_SLOTS


class TestChanges:
    def test_by_medium_and_net(self, tiered):
        manager = tiered.manager
        tiered.store(wanted(0), wanted(1, held_blocks=1))
        changes = manager.take_changes()
        assert not changes.was_cleared
        assert [(c.medium, c.removed, c.stored) for c in changes.media] == [
            (MEMORY, [key_of(1)], [key_of(0)]),  # nobody was told of one that has only a part
            ("faulty", [], []),
        ]
        tiered.poll()
        tiered.settle()
        fill(tiered)
        memory, below = manager.take_changes().media
        assert set(memory.removed) == {key_of(0), key_of(1)}
        assert set(memory.stored) == {key_of(100 + n) for n in range(NUM_SLOTS)}
        assert below.stored[0] == key_of(0)
        assert key_of(1) not in below.stored
        tiered.store(wanted(0))
        tiered.flip_bit(key_of(0))
        tiered.load(key_of(0))
        assert key_of(0) not in manager.take_changes().media[0].stored

    def test_a_chunk_is_told_once_all_its_blocks_are_there(self, world):
        world.store(wanted(0, held_blocks=1))
        assert world.manager.take_changes().media[0].stored == []
        world.store(wanted(0))
        memory = world.manager.take_changes().media[0]
        assert (memory.removed, memory.stored) == ([], [key_of(0)])

    def test_what_nobody_asks_for_does_not_pile_up(self, below):
        world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [below], logs_changes=False)
        evicted_to_tier(world, 0)
        assert not any(below.take_changes())
        assert world.manager.take_changes().media == ()
        world.manager.close()

    def test_a_reset_says_so_once(self, world):
        world.store(wanted(0))
        world.manager.reset()
        changes = world.manager.take_changes()
        assert changes.was_cleared
        assert not changes.media[0].removed
        assert not world.manager.take_changes().was_cleared


def test_masks_have_room_for_so_many_blocks():
    group = GroupOffloadConfig(spec=GROUPS[0].spec, blocks_per_chunk=64, page_size_bytes=16)
    with pytest.raises(InputError, match="blocks_per_chunk = 64"):
        ChunkSizes([group], PAGE_BYTES)


def test_limits_bound_the_keys_that_are_remembered_as_failed(make_world, below):
    world = make_world(below, limits=OffloadLimits(most_failed_keys=1))
    evicted_to_tier(world, 0, 1)
    below.fault = TierFault.FAILS
    world.manager.promote([wanted(0), wanted(1)], world.now, world.now + 5)
    world.poll()
    assert world.manager.lookup([key_of(0), key_of(1)]) == [RETRY, MISS]
