"""A tenant never has more below the device than its quota, in memory and on tiers together, whatever comes when."""

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from octavo.chunks import LookupResult
from octavo.host import PAGE_BYTES
from octavo.offload.quotas import OwnedChunk, Quotas
from octavo.policies import LRUPolicy
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld, key_of, wanted

A, B = b"tenant a", b"tenant b"
BYTES = GROUPS[0].chunk_bytes


def owned(*numbers, tenant=A, num_bytes=10):
    return [OwnedChunk(key_of(number), tenant, num_bytes) for number in numbers]


def test_the_least_recently_used_make_room_the_deepest_first():
    quotas = Quotas({A: 40})
    assert quotas.admit(owned(0, 1)) == []
    assert quotas.admit(owned(10, 11)) == []
    quotas.touch([key_of(0), key_of(1)])
    assert quotas.admit(owned(20)) == [key_of(11)]
    assert quotas.admit(owned(21, 22)) == [key_of(10), key_of(1)]
    assert quotas.has_lost(key_of(1), A)
    assert not quotas.has_lost(key_of(0), A)
    assert not quotas.has_lost(key_of(99), B)


def test_what_no_quota_has_room_for_is_too_many():
    quotas = Quotas({A: 25})
    assert quotas.too_many([*owned(0, 1, 2), *owned(3, tenant=B)]) == {key_of(2)}
    assert quotas.too_many(owned(5, num_bytes=26)) == {key_of(5)}


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([A, B]), st.integers(1, 30)), max_size=4)))
def test_no_quota_is_ever_exceeded(stores):
    quotas, kept = Quotas({A: 50, B: 20}), {}
    for store in stores:
        coming = list({number: OwnedChunk(key_of(number), *rest) for number, *rest in store}.values())
        refused = quotas.too_many(coming)
        coming = [chunk for chunk in coming if chunk.key not in refused]
        gone = quotas.admit(coming)
        assert not {chunk.key for chunk in coming} & set(gone)
        kept |= {chunk.key: chunk for chunk in coming}
        for key in gone:
            del kept[key]
        for tenant, quota in ((A, 50), (B, 20)):
            used = sum(chunk.num_bytes for chunk in kept.values() if chunk.tenant == tenant)
            assert used == quotas.used_bytes(tenant) <= quota


@pytest.fixture
def tier():
    return NaiveTier(64 * PAGE_BYTES)


@pytest.fixture
def world(tier):
    world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [tier], quotas={A: 3 * BYTES})
    yield world
    world.manager.close()


def of(number, tenant=A):
    return replace(wanted(number), tenant=tenant)


def there(world, numbers):
    return [found is not LookupResult.MISS for found in world.manager.lookup([key_of(n) for n in numbers])]


def test_chunks_are_given_up_in_memory_and_below(world, tier):
    assert world.store(of(0), of(1), of(2), wanted(3)) == 4
    world.settle()
    assert all(tier.lookup([key_of(n) for n in range(4)]))
    assert world.store(of(4)) == 1
    world.settle()
    assert there(world, range(5)) == [True, True, False, True, True]
    assert tier.lookup([key_of(2)]) == [0]
    assert world.manager.status().counters["quota_evicted"] == 1


def test_what_waits_to_be_written_is_written_no_more(world, tier):
    world.store(of(0), of(1), of(2))
    world.store(of(4), of(5), of(6))
    world.settle()
    assert there(world, range(7)) == [False] * 4 + [True] * 3
    assert tier.lookup([key_of(n) for n in range(3)]) == [0, 0, 0]


def test_a_store_under_way_whose_room_went_to_others_is_forgotten(world):
    first = world.manager.prepare_store([of(0), of(1)])
    world.store(of(4), of(5))
    world.manager.complete_store(first.job_id)
    assert there(world, [0, 1, 4, 5]) == [True, False, True, True]


def test_more_than_the_quota_at_once_is_stored_in_part(world):
    assert world.store(*(of(number) for number in range(5))) == 3
    assert there(world, range(5)) == [True, True, True, False, False]


def test_a_reset_gives_the_quota_back(world):
    world.store(of(0), of(1), of(2))
    world.manager.reset()
    assert world.store(of(4), of(5), of(6)) == 3
    assert there(world, [4, 5, 6]) == [True] * 3
    assert world.manager.status().counters["quota_evicted"] == 0


def test_what_others_have_stored_counts_once_it_is_read(world, tier):
    """As on a tier that engines share. What does not fit beside the rest of its request is not found any more."""
    other = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [tier])
    assert other.store(*(of(number) for number in range(4))) == 4
    other.settle()
    assert world.store(of(9)) == 1
    world.settle()
    keys = [key_of(number) for number in range(4)]
    for number in range(3):
        pending = world.manager.promote([of(number)], world.now, world.now + 5, beside=keys[:number])
        assert pending == [LookupResult.HIT_PENDING]
        world.settle()
        assert world.load(*keys[: number + 1]) == set()
    assert there(world, [9, 0, 1, 2]) == [False, True, True, True]
    assert world.manager.promote([of(3)], world.now, world.now + 5, beside=keys[:3]) == [LookupResult.MISS]
    assert world.load(*keys[:3]) == set()
    counters = world.manager.status().counters
    assert (counters["promoted"], counters["quota_evicted"], counters["quota_refused"]) == (3, 1, 1)
    other.manager.close()
