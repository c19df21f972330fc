"""An engine with a naive memory over a small pool: whatever a test does with it, bytes and counts are checked."""

import pytest

from octavo.blocks import KVCacheManager
from octavo.testing import NaiveEngine, small_model


@pytest.fixture
def make_engine():
    """An engine for these layers, with memory for one longest request of 96 tokens and `spare` times that more."""

    def make(*layers, spare=2.0, is_caching=True, **options):
        manager = KVCacheManager(
            small_model(*layers, **options).plan(spare), enable_prefix_caching=is_caching, enable_events=True
        )
        return NaiveEngine(manager, watches_events=True)

    return make
