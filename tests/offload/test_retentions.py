"""What is retained: its weights, its bounds, its end."""

from functools import partial

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from octavo.chunks import HintKind, HintOutcome, OffloadKey
from octavo.ids import BlockHash
from octavo.offload import Retentions
from octavo.policies import LRUPolicy, ResumePointPolicy
from octavo.testing import policy_suite

LIFETIME_S = 100.0
MOST_BYTES = 1000


class WatchedPolicy(ResumePointPolicy):
    """Remembers the weights that it was told."""

    def __init__(self):
        super().__init__((policy_suite.FULL,), 10)
        self.weights = {}
        self.kept = set()

    def keeps(self, block_hash):
        return block_hash in self.kept

    def weigh(self, block_hash, weight):
        self.weights[block_hash] = weight
        if weight == 1.0:
            del self.weights[block_hash]
        return super().weigh(block_hash, weight)


def blocks(first, count, size=10):
    return {OffloadKey(bytes([number]) + b"block"): size for number in range(first, first + count)}


A, B, C = (BlockHash(name) for name in (b"a", b"b", b"c"))
ONE, OTHER = b"one", b"other"


@pytest.fixture
def policy():
    return WatchedPolicy()


@pytest.fixture
def retentions(policy):
    return Retentions(policy, MOST_BYTES)


def test_points_that_need_nothing_are_not_retained(retentions):
    assert retentions.retain(A, {}, ONE, LIFETIME_S, 0.0) is HintOutcome.NO_POINT
    assert retentions.retain(B, {}, ONE, LIFETIME_S, 0.0) is HintOutcome.NO_POINT
    retentions.poll(LIFETIME_S)
    assert len(retentions) == 0


def test_a_weight_goes_down_to_one_and_ends(policy, retentions):
    assert retentions.retain(A, blocks(0, 10), ONE, LIFETIME_S, 0.0) is HintOutcome.TAKEN
    weights = []
    for now in range(0, 100, 10):
        retentions.poll(float(now))
        weights.append(policy.weights[A])
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == 16.0
    assert 1.0 < weights[-1] < 3.0
    retentions.poll(LIFETIME_S)
    assert not policy.weights
    assert A not in retentions
    assert not retentions.retained_bytes(ONE)


def test_who_retains_it_again_moves_its_end(policy, retentions):
    retentions.retain(A, blocks(0, 10), ONE, LIFETIME_S, 0.0)
    retentions.retain(A, blocks(0, 10), ONE, 10.0, 50.0)
    retentions.poll(70.0)
    assert A in retentions, "the longer one holds"
    retentions.retain(A, blocks(0, 10), ONE, LIFETIME_S, 80.0)
    retentions.poll(170.0)
    assert A in retentions
    assert retentions.retained_bytes(ONE) == 100


def test_a_tenant_has_its_share_and_no_more(policy, retentions):
    assert retentions.retain(A, blocks(0, 80), ONE, LIFETIME_S, 0.0) is HintOutcome.TAKEN
    assert retentions.retain(B, blocks(100, 80), ONE, LIFETIME_S, 0.0) is HintOutcome.QUOTA
    assert list(policy.weights) == [A], "nothing else has changed"
    assert retentions.retained_bytes(ONE) == 800
    assert retentions.retain(B, blocks(100, 80), OTHER, LIFETIME_S, 0.0) is HintOutcome.TAKEN
    retentions.release([A])
    assert retentions.retain(C, blocks(100, 80), ONE, LIFETIME_S, 0.0) is HintOutcome.TAKEN
    assert retentions.outcomes == {
        (HintKind.RETAIN, HintOutcome.TAKEN): 3,
        (HintKind.RETAIN, HintOutcome.QUOTA): 1,
        (HintKind.RELEASE, HintOutcome.TAKEN): 1,
    }


def test_what_two_points_share_counts_once(retentions):
    retentions.retain(A, blocks(0, 80), ONE, LIFETIME_S, 0.0)
    assert retentions.retain(B, blocks(0, 100), ONE, 2 * LIFETIME_S, 0.0) is HintOutcome.TAKEN
    assert retentions.retained_bytes(ONE) == MOST_BYTES
    retentions.poll(LIFETIME_S)
    assert retentions.retained_bytes(ONE) == MOST_BYTES, "the other still needs it"


def test_the_number_of_points_is_bounded():
    retentions = Retentions(WatchedPolicy(), 1 << 40)
    answers = [
        retentions.retain(BlockHash(number.to_bytes(4)), blocks(0, 1), ONE, LIFETIME_S, 0.0) for number in range(1025)
    ]
    assert answers == [HintOutcome.TAKEN] * 1024 + [HintOutcome.TOO_MANY]


