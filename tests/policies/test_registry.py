import pytest

from octavo.errors import InputError
from octavo.policies import POLICIES, make_policy
from octavo.testing import policy_suite


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_made_by_name(name):
    assert type(make_policy(name, (policy_suite.FULL,), 10)) is POLICIES[name]


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InputError, match="'clock' is not known; choose one of arc, lru, resume_points"):
        make_policy("clock", (policy_suite.FULL,), 10)
