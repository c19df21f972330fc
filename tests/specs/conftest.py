"""A registry as a new process finds it."""

import pytest

from octavo.specs import KVCacheSpecRegistry


@pytest.fixture
def fresh():
    """A registry as a new process finds it."""
    with KVCacheSpecRegistry.scoped(fresh=True):
        yield KVCacheSpecRegistry
