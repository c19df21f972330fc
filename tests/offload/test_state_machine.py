"""The whole stack, driven at random with faults at every transfer: see `rigs.offload_machine`."""

import os

import pytest

from octavo.testing import MODEL_EXAMPLES
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier
from rigs.naive_tier import NaiveTier
from rigs.offload_machine import check_offloading

EXAMPLES = int(os.environ.get("OCTAVO_MACHINE_EXAMPLES", "10"))
"""For each model. By hand, run thousands: with `HYPOTHESIS_PROFILE=dev` they are ever new ones."""

ON_DISK = ("full only", "state + window + full", "latent windows", "cross-attention, other block sizes", "draft")


class SettledDisk(DiskTier):
    """A disk tier that has done a job when it has taken it, and says so at the next poll: however slow the disk is, the
    same calls have the same outcome."""

    def __init__(self, *args):
        super().__init__(*args)
        self.now = 0.0
        self.results = {}

    def submit_store(self, job_id, chunks):
        return super().submit_store(job_id, chunks) and self._do(job_id)

    def submit_load(self, job_id, chunks):
        return super().submit_load(job_id, chunks) and self._do(job_id)

    def cancel(self, job_id):
        self.results.pop(job_id, None)

    def poll(self, now):
        self.now = now
        assert not super().poll(now), "every job had ended"
        results, self.results = self.results, {}
        return list(results.values())

    def _do(self, job_id):
        while job_id not in self.results:
            self.results |= {result.job_id: result for result in super().poll(self.now)}
            assert job_id in self.results or self.wait(30), "the disk does not answer"
        return True


@pytest.mark.parametrize("name", MODEL_EXAMPLES)
def test_no_sequence_of_calls_and_faults_goes_wrong(name):
    check_offloading(MODEL_EXAMPLES[name], lambda _: [NaiveTier(3000), NaiveTier(40_000)], max_examples=EXAMPLES)


@pytest.mark.parametrize("name", ON_DISK)
def test_nor_with_a_real_disk(name, tmp_path):
    folders = (tmp_path / str(number) for number in range(1 << 30))

    def tiers(groups):
        # the machine's clock leaps: a call that lasts some of its seconds does not hang
        config = DiskConfig.from_mapping({"path": str(next(folders)), "size": "8MiB", "hang_seconds": 1e9})
        context = TierContext(namespace=bytes(16), max_chunk_bytes=max(group.chunk_bytes for group in groups))
        return [SettledDisk(config, context, DiskIO())]

    check_offloading(MODEL_EXAMPLES[name], tiers, max_examples=EXAMPLES)
