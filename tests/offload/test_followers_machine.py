"""What routers believe of one engine's media: one that listens from the start, and others that come at any moment and
count once all was told since. At rest each knows what is there, whatever the tiers below did meanwhile."""

from hashlib import blake2b

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from octavo.chunks import ALL_BLOCKS, GroupOffloadConfig, WantedChunk, make_offload_key
from octavo.events import MEDIUM_CPU, GroupView, external_hashes
from octavo.host import PAGE_BYTES, HostArena
from octavo.ids import BlockHash
from octavo.offload import OffloadingManager
from octavo.offload.event_source import OffloadEventSource
from octavo.policies import LRUPolicy
from octavo.specs import FullAttentionSpec
from octavo.tiers import TierState
from rigs.faulty_tier import METHODS, FaultyTier, TierFault
from rigs.naive_tier import NaiveTier

SPEC = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=2)
GROUPS = [GroupOffloadConfig(spec=SPEC, blocks_per_chunk=blocks, page_size_bytes=1000) for blocks in (1, 4)]
NUM_SLOTS = 12
OFF_TOLD_S = 2.0
MOST_PORTIONS = 100
HASHES = [BlockHash(blake2b(bytes([number]), digest_size=16).digest()) for number in range(24)]
FAULTY_METHODS = [name for name in METHODS if name not in ("ask", "close", "stored_bytes", "is_reset_durable", "flush")]


def blocks_of(group_idx, number, length):
    """Of a chunk, from its first to the one that names it: chunks of different lengths share their first blocks."""
    size = GROUPS[group_idx].blocks_per_chunk
    return HASHES[number * size :][: min(length, size)]


def wanted(chunk, mask):
    group_idx, number, _ = chunk
    blocks = blocks_of(*chunk)
    every = (1 << len(blocks)) - 1
    is_whole = len(blocks) == GROUPS[group_idx].blocks_per_chunk and mask & every == every
    held = ALL_BLOCKS if is_whole or len(blocks) == 1 else mask & every or every
    return WantedChunk(make_offload_key(blocks[-1], group_idx), number, None, held)


CHUNK = st.tuples(st.just(0), st.integers(0, 11), st.just(1)) | st.tuples(
    st.just(1), st.integers(0, 4), st.sampled_from([4, 4, 2, 3])
)
CHUNKS = st.lists(CHUNK, min_size=1, max_size=6, unique=True)
MASK = st.sampled_from([0b1111, 0b1111, 0b1100, 0b0110, 0b0001])
ALL_CHUNKS = [(0, number, 1) for number in range(12)] + [(1, number, n) for number in range(5) for n in (2, 3, 4)]
BLOCKS = {wanted(chunk, 0b1111).key: (chunk[0], blocks_of(*chunk)) for chunk in ALL_CHUNKS}
KEYS = list(BLOCKS)
WHICH = st.integers(0, 3)


class Follower:
    def __init__(self, awaits=None):
        self.view = GroupView([SPEC, SPEC], hash_block_size=4, clears_all_media=True)
        self.awaits = awaits
        """The telling that must have ended; None: it is whole."""


