"""`ObjectsSuite`: the contract of a tier, for an object store."""

import time

from octavo.testing import TierSuite, tier_driver
from octavo.tiers import TierContext, spec_from_config

PATIENT = dict.fromkeys(("find_seconds", "load_seconds", "store_seconds", "remember_seconds"), 600)
"""No test is to depend on how quick a machine is."""


class ObjectsSuite(TierSuite):
    is_durable = True

    def config(self, folder):
        return {"url": f"file://{folder}"}

    def open_tier(self, folder, namespace):
        spec = spec_from_config({"type": "objects", **PATIENT, **self.config(folder)})
        return spec.build(TierContext(namespace=namespace, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES))

    def await_progress(self, tier):
        time.sleep(0.0005)  # its thread may run

    def test_a_full_tier_takes_more_and_says_what_gave_way(self, tmp_path):
        """A shared store has no budget of an engine's own: a collector keeps it."""
        with self.driver(tmp_path) as driver:
            assert driver.tier.status().bytes_budget == 0

    def test_what_is_stored_after_a_reset_by_another_engine_is_there(self, tmp_path):
        wanted = tier_driver.chunks(range(6))
        with self.driver(tmp_path) as driver, self.driver(tmp_path) as other:
            assert driver.store(wanted) == frozenset()
            other.tier.reset()
            other.poll_until(other.tier.is_reset_durable, "the reset")
            job = driver.submit_store(wanted)
            assert driver.tier.flush(60)
            assert driver.finish(job) == frozenset()
            assert driver.load(wanted) == frozenset()