def test_nobody_has_all_points_while_others_want_some():
    retentions = Retentions(WatchedPolicy(), 1 << 40)

    def retain(tenant, first, count):
        """Each point lasts longer than the one before."""
        return [
            retentions.retain(BlockHash(number.to_bytes(4)), blocks(0, 1), tenant, LIFETIME_S + number, 0.0)
            for number in range(first, first + count)
        ]

    retain(ONE, 0, 1024)
    assert retain(OTHER, 5000, 513) == [HintOutcome.TAKEN] * 512 + [HintOutcome.TOO_MANY]
    assert retain(ONE, 9000, 1) == [HintOutcome.TOO_MANY], "it has half of them"
    retentions.check_invariants()
    assert [BlockHash(number.to_bytes(4)) in retentions for number in (0, 511, 512, 1023)] == [False, False, True, True]


def test_a_point_beyond_the_tenants_share_takes_nobodys_place():
    retentions = Retentions(WatchedPolicy(), MOST_BYTES)
    for number in range(1024):
        retentions.retain(BlockHash(number.to_bytes(4)), blocks(0, 1), ONE, LIFETIME_S, 0.0)
    assert retentions.retain(A, blocks(0, 101), OTHER, LIFETIME_S, 0.0) is HintOutcome.QUOTA
    assert len(retentions) == 1024


@pytest.mark.parametrize(("has_come", "is_gone"), [(False, True), (True, True), (True, False)])
def test_a_point_that_memory_gave_up_makes_room_for_another(policy, retentions, has_come, is_gone):
    retentions.retain(A, blocks(0, 60), ONE, LIFETIME_S, 0.0)
    policy.kept = {A} if has_come else set()
    retentions.poll(2.0)
    policy.kept = set() if is_gone else policy.kept
    assert retentions.retain(B, blocks(0, 30), ONE, LIFETIME_S, 3.0) is HintOutcome.TAKEN
    assert A in retentions, "it may come back, and is in nobody's way"
    makes_room = has_come and is_gone
    answer = retentions.retain(C, blocks(60, 60), ONE, LIFETIME_S, 4.0)
    assert answer is (HintOutcome.TAKEN if makes_room else HintOutcome.QUOTA)
    assert (A in retentions) is not makes_room


def test_a_policy_that_judges_no_points_heeds_nothing():
    retentions = Retentions(LRUPolicy((), 10), MOST_BYTES)
    assert retentions.retain(A, blocks(0, 1), ONE, LIFETIME_S, 0.0) is HintOutcome.UNHEEDED
    assert retentions.demote(A) is HintOutcome.UNHEEDED
    assert not len(retentions)


def test_where_memory_keeps_nothing_nothing_is_retained(policy):
    assert Retentions(policy, 0).retain(A, blocks(0, 1), ONE, LIFETIME_S, 0.0) is HintOutcome.UNHEEDED


def test_nobody_demotes_what_somebody_retains(policy, retentions):
    retentions.retain(A, blocks(0, 1), ONE, LIFETIME_S, 0.0)
    assert retentions.demote(A) is HintOutcome.UNHEEDED
    assert retentions.demote(B) is HintOutcome.TAKEN
    assert policy.weights == {A: 16.0, B: 0.0}


def test_the_oldest_of_many_that_are_demoted_counts_as_ever(policy, retentions):
    for number in range(1025):
        retentions.demote(BlockHash(number.to_bytes(4)))
    assert BlockHash((0).to_bytes(4)) not in policy.weights
    assert len(policy.weights) == 1024


class RetentionMachine(RuleBasedStateMachine):
    """Budgets and ends hold, whatever is asked."""

    def __init__(self):
        super().__init__()
        self.policy = WatchedPolicy()
        self.retentions = Retentions(self.policy, MOST_BYTES)
        self.now = 0.0
        self.ends = {}

    @rule(
        name=st.integers(0, 9),
        first=st.integers(0, 99),
        count=st.integers(1, 120),
        tenant=st.sampled_from([ONE, OTHER]),
    )
    def retain(self, name, first, count, tenant):
        block_hash = BlockHash(bytes([name]))
        was = dict(self.policy.weights)
        answer = self.retentions.retain(block_hash, blocks(first, count), tenant, LIFETIME_S, self.now)
        if answer is HintOutcome.TAKEN:
            self.ends[block_hash] = self.now + LIFETIME_S
        else:
            assert self.policy.weights == was

    @rule(name=st.integers(0, 9))
    def release(self, name):
        self.retentions.release([BlockHash(bytes([name]))])
        self.ends.pop(bytes([name]), None)

    @rule(seconds=st.integers(2, 60))
    def poll(self, seconds):
        self.now += seconds
        self.retentions.poll(self.now)
        self.ends = {name: end for name, end in self.ends.items() if end > self.now}
        assert self.policy.weights.keys() == self.ends.keys()

    @invariant()
    def shares_are_kept(self):
        self.retentions.check_invariants()
        assert all(self.retentions.retained_bytes(tenant) <= MOST_BYTES for tenant in (ONE, OTHER))
        assert all(1.0 <= weight <= 16.0 for weight in self.policy.weights.values())


def test_budgets_and_ends_hold():
    run_state_machine_as_test(
        partial(RetentionMachine), settings=settings(max_examples=20, stateful_step_count=30, deadline=None)
    )