class FollowersMachine(RuleBasedStateMachine):
    @initialize(
        num_tiers=st.integers(1, 2),
        same_medium=st.booleans(),
        former=CHUNKS,
        mask=st.sampled_from([0b1111, 0b1110, 0b1100]),
    )
    def set_up(self, num_tiers, same_medium, former, mask):
        self.media = ["faulty", "faulty" if same_medium else "slow"][:num_tiers]
        self.now = 0.0
        self.num_begun = self.num_ended = 0
        self.followers = []
        self.former = {wanted(chunk, mask).key for chunk in former}
        self.open()
        self.store(former, mask)
        self.settle()
        self.manager.arena.close()
        self.open(self.tiers)
        self.followers.append(Follower())

    def open(self, tiers=()):
        self.tiers = tiers or [
            FaultyTier(NaiveTier(size, keys_told_per_call=3))
            for size, _ in zip((14_000, 30_000), self.media, strict=False)
        ]
        for tier, medium in zip(self.tiers, self.media, strict=True):
            tier.medium = medium
        arena = HostArena(NUM_SLOTS, PAGE_BYTES)
        self.manager = OffloadingManager(arena, GROUPS, LRUPolicy(GROUPS, NUM_SLOTS), self.tiers, logs_changes=True)
        self.lowers = self.manager._below.lowers
        self.source = OffloadEventSource(GROUPS)

    def teardown(self):
        if not hasattr(self, "manager"):
            return
        try:
            for tier in self.tiers:
                tier.get_well()
            self.poll(100.0)
            self.poll(3.0)
            self.rest()
            assert all(map(self.is_on, self.lowers))
        finally:
            self.manager.close()

    # ---- what an engine does ------------------------------------------------------------------------------------

    @rule(chunks=CHUNKS, mask=MASK)
    def store(self, chunks, mask):
        wants = [wanted(chunk, mask) for chunk in chunks]
        for want in wants:
            self.source.name(want.key, BLOCKS[want.key][1])
        prepared = self.manager.prepare_store(wants)
        if prepared is not None and prepared.indices:
            self.manager.complete_store(prepared.job_id)

    @rule(chunks=CHUNKS, mask=MASK)
    def load(self, chunks, mask):
        wants = [wanted(chunk, mask) for chunk in chunks]
        for want in wants:
            self.source.name(want.key, BLOCKS[want.key][1])
        self.manager.promote(wants, self.now, self.now + 1.0)
        keys = [want.key for want in wants]
        prepared = self.manager.prepare_load(keys)
        if prepared is not None:
            self.manager.complete_load(prepared.job_id)

    @rule(chunks=CHUNKS)
    def damage(self, chunks):
        self.manager._resident.drop([wanted(chunk, 0b1111).key for chunk in chunks])

    @rule(chunks=CHUNKS)
    def remove(self, chunks):
        keys = [wanted(chunk, 0b1111).key for chunk in chunks]
        self.manager._resident.drop(keys)
        self.manager._below.remove(keys)

    @rule(tiers=st.booleans(), tells_each=st.booleans())
    def reset(self, tiers, tells_each=False):
        self.manager.reset(tiers=tiers, tells_each=tells_each)

    @rule(seconds=st.sampled_from([0.0, 0.0, 0.3, 1.0, 2.5, 70.0]))
    def poll(self, seconds):
        self.now += seconds
        self.manager.poll(self.now)

    @rule()
    def settle(self):
        for _ in range(4):
            for lower in self.lowers:
                lower.flush(10.0)
            self.poll(0.0)

    # ---- what goes wrong ----------------------------------------------------------------------------------------

    @rule(which=WHICH, fault=st.sampled_from(TierFault))
    def set_fault(self, which, fault):
        self.tiers[which % len(self.tiers)].fault = fault

    @rule(which=WHICH, methods=st.sets(st.sampled_from(FAULTY_METHODS), min_size=1), is_late=st.booleans())
    def set_raising(self, which, methods, is_late):
        """Not late when it tells its changes: nobody could know what it has not told."""
        tier = self.tiers[which % len(self.tiers)]
        tier.raises, tier.raises_late = methods - ({"take_changes"} if is_late else set()), is_late

    @rule(which=WHICH)
    def get_well(self, which):
        self.tiers[which % len(self.tiers)].get_well()

    # ---- who follows --------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.followers) < 4)
    @rule()
    def join(self):
        self.followers.append(Follower(self.num_begun + 1))

    @rule()
    def tell_all(self):
        self.num_begun += 1
        self.manager.tell_all()

    @rule()
    def take_changes(self):
        events = self.source.messages(self.manager.take_changes())
        for follower in self.followers:
            follower.view.apply(events)
        if not self.manager.has_more_changes:
            self.num_ended = self.num_begun
            for follower in self.followers:
                if follower.awaits is not None and follower.awaits <= self.num_ended:
                    follower.awaits = None
                    follower.view.told_all()

    @rule()
    def rest(self):
        """All that is under way ends, and is told."""
        self.settle()
        for seconds in (0.0, 1.1, 0.3, 0.0):
            self.poll(seconds)
            self.settle()
            for _ in range(MOST_PORTIONS):
                self.take_changes()
                if not self.manager.has_more_changes:
                    break
                self.poll(0.0)
            assert not self.manager.has_more_changes
        self.check()

    def is_on(self, lower):
        return lower.is_available and lower._off_since is None and lower.status().state is TierState.OK

    def check(self):
        places = {MEDIUM_CPU: [self.manager._resident.masks]}
        unknown = set()
        for tier, lower in zip(self.tiers, self.lowers, strict=True):
            medium = lower.medium
            places.setdefault(medium, []).append(
                tier._inner.lookup if self.is_on(lower) else lambda keys: [0] * len(keys)
            )
            if not self.is_on(lower) and (lower._off_since is None or self.now < lower._off_since + OFF_TOLD_S):
                unknown.add(medium)  # nobody is told of a tier that is off so shortly
        for medium in places.keys() - unknown:
            for group_idx in (0, 1):
                surely, maybe = self.blocks_on(places[medium], group_idx)
                for follower in self.followers:
                    believed = follower.view.hashes(group_idx, medium)
                    assert believed <= maybe, f"{medium} {group_idx}: believed and not there"
                    if follower.awaits is None:
                        assert surely <= believed, f"{medium} {group_idx}: there and not known"

    def blocks_on(self, places, group_idx):
        """The blocks that are there, without and with the first ones of a former process's chunks."""
        surely, maybe = set(), set()
        masks = [masks_of(KEYS) for masks_of in places]
        for index, (key, (of_group, blocks)) in enumerate(BLOCKS.items()):
            mask = 0
            for of_place in masks:
                mask |= of_place[index]
            if of_group == group_idx and mask:
                held = [block for i, block in enumerate(blocks) if mask >> i & 1]
                maybe.update(held)
                surely.update(held if key not in self.former else held[-1:] if held[-1] == blocks[-1] else ())
        return set(external_hashes(list(surely))), set(external_hashes(list(maybe)))


TestFollowers = FollowersMachine.TestCase
TestFollowers.settings = settings(max_examples=50, stateful_step_count=40)


def test_a_chunk_that_went_before_a_clear_and_came_after_it_is_told():
    machine = FollowersMachine()
    machine.set_up(num_tiers=1, same_medium=False, former=[(0, 0, 1)], mask=0b1111)
    machine.rest()
    machine.remove([(0, 0, 1)])
    machine.reset(tiers=False)
    machine.store([(0, 0, 1)], 0b1111)
    machine.rest()
    machine.teardown()
