"""The manager under any sequence of calls, with a tier below that fails, hangs, is late and lies, against sets of keys
that are known to be there. Bytes are checked by content."""

from operator import attrgetter

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.chunks import ALL_BLOCKS, LookupResult
from octavo.host import PAGE_BYTES
from octavo.offload import MEMORY
from octavo.policies import make_policy
from rigs.faulty_tier import METHODS, FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, MOST_SLOTS_PER_CHUNK, NUM_SLOTS, OffloadWorld, key_of, wanted

NUMBERS = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda run: range(run[0], run[0] + run[1]))
GROUP = st.integers(0, 1)
MASKS = st.sampled_from([ALL_BLOCKS, ALL_BLOCKS, ALL_BLOCKS, 0b01, 0b10, 0b11])
WHICH = st.integers(0, 20)
PLACES = st.sets(st.integers(0, 5))
ALL_KEYS = [key_of(number, group_idx) for number in range(19) for group_idx in (0, 1)]


class ManagerMachine(RuleBasedStateMachine):
    """Jobs are kept open, and end in any order."""

    policy = "lru"

    @initialize(keeps_in_memory=st.booleans(), num_tiers=st.integers(0, 2))
    def set_up(self, keeps_in_memory, num_tiers):
        self.inner_tiers = [NaiveTier(size * PAGE_BYTES) for size in (7, 60)[:num_tiers]]
        self.tiers = [FaultyTier(tier) for tier in self.inner_tiers]
        self.world = OffloadWorld(
            make_policy(self.policy, GROUPS, NUM_SLOTS), self.tiers, keeps_in_memory=keeps_in_memory
        )
        self.manager = self.world.manager
        self.keeps_in_memory = keeps_in_memory
        self.has_raised = False
        self.stores = []
        self.loads = []
        self.stored_since_reset = set()
        self.announced = {MEMORY: set(), "faulty": set()}

    def teardown(self):
        if hasattr(self, "world"):
            self.finish_everything()
            self.manager.close()

    # ---- calls -------------------------------------------------------------------------------------------------

    @rule(numbers=NUMBERS, group_idx=GROUP, mask=MASKS)
    def prepare_store(self, numbers, group_idx, mask):
        chunks = [wanted(number, group_idx, mask) for number in numbers]
        before = self.manager.lookup([chunk.key for chunk in chunks])
        prepared = self.manager.prepare_store(chunks)
        if prepared is None:
            assert self.manager.lookup([chunk.key for chunk in chunks]) == before
        elif prepared.indices:
            self.stores.append((chunks, prepared, self.stored_since_reset))

    @precondition(lambda self: self.stores)
    @rule(which=WHICH, failed=PLACES)
    def complete_store(self, which, failed):
        """A device writes late: until now the slots were nobody else's."""
        chunks, prepared, stored = self.stores.pop(which % len(self.stores))
        checksums = self.world.write_store(chunks, prepared)
        failed = {index for index in failed if index < len(prepared.indices)}
        stored.update(chunks[index].key for i, index in enumerate(prepared.indices) if i not in failed)
        self.manager.complete_store(prepared.job_id, failed, checksums)

    @rule(numbers=NUMBERS, group_idx=GROUP, mask=MASKS)
    def store(self, numbers, group_idx, mask):
        """All at once, so that there is something to load."""
        self.prepare_store(numbers, group_idx, mask)
        while self.stores:
            self.complete_store(0, set())

    @rule(numbers=NUMBERS, group_idx=GROUP, asks_first=st.booleans())
    def prepare_load(self, numbers, group_idx, asks_first):
        keys = [key_of(number, group_idx) for number in numbers]
        if asks_first:
            stands = self.manager.lookup(ALL_KEYS)
            there = [key for key, stand in zip(ALL_KEYS, stands, strict=True) if stand is LookupResult.HIT]
            keys = there[: len(numbers)] or keys
        stands = self.manager.lookup(keys)
        prepared = self.manager.prepare_load(keys)
        assert (prepared is None) == (set(stands) != {LookupResult.HIT})
        if prepared is not None:
            assert set(keys) <= self.stored_since_reset
            self.loads.append((keys, prepared))

    @precondition(lambda self: self.loads)
    @rule(which=WHICH, goes_wrong=st.booleans())
    def complete_load(self, which, goes_wrong):
        keys, prepared = self.loads.pop(which % len(self.loads))
        failed = self.world.read_load(keys, prepared)
        if goes_wrong:
            failed.add(0)
        self.manager.complete_load(prepared.job_id, failed)
        assert all(self.manager._resident.index.get(keys[i]) != prepared.slots[i][0] for i in failed)

    @rule(numbers=NUMBERS, group_idx=GROUP)
    def touch(self, numbers, group_idx):
        self.manager.touch([key_of(number, group_idx) for number in numbers])

    @rule(numbers=NUMBERS, group_idx=GROUP)
    def renew(self, numbers, group_idx):
        self.manager.renew([key_of(number, group_idx) for number in numbers])

    @rule(numbers=NUMBERS, group_idx=GROUP, mask=MASKS, patience=st.sampled_from([0.0, 1.0, 5.0]))
    def promote(self, numbers, group_idx, mask, patience):
        chunks = [wanted(number, group_idx, mask) for number in numbers]
        stands = self.manager.promote(chunks, self.world.now, self.world.now + patience)
        found = self.manager.lookup([chunk.key for chunk in chunks])
        held = self.manager.held_blocks([chunk.key for chunk in chunks])
        for chunk, stand, now_found, has in zip(chunks, stands, found, held, strict=True):
            assert stand is now_found or now_found is LookupResult.HIT
            assert stand is not LookupResult.HIT or not chunk.held_blocks & ~has & 0b11

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 40.0]), settles=st.booleans())
    def poll(self, seconds, settles):
        if settles:
            self.world.settle()
        self.world.poll(seconds)

    @precondition(lambda self: self.stored_since_reset)
    @rule(really=st.sampled_from([False] * 7 + [True]))
    def reset(self, really):
        if not really:
            return
        self.manager.reset()
        self.stored_since_reset = set()
        assert set(self.manager.lookup(ALL_KEYS)) == {LookupResult.MISS}

    # ---- what goes wrong ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.tiers)
    @rule(which=WHICH, fault=st.sampled_from(TierFault))
    def set_fault(self, which, fault):
        self.tiers[which % len(self.tiers)].fault = fault

    @precondition(lambda self: self.tiers)
    @rule(which=WHICH, methods=st.sets(st.sampled_from(METHODS)), is_late=st.booleans())
    def set_raising(self, which, methods, is_late):
        tier = self.tiers[which % len(self.tiers)]
        tier.raises, tier.raises_late = methods, is_late
        self.has_raised |= bool(methods)

    @precondition(lambda self: self.tiers)
    @rule(which=WHICH, number=st.integers(0, 18), group_idx=GROUP)
    def flip_a_bit_below(self, which, number, group_idx):
        self.inner_tiers[which % len(self.inner_tiers)].flip_bit(key_of(number, group_idx))

    @rule(number=st.integers(0, 18), group_idx=GROUP)
    def flip_a_bit(self, number, group_idx):
        """Where a checksum will tell, and not on its way to a tier, which would believe it."""
        resident, head = self.manager._resident, self.manager._resident.index.get(key_of(number, group_idx))
        if head >= 0 and resident.table.checksums[head] and not resident.table.readers[head]:
            self.world.arena.view[head, 100] ^= 1

    # ---- what holds --------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_or_used_twice(self):
        self.manager.check_invariants()
        for tier in self.inner_tiers:
            status = tier.status()
            assert 0 <= status.bytes_used <= status.bytes_budget

    @invariant()
    def only_what_was_stored_is_found(self):
        stands = self.manager.lookup(ALL_KEYS)
        found = {key for key, stand in zip(ALL_KEYS, stands, strict=True) if stand is LookupResult.HIT}
        assert found <= self.stored_since_reset
        masks = self.manager.held_blocks(ALL_KEYS)
        assert all(mask for mask, stand in zip(masks, stands, strict=True) if stand is not LookupResult.MISS)

    @invariant()
    def changes_tell_what_is_there(self):
        changes = self.manager.take_changes()
        if changes.was_cleared:
            self.announced = {medium: set() for medium in self.announced}
        for medium, removed, stored in map(attrgetter("medium", "removed", "stored"), changes.media):
            assert not set(stored) & set(removed)
            self.announced[medium] -= set(removed)
            self.announced[medium] |= set(stored)
        places = {MEMORY: [self.manager._resident.masks], "faulty": [tier.lookup for tier in self.inner_tiers]}
        for medium, masks_of in places.items():
            masks = zip(*(find(ALL_KEYS) for find in masks_of), strict=True)
            whole = {key for key, of_key in zip(ALL_KEYS, masks, strict=False) if ALL_BLOCKS in of_key}
            if medium == MEMORY or not self.has_raised:  # what a tier did not say is not announced
                assert self.announced[medium] == whole

    def finish_everything(self):
        """Always progress: when media work again and jobs end, all is idle, and there is room for everything."""
        for tier in self.tiers:
            tier.get_well()
        while self.stores:
            self.complete_store(0, set())
        while self.loads:
            self.complete_load(0, goes_wrong=False)
        for _ in range(10):
            self.world.settle()
            self.world.poll(100.0)
        while self.manager.has_pending_work():
            self.world.poll()
        assert not self.manager.has_pending_work()
        assert not any(lower.quarantined_heads for lower in self.manager._below.lowers)
        if not self.keeps_in_memory:
            assert self.manager.status().free_slots == NUM_SLOTS
        chunks = [wanted(1000 + n, group_idx=1) for n in range(NUM_SLOTS // MOST_SLOTS_PER_CHUNK)]
        assert self.world.store(*chunks) == len(chunks)


class ARCMachine(ManagerMachine):
    policy = "arc"


TestLRU = ManagerMachine.TestCase
TestARC = ARCMachine.TestCase
TestLRU.settings = TestARC.settings = settings(max_examples=60, stateful_step_count=40)
