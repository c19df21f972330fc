"""What a router believes of a tier that is off, and of one that is on again."""

import errno

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from octavo.chunks import ALL_BLOCKS, ChangeLog, get_offload_block_hash, make_offload_key
from octavo.events import BlockRemoved, GroupView, external_hashes
from octavo.ids import BlockHash
from octavo.offload.event_source import OffloadEventSource
from octavo.offload.told_chunks import ToldChunks
from octavo.policies import LRUPolicy
from octavo.tiers import TierContext, TierState
from octavo.tiers.disk import DiskConfig, DiskTier
from rigs.faulty_disk import FaultyDiskIO
from rigs.faulty_tier import METHODS, FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, MAX_CHUNK_BYTES, NUM_SLOTS, OffloadWorld, evicted_to_tier, key_of, wanted

SOME_S, LONG_S = 2.5, 100.0
"""A tier that is off for so long is told, and one in a pause is asked again."""


def hash_of(number):
    return external_hashes([get_offload_block_hash(key_of(number))])[0]


class Router:
    """Follows one engine's manager, which has nothing to do but to tell."""

    def __init__(self, tier):
        self.world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [tier])
        self.view = GroupView([group.spec for group in GROUPS], hash_block_size=4)
        self._source = OffloadEventSource(GROUPS)
        self.has_seen_removals = False
        self._medium = {"disk": "STORAGE"}.get(tier.medium, tier.medium)

    def look(self, seconds=0.0):
        """Time passes, and the engine tells as long as it has more to tell."""
        self.world.poll(seconds)
        manager = self.world.manager
        for _ in range(1000):
            events = self._source.messages(manager.take_changes())
            self.view.apply(events)
            self.has_seen_removals |= any(isinstance(e, BlockRemoved) and e.medium == self._medium for e in events)
            if not manager.has_pending_work():
                break
            self.world.settle()

    def believed(self):
        """The numbers of the chunks that it believes to be on the tier."""
        self.look()
        hashes = self.view.hashes(0, self._medium)
        return {number for number in range(200) if hash_of(number) in hashes}

    def truth(self):
        """What a request would find there."""
        masks = self.world.manager._below.lowers[0].masks([key_of(number) for number in range(200)])
        return {number for number, mask in enumerate(masks) if mask}


@pytest.fixture
def io():
    return FaultyDiskIO()


@pytest.fixture
def open_disk(io, tmp_path):
    def open_it():
        config = DiskConfig.from_mapping({"path": str(tmp_path / "tier"), "size": 1 << 21, "segment_size": 1 << 16})
        disk = DiskTier(config, TierContext(namespace=bytes(16), max_chunk_bytes=MAX_CHUNK_BYTES), io)
        router = Router(disk)
        opened.append(router.world.manager)
        return disk, router

    opened = []
    yield open_it
    for manager in opened:
        manager.close()


def turn_off(io, disk, router):
    io.fail("open", "allocate", "write", "sync", errno=errno.EROFS)
    router.world.store(wanted(50))
    await_state(disk, router, TierState.DEGRADED)


def stay_off(router):
    """For as long as it takes to be told."""
    router.look(1.0)
    router.look(SOME_S)


def turn_on(io, disk, router):
    io.heal()
    await_state(disk, router, TierState.OK, seconds=60.0)


def await_state(disk, router, state, *, seconds=0.0):
    for _ in range(1000):
        router.look(seconds)
        if disk.status().state is state:
            return
        disk.wait(0.01)
    pytest.fail(f"it does not come to be {state}")


def test_a_disk_that_is_off_has_nothing_until_it_is_back(io, open_disk):
    disk, router = open_disk()
    evicted_to_tier(router.world, 0, 1)
    assert router.believed() == router.truth() >= {0, 1}
    turn_off(io, disk, router)
    stay_off(router)
    assert router.believed() == router.truth() == set()
    turn_on(io, disk, router)
    assert router.believed() == router.truth() >= {0, 1}
    assert 50 not in router.truth()


def test_a_disk_that_is_back_at_once_costs_no_events(io, open_disk):
    disk, router = open_disk()
    evicted_to_tier(router.world, 0, 1)
    believed = router.believed()
    turn_off(io, disk, router)
    io.heal()
    router.look(1.5)
    await_state(disk, router, TierState.OK)
    assert router.believed() == router.truth() == believed
    assert not router.has_seen_removals
    assert router.view.is_complete, "nothing was told twice"


