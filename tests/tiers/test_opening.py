"""All tiers of a configuration are opened, or none."""

from contextlib import suppress

import pytest

from octavo.errors import TierLockedError
from octavo.tiers import opened_tiers, spec_from_config
from rigs.offload_world import GROUPS


@pytest.fixture
def specs(tmp_path):
    return [spec_from_config({"type": "disk", "path": str(tmp_path / name), "size": "1MiB"}) for name in "ab"]


def test_the_block_keeps_what_it_was_given(specs):
    with opened_tiers(specs, GROUPS, bytes(16)) as tiers:
        pass
    with pytest.raises(TierLockedError), opened_tiers(specs, GROUPS, bytes(16)):
        pytest.fail("the folders are in use")
    for tier in tiers:
        tier.close()


def test_all_are_closed_when_one_cannot_be_opened_or_the_block_raises(specs):
    for _ in range(2):  # the second time would find a folder locked
        with pytest.raises(TierLockedError), opened_tiers([*specs, specs[0]], GROUPS, bytes(16)):
            pytest.fail("the first folder is in use")
    for _ in range(2):
        with suppress(ZeroDivisionError), opened_tiers(specs, GROUPS, bytes(16)) as tiers:
            assert len(tiers) / 0
