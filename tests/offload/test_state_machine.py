"""The whole stack, driven at random with faults at every transfer: see `octavo.testing.offload_machine`."""

import os

import pytest

from octavo.testing.naive_tier import NaiveTier
from octavo.testing.offload_machine import check_offloading
from octavo.testing.small_models import MODEL_EXAMPLES

EXAMPLES = int(os.environ.get("OCTAVO_MACHINE_EXAMPLES", "12"))
"""For each model. By hand, run thousands: with `HYPOTHESIS_PROFILE=dev` they are ever new ones."""


@pytest.mark.parametrize("name", MODEL_EXAMPLES)
def test_no_sequence_of_calls_and_faults_goes_wrong(name):
    check_offloading(MODEL_EXAMPLES[name], lambda _: [NaiveTier(3000), NaiveTier(6000)], max_examples=EXAMPLES)
