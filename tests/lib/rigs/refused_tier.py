"""A tier whose store cannot be reached yet."""

from contextlib import contextmanager
from itertools import count

from octavo.testing import tier_driver
from octavo.tiers import TierContext, spec_from_config

_PAUSE_S = 100
"""Each look at the clock is so much later: a minute is the longest pause between two tries."""


@contextmanager
def refused_tier(config):
    """Its driver, once the store was tried in vain."""
    context = TierContext(namespace=tier_driver.NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
    tier, now = spec_from_config(config).build(context), count(step=_PAUSE_S)
    driver = tier_driver.TierDriver(tier, lambda tier: tier.flush(0.01), lambda: next(now))

    def is_tried_in_vain():
        tier.ask(tier_driver.ALL_KEYS)
        return tier.status().counters["probes_failed"] > 0

    try:
        driver.poll_until(is_tried_in_vain, "a probe")
        yield driver
    finally:
        tier.close()
