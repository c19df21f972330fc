"""Points that somebody retains or demotes."""

import pytest

from octavo.chunks import PromisedPoint
from octavo.policies import ResumePointPolicy, make_policy
from octavo.testing import policy_suite

FULL, WINDOW, STATE = policy_suite.FULL, policy_suite.WINDOW, policy_suite.STATE

PREFIXES = 48
"""Slots of the tier."""


class Tier:
    """A policy's caller, who stores prompts of full attention and, last, what else a resume at their ends needs."""

    def __init__(self, groups=(FULL,), num_slots=PREFIXES):
        self.groups = groups
        self.policy = ResumePointPolicy(groups, num_slots)
        self.free = num_slots
        self.present = {}

    def store(self, path, *, points=()):
        wanted = [policy_suite.chunk_of(path[:stop], 0) for stop in range(1, len(path) + 1)]
        for end in (*points, len(path)):
            for group_idx, group in enumerate(self.groups[1:], 1):
                first = end - (2 if group is WINDOW else 1)
                wanted += [policy_suite.chunk_of(path[:stop], group_idx) for stop in range(max(0, first) + 1, end + 1)]
        chunks = [chunk for chunk in dict.fromkeys(wanted) if chunk.key not in self.present]
        if len(chunks) > self.free:
            for key in self.policy.evict(len(chunks) - self.free):
                self.free += self.present.pop(key)
        self.policy.insert(chunks)
        self.present |= {chunk.key: chunk.num_slots for chunk in chunks}
        self.free -= len(chunks)
        for end in (*points, len(path)):
            self.policy.promise(
                PromisedPoint(end * policy_suite.TOKENS_PER_CHUNK, policy_suite.block_hash_of(path[:end]))
            )
        self.policy.check_invariants()
        return all(chunk.key in self.present for chunk in chunks)

    def scan(self, capacities, *, first=1):
        """Prompts that nobody asks for again."""
        for number in range(first, first + capacities * PREFIXES // 4):
            assert self.store([200, number % 250, number // 250, 7]), "what is new comes in"

    def has(self, path):
        return policy_suite.block_hash_of(path) in [point.block_hash for point in self.policy.kept_points()]


SYSTEM = [1, 2, 3, 4]
GROUPS = [(FULL,), (FULL, WINDOW, STATE)]


@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_a_retained_point_outlives_a_scan_and_another_does_not(groups):
    tier = Tier(groups)
    tier.policy.weigh(policy_suite.block_hash_of(SYSTEM), 16.0)
    tier.store(SYSTEM)
    tier.store([9, 9, 9, 9])
    tier.scan(4)
    assert tier.has(SYSTEM)
    assert not tier.has([9, 9, 9, 9])


@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_a_point_is_retained_too_that_was_there_before(groups):
    tier = Tier(groups)
    tier.store(SYSTEM)
    tier.policy.weigh(policy_suite.block_hash_of(SYSTEM), 16.0)
    tier.scan(4)
    assert tier.has(SYSTEM)


@pytest.mark.parametrize("when", [0, 3])
@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_once_released_it_goes_like_any_other(groups, when):
    tier = Tier(groups)
    tier.policy.weigh(policy_suite.block_hash_of(SYSTEM), 16.0)
    tier.store(SYSTEM)
    tier.scan(when)
    tier.policy.weigh(policy_suite.block_hash_of(SYSTEM), 1.0)
    tier.scan(4, first=1000)
    assert not tier.has(SYSTEM)


@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_no_weight_keeps_a_point_for_ever(groups):
    tier = Tier(groups)
    tier.policy.weigh(policy_suite.block_hash_of(SYSTEM), 4.0)
    tier.store(SYSTEM)
    tier.scan(6)
    assert not tier.has(SYSTEM)


@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_where_all_is_retained_what_is_new_comes_in(groups):
    tier = Tier(groups)
    for number in range(1, 100):
        path = [number, 1, 2, 3]
        tier.policy.weigh(policy_suite.block_hash_of(path), 1000.0)
        assert tier.store(path)
    assert tier.has([99, 1, 2, 3])


@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_a_demoted_point_goes_first(groups):
    tier = Tier(groups)
    for number in range(1, 5):
        tier.store([number, 1])
    tier.policy.weigh(policy_suite.block_hash_of([3, 1]), 0.0)
    tier.policy.evict(1)
    assert not tier.has([3, 1])
    assert all(tier.has([number, 1]) for number in (1, 2, 4))


@pytest.mark.parametrize("groups", GROUPS, ids=["full", "hybrid"])
def test_who_uses_a_demoted_point_ends_that(groups):
    tier = Tier(groups)
    for number in range(1, 5):
        tier.store([number, 1])
    tier.policy.weigh(policy_suite.block_hash_of([3, 1]), 0.0)
    tier.policy.touch([policy_suite.chunk_of([3, 1], 0).key])
    tier.policy.evict(1)
    assert tier.has([3, 1])


def test_a_retained_prefix_is_kept_below_conversations_that_go():
    tier = Tier((FULL, WINDOW, STATE))
    tier.policy.weigh(policy_suite.block_hash_of(SYSTEM), 16.0)
    for number in range(1, 60):
        tier.store([*SYSTEM, number, 5], points=(4,) if number == 1 else ())
    assert tier.has(SYSTEM)


@pytest.mark.parametrize("name", ["lru", "arc"])
def test_policies_that_judge_chunks_do_not_heed_weights(name):
    assert not make_policy(name, (FULL,), 10).weigh(policy_suite.block_hash_of([0]), 16.0)


def test_the_default_policy_heeds_weights():
    assert make_policy("resume_points", (FULL,), 10).weigh(policy_suite.block_hash_of([0]), 16.0)


def test_demoted_points_go_that_free_something_only_together():
    """A point at each chunk: each chunk of the windows is held by two."""
    tier = Tier((FULL, WINDOW))
    path = [1] * 12
    for end in range(1, 12):
        tier.policy.weigh(policy_suite.block_hash_of(path[:end]), 0.0)
    tier.store(path, points=range(1, 12))
    tier.policy.touch([policy_suite.chunk_of(path, group_idx).key for group_idx in range(2)])
    for number in range(7):
        tier.store([200, number, 0, 7])
    assert [tier.has(path[:end]) for end in range(1, 13)] == [False] * 11 + [True]


@pytest.mark.parametrize("groups", [(FULL,), (FULL, WINDOW)], ids=["full", "window + full"])
def test_a_prefill_that_goes_on_is_not_its_own_victim_where_all_else_is_retained(groups):
    tier = Tier(groups)
    for number in range(PREFIXES):
        path = [number, 1, 2, 3]
        tier.policy.weigh(policy_suite.block_hash_of(path), 1000.0)
        tier.store(path)
    path = [200] * 12
    for end in (4, 8, 12):
        tier.store(path[:end])
    assert tier.has(path)
