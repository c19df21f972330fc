"""The offloading manager, call by call."""

import pytest

from octavo.chunks import ALL_BLOCKS, Departures, GroupOffloadConfig, Leaving, PromisedPoint
from octavo.errors import InputError, OffloadError
from octavo.ids import BlockHash
from octavo.offload import MEMORY
from octavo.policies import LRUPolicy
from rigs.faulty_tier import TierFault
from rigs.offload_world import (
    GROUPS,
    HIT,
    HIT_PENDING,
    MISS,
    NUM_SLOTS,
    RETRY,
    OffloadWorld,
    evicted_to_tier,
    fill,
    key_of,
    wanted,
)


class TestStores:
    def test_a_chunk_is_pending_then_there(self, world):
        chunks = [wanted(0), wanted(1, group_idx=1)]
        keys = [chunk.key for chunk in chunks]
        prepared = world.manager.prepare_store(chunks)
        assert prepared.indices == [0, 1]
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
        assert again.indices == [2]
        world.manager.complete_store(prepared.job_id, failed=[0])
        world.manager.complete_store(again.job_id, failed=[0])

    def test_no_room_changes_nothing(self, world):
        world.store(*(wanted(n) for n in range(NUM_SLOTS)))
        load = world.manager.prepare_load([key_of(n) for n in range(NUM_SLOTS - 1)])
        before = world.manager.status()
        assert world.manager.prepare_store([wanted(50, group_idx=1)]) is None
        after = world.manager.status()
        assert after.num_chunks == before.num_chunks == NUM_SLOTS
        assert after.counters["store_refused"] == 1
        world.manager.complete_load(load.job_id)
        assert world.store(wanted(50, group_idx=1)) == 1

    def test_chunks_of_the_same_call_are_no_victims(self, world):
        world.store(*(wanted(n) for n in range(NUM_SLOTS)))
        assert world.store(*(wanted(n) for n in range(NUM_SLOTS + 1))) is None  # all others are to stay
        assert world.store(wanted(0), wanted(NUM_SLOTS)) == 1
        assert world.manager.lookup([key_of(0), key_of(NUM_SLOTS)]) == [HIT, HIT]

    def test_the_whole_of_a_chunk_is_told_though_a_part_went_first(self, world):
        world.store(wanted(0, held_blocks=0b01))
        world.manager.take_changes()
        prepared = world.manager.prepare_store([wanted(0)])
        fill(world)
        assert world.manager.held_blocks([key_of(0)]) == [ALL_BLOCKS], "on its way, and nothing of it is there"
        world.manager.complete_store(prepared.job_id, (), world.write_store([wanted(0)], prepared))
        (memory,) = world.manager.take_changes().media
        assert key_of(0) in memory.stored
        assert memory.held[key_of(0)] == ALL_BLOCKS

    def test_an_eviction_is_put_down_to_the_policy_by_its_name(self, make_world):
        departures = Departures()
        world = make_world(departures=departures)
        world.store(*(wanted(n) for n in range(NUM_SLOTS)))
        world.store(wanted(NUM_SLOTS))
        (departure,) = [one for n in range(NUM_SLOTS) for one in departures.find(key_of(n))]
        assert (departure.medium, departure.how, departure.rule) == (MEMORY, Leaving.EVICTED, "lru")

    def test_what_failed_is_not_there(self, world):
        chunks = [wanted(0), wanted(1)]
        prepared = world.manager.prepare_store(chunks)
        world.manager.complete_store(prepared.job_id, [1], world.write_store(chunks, prepared))
        assert world.manager.lookup([key_of(0), key_of(1)]) == [HIT, MISS]
        assert world.manager.status().counters["store_failed"] == 1

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
        with pytest.raises(OffloadError, match="none at index 1"):
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
        assert world.manager.status().counters["load_failed"] == 1
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
        assert again.indices == [0]
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

    def test_the_only_chunk_that_goes_and_comes_back_is_told_anew(self, world):
        world.store(wanted(0))
        world.manager.take_changes()
        world.flip_bit(key_of(0))
        world.load(key_of(0))
        world.manager.tell_all()
        world.store(wanted(0))
        assert world.manager.take_changes().media[0].stored == [key_of(0)]

    def test_a_reset_says_so_once(self, world):
        world.store(wanted(0))
        world.manager.reset()
        changes = world.manager.take_changes()
        assert changes.was_cleared
        assert not changes.media[0].removed
        assert not world.manager.take_changes().was_cleared

    def test_a_reset_of_which_nobody_hears_tells_each_chunk_that_was_told(self, tiered):
        tiered.store(wanted(0))
        tiered.poll()
        tiered.settle()
        tiered.manager.take_changes()
        tiered.store(wanted(1))
        tiered.manager.reset(tells_each=True)
        tiered.settle()
        changes = tiered.manager.take_changes()
        assert not changes.was_cleared
        assert [(c.medium, c.removed, c.stored) for c in changes.media] == [
            (MEMORY, [key_of(0)], []),  # of the other nobody was told
            ("faulty", [key_of(0)], []),
        ]


def test_masks_have_room_for_so_many_blocks():
    """Refused before anything is sized by it: a chunk of a billion blocks took all memory to plan slots for."""
    for num_blocks in (64, 10**9, 10**30):
        with pytest.raises(InputError, match=f"blocks_per_chunk = {num_blocks} of a group of kind .* at most 63"):
            GroupOffloadConfig(spec=GROUPS[0].spec, blocks_per_chunk=num_blocks, page_size_bytes=16)
