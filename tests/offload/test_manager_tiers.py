"""The offloading manager and the tiers below it, call by call."""

import time

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.host import PAGE_BYTES
from octavo.offload.lower_tier import OffloadLimits
from rigs.faulty_tier import TierFault
from rigs.naive_tier import NaiveTier
from rigs.offload_world import HIT, HIT_PENDING, MISS, NUM_SLOTS, RETRY, evicted_to_tier, fill, key_of, wanted


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
        assert tiered.manager.status().counters["write_through_failed"] == 1
        assert tiered.load(key_of(0)) == {0}

    def test_one_read_serves_all_who_wait(self, tiered, below):
        evicted_to_tier(tiered, 0)
        below.fault = TierFault.HANGS
        assert tiered.manager.promote([wanted(0)], 0, 5) == [HIT_PENDING]
        assert tiered.manager.promote([wanted(0)], 1, 50) == [HIT_PENDING]
        assert tiered.manager.prepare_store([wanted(0)]).indices == []
        assert below.num_reads == {key_of(0): 1}

    def test_a_part_in_memory_is_no_hit_while_the_rest_is_read(self, tiered, below):
        evicted_to_tier(tiered, 0)
        tiered.store(wanted(0, held_blocks=0b01))
        below.fault = TierFault.HANGS
        assert tiered.manager.promote([wanted(0)], 0, 5) == [HIT_PENDING]
        assert tiered.manager.promote([wanted(0)], 1, 5) == [HIT_PENDING]
        assert tiered.manager.promote([wanted(0, held_blocks=0b01)], 1, 5) == [HIT]

    def test_a_part_in_memory_is_no_hit_while_the_whole_is_stored(self, tiered):
        tiered.store(wanted(0, held_blocks=0b01))
        prepared = tiered.manager.prepare_store([wanted(0)])
        assert tiered.manager.promote([wanted(0)], 0, 5) == [HIT_PENDING]
        tiered.manager.complete_store(prepared.job_id, (), tiered.write_store([wanted(0)], prepared))
        assert tiered.manager.promote([wanted(0)], 0, 5) == [HIT]

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
        assert tiered.manager.status().counters["promotion_late"] == 3
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
        assert tiered.manager.status().counters["promotion_failed"] == 1

    def test_what_one_tier_cannot_read_comes_from_the_next(self, make_world, below):
        world = make_world(below, NaiveTier(64 * PAGE_BYTES))
        evicted_to_tier(world, 0, 1)
        below.fault = TierFault.FAILS
        chunks, keys = [wanted(0), wanted(1)], [key_of(0), key_of(1)]
        assert world.manager.promote(chunks, world.now, world.now + 5) == [HIT_PENDING, HIT_PENDING]
        world.poll()
        assert world.manager.lookup(keys) == [RETRY, RETRY]
        assert world.manager.promote(chunks, world.now, world.now + 5) == [HIT_PENDING, HIT_PENDING]
        world.poll()
        assert world.manager.lookup(keys) == [HIT, HIT]
        assert world.load(*keys) == set()

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

    @pytest.mark.parametrize("is_read", [True, False])
    def test_promoted_chunks_for_which_nobody_waits_any_more_are_free_to_go(self, tiered, is_read):
        evicted_to_tier(tiered, 0, 1)
        tiered.manager.promote([wanted(0), wanted(1)], tiered.now, tiered.now + 500)
        if is_read:
            tiered.settle()
        tiered.manager.stop_waiting([key_of(0), key_of(1), key_of(7)])
        tiered.settle()
        assert not tiered.manager.has_pending_work()
        assert tiered.store(*(wanted(n) for n in range(300, 300 + NUM_SLOTS))) == NUM_SLOTS
        assert tiered.manager.lookup([key_of(0), key_of(1)]) == [RETRY, RETRY]

    def test_what_is_held_for_who_waits_does_not_move(self, tiered):
        """An engine that is paused until nothing moves would wait for a request that waits for the end of the pause."""
        evicted_to_tier(tiered, 0)
        tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 500)
        assert tiered.manager.is_moving()
        tiered.settle()
        assert tiered.manager.lookup([key_of(0)]) == [HIT]
        assert not tiered.manager.is_moving()
        assert tiered.manager.has_pending_work(), "the hold ends one day"

    def test_who_asks_after_another_gave_up_has_a_read_chunk_held(self, tiered):
        evicted_to_tier(tiered, 0)
        tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 500)
        tiered.manager.stop_waiting([key_of(0)])
        assert tiered.manager.promote([wanted(0)], tiered.now, tiered.now + 500) == [HIT_PENDING]
        tiered.settle()
        assert tiered.store(*(wanted(n) for n in range(300, 300 + NUM_SLOTS))) is None
        assert tiered.load(key_of(0)) == set()
        assert not tiered.manager.has_pending_work()

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
        assert tiered.manager.status().counters["write_through_dropped"] == 0

    def test_what_memory_gave_up_before_its_turn_is_dropped_and_counted(self, tiered):
        tiered.store(*(wanted(n) for n in range(NUM_SLOTS)))
        tiered.poll()
        tiered.store(*(wanted(100 + n) for n in range(NUM_SLOTS // 2)))
        tiered.settle()
        counters = tiered.manager.status().counters
        assert counters["write_through_dropped"] > 0
        assert counters["write_through_dropped"] + counters["written_through"] == NUM_SLOTS + NUM_SLOTS // 2

    @pytest.mark.parametrize("fault", [TierFault.REFUSES, TierFault.FAILS])
    def test_what_a_tier_does_not_take_is_dropped_and_counted(self, tiered, below, fault):
        below.fault = fault
        tiered.store(wanted(0), wanted(1), wanted(2))
        tiered.poll()
        tiered.poll()
        counters = tiered.manager.status().counters
        assert counters["write_through_dropped"] + counters["write_through_failed"] == 3
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
        assert tiered.manager.flush(60.0, time.monotonic)
        assert below.lookup([key_of(0), key_of(1)]) == [ALL_BLOCKS] * 2
        below.fault = TierFault.HANGS
        tiered.store(wanted(2))
        assert not tiered.manager.flush(0.05, time.monotonic)


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


def test_limits_bound_the_keys_that_are_remembered_as_failed(make_world, below):
    world = make_world(below, limits=OffloadLimits(most_failed_keys=1))
    evicted_to_tier(world, 0, 1)
    below.fault = TierFault.FAILS
    world.manager.promote([wanted(0), wanted(1)], world.now, world.now + 5)
    world.poll()
    assert world.manager.lookup([key_of(0), key_of(1)]) == [RETRY, MISS]


class TestGathering:
    """A tier that gathers gets the parts of a prompt together."""

    @pytest.fixture
    def below(self, below):
        below.gather_s = 2.0
        return below

    @staticmethod
    def store_part(world, *numbers):
        chunks = [wanted(number) for number in numbers]
        prepared = world.manager.prepare_store(chunks)
        world.manager.complete_store(prepared.job_id, (), world.write_store(chunks, prepared), more_follows=True)

    def test_parts_wait_for_the_end_of_their_prompt(self, tiered, below):
        keys = [key_of(0), key_of(1), key_of(2)]
        self.store_part(tiered, 0)
        tiered.poll(0.5)
        self.store_part(tiered, 1)
        tiered.poll(0.5)
        assert below.lookup(keys) == [0, 0, 0]
        tiered.store(wanted(2))
        tiered.poll()
        assert below.lookup(keys) == [ALL_BLOCKS] * 3

    def test_the_end_of_a_prompt_waits_for_no_other_prompt(self, tiered, below):
        tiered.store(wanted(0))
        self.store_part(tiered, 1)
        tiered.poll()
        assert below.lookup([key_of(0)]) == [ALL_BLOCKS]

    def test_a_part_waits_for_a_bounded_time(self, tiered, below):
        self.store_part(tiered, 0)
        tiered.poll()
        tiered.poll(1.9)
        self.store_part(tiered, 1)
        tiered.poll()
        assert below.lookup([key_of(0)]) == [0]
        tiered.poll(0.1)
        assert below.lookup([key_of(0), key_of(1)]) == [ALL_BLOCKS] * 2
        self.store_part(tiered, 2)
        tiered.poll()
        assert below.lookup([key_of(2)]) == [0], "the next parts wait anew"

    def test_parts_that_take_half_of_the_room_wait_no_more(self, tiered, below):
        numbers = range(NUM_SLOTS // 4 // 2)  # a quarter of memory may wait
        self.store_part(tiered, *numbers)
        tiered.poll()
        assert below.lookup([key_of(0)]) == [0]
        self.store_part(tiered, len(numbers))
        tiered.poll()
        assert below.lookup([key_of(0), key_of(len(numbers))]) == [ALL_BLOCKS] * 2

    def test_a_store_without_room_waits_for_no_part(self, tiered, below):
        self.store_part(tiered, 0)
        tiered.poll()
        too_many = [wanted(number) for number in range(10, 10 + NUM_SLOTS // 4)]
        assert tiered.manager.prepare_store(too_many, for_tiers=True) is None
        tiered.poll()
        assert below.lookup([key_of(0)]) == [ALL_BLOCKS]

    def test_a_prompt_that_is_complete_waits_for_nothing(self, tiered, below):
        self.store_part(tiered, 0)
        tiered.poll()
        tiered.manager.write_now()
        tiered.poll()
        assert below.lookup([key_of(0)]) == [ALL_BLOCKS]

    def test_flush_waits_for_no_part(self, tiered, below):
        self.store_part(tiered, 0)
        tiered.poll()
        assert tiered.manager.flush(60, time.monotonic)
        assert below.lookup([key_of(0)]) == [ALL_BLOCKS]
