from octavo.policies import ARCPolicy
from octavo.testing import EvictionPolicySuite, policy_suite


class TestARCPolicyConforms(EvictionPolicySuite):
    policy_class = ARCPolicy


def keys_of(*letters):
    return [policy_suite.chunk_of([letter], 0).key for letter in letters]


def make_arc(*letters, capacity=4):
    policy = ARCPolicy((policy_suite.FULL,), capacity)
    store(policy, *letters)
    return policy


def store(policy, *letters, num_slots=1):
    """One chunk after the other, so that the last is the newest."""
    for letter in letters:
        policy.insert([policy_suite.chunk_of([letter], 0, num_slots)])


def test_what_was_used_again_outlives_a_scan():
    policy = make_arc(0, 1)
    policy.touch(keys_of(0, 1))
    for letter in range(10, 30):
        store(policy, letter)
        if letter > 11:
            assert policy.evict(1) == keys_of(letter - 2)


def test_regret_for_what_was_used_once_raises_its_share():
    policy = make_arc(0, 1, 2, 3)
    policy.touch(keys_of(2, 3))
    assert policy.evict(1) == keys_of(0)
    assert policy.target_slots == 0
    store(policy, 0)  # it was given up too early
    assert policy.target_slots == 1
    assert policy.evict(1) == keys_of(3), "t1 has its share, so t2 gives"


def test_regret_for_what_was_used_again_lowers_it():
    policy = make_arc(0, 1, 2, 3)
    policy.touch(keys_of(3, 2))
    policy.evict(1)
    store(policy, 0)
    assert policy.evict(1) == keys_of(2)
    store(policy, 2)
    assert policy.target_slots == 0


def test_regret_weighs_slots():
    policy = ARCPolicy((policy_suite.FULL,), 12)
    store(policy, 0, 1, num_slots=3)
    policy.evict(3)
    store(policy, 0, num_slots=3)
    assert policy.target_slots == 3


def test_a_store_is_no_second_use():
    """Pinned while it was stored, touched only then: once."""
    policy = make_arc(0, 1)
    policy.pin(keys_of(0))
    policy.unpin(keys_of(0))
    policy.touch(keys_of(1))
    assert policy.evict(1) == keys_of(0)


def test_a_touch_counts_while_a_reader_is_there():
    policy = make_arc(0, 1)
    policy.pin(keys_of(0))
    policy.touch(keys_of(0))
    policy.unpin(keys_of(0))
    assert policy.evict(1) == keys_of(1)


def test_ghosts_are_bounded():
    policy = make_arc(capacity=8)
    for letter in range(200):
        store(policy, letter)
        if letter % 3:
            policy.touch(keys_of(letter))
        if letter >= 8:
            policy.evict(1)
    lists = [policy._t1, policy._t2, policy._b1, policy._b2]
    assert sum(order.num_slots for order in lists) <= 2 * 8
    assert policy._t1.num_slots + policy._b1.num_slots <= 8
