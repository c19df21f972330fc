"""Every shape of model in the design, driven at random against a naive engine: see `octavo.testing.block_machine`."""

import os

import pytest

from octavo.testing import MODEL_EXAMPLES, check_block_manager

EXAMPLES = int(os.environ.get("OCTAVO_MACHINE_EXAMPLES", "30"))
"""For each model. By hand, run thousands: with `HYPOTHESIS_PROFILE=dev` they are ever new ones."""


@pytest.mark.parametrize("name", MODEL_EXAMPLES)
def test_no_sequence_of_calls_goes_wrong(name):
    check_block_manager(MODEL_EXAMPLES[name], max_examples=EXAMPLES)
