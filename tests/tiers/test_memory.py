"""The memory tier under the contract's suite, and what is its own."""

import pytest

from octavo.errors import InputError
from octavo.host import BOOKKEEPING_BYTES_PER_SLOT, PAGE_BYTES
from octavo.policies import LRUPolicy
from octavo.testing import NAMESPACE, TierSuite, tier_driver
from octavo.tiers.base import TierContext
from octavo.tiers.memory import MemorySpec, MemoryTier


class TestMemoryTier(TierSuite):
    def open_tier(self, folder, namespace):
        num_slots = self.budget_bytes // (PAGE_BYTES + BOOKKEEPING_BYTES_PER_SLOT)
        return MemoryTier(num_slots, PAGE_BYTES, LRUPolicy((), num_slots))

    def await_progress(self, tier):
        tier.flush(1.0)

    def test_flipped_bits_are_a_failure_and_then_a_miss(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks([0, 1]))
            driver.tier._arena.view[0, 5] ^= 1
            assert driver.load(tier_driver.chunks([0, 1])) == {0}
            assert driver.found([0, 1]) == [0, -1]
            driver.settle()
            assert len(driver.announced) == 1
            assert driver.tier.status().counters["corrupt_records"] == 1
            driver.tier.check_invariants()

    def test_cancelled_and_forgotten_stores_give_their_slots_back(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.cancel(driver.submit_store(tier_driver.chunks(range(3))))
            assert driver.tier.status().bytes_used == 0
            driver.submit_store(tier_driver.chunks(range(3)))
            driver.tier.reset()
            driver.settle()
            driver.tier.check_invariants()
            assert driver.tier.status().bytes_used == 0


class TestSpec:
    CONTEXT = TierContext(namespace=NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)

    def test_builds_within_its_size(self):
        tier = MemorySpec.from_config({"size": "1MiB"}).build(self.CONTEXT)
        assert 0 < tier.status().bytes_budget <= 1 << 20
        tier.close()

    def test_wrong_settings_are_named(self):
        for config, named in (
            ({}, "size must be a size"),
            ({"size": True}, "not True"),
            ({"size": "1MiB", "sise": 1}, "unknown setting 'sise'; there are: size"),
        ):
            with pytest.raises(InputError, match=named):
                MemorySpec.from_config(config)

    def test_too_small_a_size_says_what_is_needed(self):
        with pytest.raises(InputError, match="give it 16896 bytes or more"):
            MemorySpec.from_config({"size": 5000}).build(self.CONTEXT)