def test_what_is_lost_while_a_disk_is_off_is_not_told_again(io, open_disk, tmp_path):
    disk, router = open_disk()
    evicted_to_tier(router.world, 0, 1)
    turn_off(io, disk, router)
    stay_off(router)
    first, *_ = sorted((tmp_path / "tier").glob("segment-*"))
    first.unlink()
    turn_on(io, disk, router)
    assert router.believed() == router.truth()
    assert 0 not in router.truth()
    assert router.truth()


def test_what_a_disk_is_to_tell_at_its_start_is_told_when_it_is_back(io, open_disk):
    disk, router = open_disk()
    evicted_to_tier(router.world, 0, 1)
    router.world.manager.close()
    disk, router = open_disk()
    io.fail("open", "allocate", "write", "sync", errno=errno.EROFS)
    router.world.store(wanted(50))
    while disk.status().state is TierState.OK:  # before anybody takes the changes
        router.world.poll()
        disk.wait(0.01)
    assert router.believed() == set()
    turn_on(io, disk, router)
    assert router.believed() == router.truth() >= {0, 1}


@pytest.fixture
def faulty():
    tier = FaultyTier(NaiveTier(1 << 20))
    router = Router(tier)
    evicted_to_tier(router.world, 0, 1)
    assert router.believed() >= {0, 1}
    yield tier, router
    tier.get_well()
    router.world.manager.close()


def test_a_tier_that_raises_has_nothing_until_it_works(faulty):
    tier, router = faulty
    tier.raises = METHODS
    stay_off(router)
    assert router.believed() == router.truth() == set()
    tier.get_well()
    router.look(LONG_S)
    assert router.believed() == router.truth() >= {0, 1}


def test_a_tier_in_a_pause_has_nothing_until_it_is_over(faulty):
    tier, router = faulty
    tier.fault = TierFault.HANGS
    while router.world.manager.status().counters["tier_pauses"] < 4:  # the fourth one takes eight seconds
        router.world.manager.promote([wanted(0)], router.world.now, router.world.now + 1.0)
        router.look(1.0)
    stay_off(router)
    assert router.believed() == router.truth() == set()
    tier.get_well()
    router.look(LONG_S)
    assert router.believed() == router.truth() >= {0, 1}


@pytest.mark.parametrize("spares_tiers", [False, True])
def test_a_reset_while_a_tier_is_off(faulty, spares_tiers):
    tier, router = faulty
    tier.raises = METHODS
    stay_off(router)
    router.world.manager.reset(tiers=not spares_tiers)
    assert router.believed() == set()
    tier.get_well()
    router.look(LONG_S)
    assert router.believed() == router.truth()
    assert bool(router.truth()) == spares_tiers


KEYS = [make_offload_key(BlockHash(bytes([17 * number % 256]) * 16), 0) for number in range(24)]


class ToldMachine(RuleBasedStateMachine):
    """Against a tier and its follower as plain sets."""

    def __init__(self):
        super().__init__()
        self.told = ToldChunks()
        self.is_off = False
        self.there = set()
        self.cannot_find = set()
        self.log = ChangeLog()
        self.believed = set()

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def store(self, keys):
        self.log.stored(sorted(keys - self.there))
        self.there |= keys

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def replace(self, keys):
        self.log.replaced(sorted(keys & self.there))

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def remove(self, keys):
        self.log.removed(sorted(keys & self.there))
        self.there -= keys

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def move(self, keys):
        self.cannot_find = keys

    @rule(is_off=st.booleans())
    def turn(self, is_off):
        self.is_off = is_off

    @rule()
    def restart(self):
        self.log.take()
        self.told.clear()
        self.believed.clear()
        self.log.stored(sorted(self.there))

    @rule()
    def tell(self):
        changes = self.told.pass_on(self.log.take()[0], self.lookup, is_off=self.is_off)
        there = {key for key in self.believed | {*changes.stored} if not self.told.is_hidden(key)}
        self.believed |= {*changes.stored}
        self.believed -= {*changes.removed}
        assert self.believed <= there
        assert self.believed <= self.there
        if self.is_off and not changes.has_more:
            assert not self.believed
        if not self.is_off and not changes.has_more and not self.cannot_find:
            assert self.believed == self.there

    def lookup(self, keys):
        return [0 if self.is_off or key in self.cannot_find else ALL_BLOCKS for key in keys]


TestToldMachine = ToldMachine.TestCase
