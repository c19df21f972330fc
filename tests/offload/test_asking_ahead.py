"""Tiers that cannot answer at once: a request waits for the answer as long as that is worth it, and not longer."""

import pytest

from rigs.served import BOUNDARY, MODELS, PROMPT, Served
from rigs.slow_to_answer import SlowToAnswer

SECONDS_PER_TOKEN = 0.01


def served_before(model="full"):
    """A tier that has what the prompt needs, and nothing else that has it."""
    tier = SlowToAnswer()
    served = Served(model, tiers=[tier])
    served.serve_offloaded()
    served.lose_memory()
    tier.has_answered = False
    return served, tier


@pytest.mark.parametrize("model", MODELS)
def test_a_request_resumes_with_what_an_answer_brings(model):
    served, tier = served_before(model)
    request = served.begin(PROMPT)
    assert not served.is_ready(request)
    served.poll(1.0)
    assert not served.is_ready(request), "nobody knows yet what computing takes"
    tier.has_answered = True
    served.poll(0.01)
    served.wait(request)
    assert served.prefill(request) == BOUNDARY


def test_it_waits_for_half_as_long_as_computing_takes():
    served, _ = served_before()
    served.offload.note_prefill(100, 100 * SECONDS_PER_TOKEN)
    request = served.begin(PROMPT)
    half = len(PROMPT) * SECONDS_PER_TOKEN / 2
    assert not served.is_ready(request)
    served.poll(half * 0.9)
    assert not served.is_ready(request)
    served.poll(half * 0.2)
    assert served.is_ready(request)
    assert served.prefill(request) == 0


def test_what_the_device_has_is_not_waited_for():
    served, tier = served_before()
    tier.has_answered = True
    served.serve_offloaded()
    tier.has_answered = False
    served.offload.note_prefill(100, 100 * SECONDS_PER_TOKEN)
    request = served.begin(PROMPT)
    assert not served.is_ready(request)
    served.poll((len(PROMPT) - BOUNDARY) * SECONDS_PER_TOKEN / 2)
    assert served.is_ready(request)


def test_a_request_in_the_queue_is_asked_for_and_its_patience_begins_later():
    served, tier = served_before()
    request = served.begin(PROMPT)
    served.offload.arrived(request.blocks, served.now)
    assert tier.told[-1][1]
    served.poll(60.0)
    tier.has_answered = True
    served.wait(request)
    assert served.prefill(request) == BOUNDARY


def test_a_tier_is_told_of_what_it_will_be_given():
    tier = SlowToAnswer()
    served = Served("state + full", tiers=[tier])
    served.serve_offloaded()
    sequence, wants_answer = tier.told[-1]
    assert not wants_answer
    assert {key for chain in sequence.chains for key in chain.keys} >= set(tier._chunks)
    assert [chain.tokens_per_block for chain in sequence.chains] == [g.spec.block_size for g in served.config.groups]
