from octavo.policies import LRUPolicy
from octavo.testing import EvictionPolicySuite, policy_suite


class TestLRUPolicyConforms(EvictionPolicySuite):
    policy_class = LRUPolicy


def keys_of(*letters):
    return [policy_suite.chunk_of([letter], 0).key for letter in letters]


def test_gives_up_what_was_used_longest_ago():
    policy = LRUPolicy((policy_suite.FULL,), 4)
    policy.insert([policy_suite.chunk_of([n], 0) for n in range(4)])
    policy.touch(keys_of(3))
    policy.pin(keys_of(1))
    policy.unpin(keys_of(1))
    assert policy.evict(3) == keys_of(2, 0, 3)
    assert policy.evict(1) == keys_of(1)
