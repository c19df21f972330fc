"""Worlds of an offloading manager, without tiers and with one."""

from collections import Counter

import pytest

from octavo.host import PAGE_BYTES
from octavo.policies import LRUPolicy
from rigs.faulty_tier import FaultyTier
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld


class CountingTier(FaultyTier):
    """Counts how often a key was to be read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.num_reads = Counter()

    def submit_load(self, job_id, chunks):
        self.num_reads.update(chunk.key for chunk in chunks)
        return super().submit_load(job_id, chunks)


@pytest.fixture
def make_world():
    worlds = []

    def make(*tiers, **options):
        worlds.append(OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), tiers, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.manager.check_invariants()
        world.manager.close()


@pytest.fixture
def world(make_world):
    return make_world()


@pytest.fixture
def below():
    return CountingTier(NaiveTier(64 * PAGE_BYTES))


@pytest.fixture
def tiered(make_world, below):
    return make_world(below)
