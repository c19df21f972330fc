"""Policies by name: those that are built in, and another package's."""

import pytest

from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.policies import POLICIES, ARCPolicy, LRUPolicy, ResumePointPolicy, make_policy
from octavo.testing import policy_suite
from rigs.plugins import plugin_folder

BUILT_IN = {"lru": LRUPolicy, "arc": ARCPolicy, "resume_points": ResumePointPolicy}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_policy_is_made_by_name(name):
    assert type(make_policy(name, (policy_suite.FULL,), 10)) is BUILT_IN[name]


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InputError, match="'clock' is not known; choose one of: arc, lru, resume_points"):
        make_policy("clock", (policy_suite.FULL,), 10)


def test_another_package_brings_a_policy_by_name(tmp_path):
    source = "from octavo.policies import LRUPolicy\n\nclass Mine(LRUPolicy):\n    pass\n"
    with plugin_folder(tmp_path, "octavo.eviction_policies") as plugins, POLICIES.scoped(fresh=True):
        plugins.install("mine", source, ":Mine")
        config = OffloadConfig.from_mapping({"memory": "1MiB", "policy": "mine"})
        policy = make_policy(config.policy, (policy_suite.FULL,), 10)
        assert (type(policy).__name__, type(policy).__module__) == ("Mine", "octavo_test_mine")
        assert POLICIES.names() == ["arc", "lru", "mine", "resume_points"]
