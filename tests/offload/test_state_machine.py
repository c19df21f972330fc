"""The whole stack, driven at random with faults at every transfer: see `rigs.offload_machine`."""

import os
import time

import pytest

from octavo.stores import Envelopes, RemoteLimits, RemoteTier
from octavo.stores.objects import ObjectsClient, ObjectsConfig, open_store
from octavo.testing import MODEL_EXAMPLES
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier
from rigs.naive_tier import NaiveTier
from rigs.offload_machine import check_offloading

EXAMPLES = int(os.environ.get("OCTAVO_MACHINE_EXAMPLES", "10"))
"""For each model. By hand, run thousands: with `HYPOTHESIS_PROFILE=dev` they are ever new ones."""

ON_DISK = ("full only", "state + window + full", "latent windows", "cross-attention, other block sizes", "draft")


class Settled:
    """A tier that has done a job when it has taken it, and says so at the next poll: however slow its medium is, the
    same calls have the same outcome."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
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
            assert job_id in self.results or self.await_progress(), "the medium does not answer"
        return True


class SettledDisk(Settled, DiskTier):
    def await_progress(self):
        return self.wait(30)


class SettledStore(Settled, RemoteTier):
    """Whoever asks has his answer at the next poll."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked = []

    def ask(self, sequence, *, wants_answer=True):
        is_under_way = super().ask(sequence, wants_answer=wants_answer)
        if is_under_way:
            self.asked.append(sequence)
        return is_under_way

    def poll(self, now):
        asked, self.asked = self.asked, []
        for sequence in asked:
            while super().ask(sequence):
                self.await_progress()
                assert not RemoteTier.poll(self, now), "every job had ended"
        return super().poll(now)

    def await_progress(self):
        time.sleep(0.0002)  # its thread may run
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


@pytest.mark.parametrize("name", ON_DISK)
def test_nor_with_a_store_that_engines_share(name, tmp_path):
    """Which must be asked ahead, and answers later."""
    folders = (tmp_path / str(number) for number in range(1 << 30))
    patient = RemoteLimits(find_s=600, load_s=600, store_s=600)

    def tiers(groups):
        store = open_store(ObjectsConfig(url=f"file://{next(folders)}"))
        client = ObjectsClient(store, namespace=bytes(16), family=bytes(16))
        return [SettledStore(client, Envelopes(bytes(16)), what="the store", limits=patient)]

    check_offloading(MODEL_EXAMPLES[name], tiers, max_examples=EXAMPLES)
