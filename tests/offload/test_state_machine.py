"""The whole stack, driven at random with faults at every transfer: see `octavo.testing.offload_machine`."""

import os

import pytest

from octavo.offload.tiers.base import TierContext
from octavo.offload.tiers.disk.config import DiskConfig
from octavo.offload.tiers.disk.io import DiskIO
from octavo.offload.tiers.disk.tier import DiskTier
from octavo.testing.naive_tier import NaiveTier
from octavo.testing.offload_machine import check_offloading
from octavo.testing.small_models import MODEL_EXAMPLES

EXAMPLES = int(os.environ.get("OCTAVO_MACHINE_EXAMPLES", "10"))
"""For each model. By hand, run thousands: with `HYPOTHESIS_PROFILE=dev` they are ever new ones."""

ON_DISK = ("full only", "state + window + full", "latent windows", "cross-attention, other block sizes", "draft")


class SettledDisk(DiskTier):
    """A disk tier whose jobs are over when it is asked, so that the same calls have the same outcome."""

    def __init__(self, *args):
        super().__init__(*args)
        self.under_way = set()

    def submit_store(self, job_id, chunks):
        return self._note(job_id, super().submit_store(job_id, chunks))

    def submit_load(self, job_id, chunks):
        return self._note(job_id, super().submit_load(job_id, chunks))

    def cancel(self, job_id):
        super().cancel(job_id)
        self.under_way.discard(job_id)

    def poll(self, now):
        results = super().poll(now)
        self.under_way -= {result.job_id for result in results}
        while self.under_way:
            assert self.wait(30), "the disk does not answer"
            more = super().poll(now)
            self.under_way -= {result.job_id for result in more}
            results += more
        return results

    def _note(self, job_id, is_accepted):
        if is_accepted:
            self.under_way.add(job_id)
        return is_accepted


@pytest.mark.parametrize("name", MODEL_EXAMPLES)
def test_no_sequence_of_calls_and_faults_goes_wrong(name):
    check_offloading(MODEL_EXAMPLES[name], lambda _: [NaiveTier(3000), NaiveTier(40_000)], max_examples=EXAMPLES)


@pytest.mark.parametrize("name", ON_DISK)
def test_nor_with_a_real_disk(name, tmp_path):
    folders = (tmp_path / str(number) for number in range(1 << 30))

    def tiers(groups):
        config = DiskConfig.read({"path": str(next(folders)), "size": "8MiB"})
        context = TierContext(namespace=bytes(16), max_chunk_bytes=max(group.chunk_bytes for group in groups))
        return [SettledDisk(config, context, DiskIO())]

    check_offloading(MODEL_EXAMPLES[name], tiers, max_examples=EXAMPLES)
