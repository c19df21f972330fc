"""The example of a policy of one's own keeps the contract of all policies."""

import runpy
from pathlib import Path

import pytest

from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.policies import POLICIES
from octavo.testing import EvictionPolicySuite

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy.py"

with POLICIES.scoped():  # whoever does not import it is none the wiser
    SecondChancePolicy = runpy.run_path(str(EXAMPLE))["SecondChancePolicy"]


class TestSecondChancePolicy(EvictionPolicySuite):
    policy_class = SecondChancePolicy


def test_here_it_is_unknown():
    with pytest.raises(InputError, match="'second_chance'"):
        OffloadConfig.from_mapping({"memory": "1MiB", "policy": "second_chance"})
