"""What a report makes of the requests that were served."""

from types import SimpleNamespace

import numpy as np
import pytest

from octavo.offload import LoadRule
from octavo.sim import Cause, Outcome, SimConfig, Speeds, Trace, TraceRequest, replay
from octavo.sim.report import make_report
from octavo.testing import full, small_model

SPEEDS = Speeds(prefill_tokens_per_s=100.0, context_s_per_token_pair=1e-3)


def outcome(arrival_s, end_s, **resumed):
    asked = TraceRequest(
        arrival_s=arrival_s,
        num_prompt_tokens=400,
        num_output_tokens=1,
        block_ids=np.arange(100, dtype=np.int32),
        block_tokens=4,
        knows_output=False,
    )
    return Outcome(number=0, asked=asked, first_token_s=end_s, end_s=end_s, resumed=resumed)


def report(*outcomes):
    engine = SimpleNamespace(
        outcomes=outcomes,
        bytes_stored=dict,
        bytes_loaded=dict,
        bytes_used=dict,
        counters=SimpleNamespace(preemptions=0),
    )
    config = SimConfig(plan=small_model(full(4)).plan(1.0), speeds=SPEEDS)
    return make_report(config, [engine], is_whole=True)


def test_what_was_loaded_would_have_been_computed_behind_what_the_device_had():
    found = report(outcome(0.0, 1.0, device=100, memory=40, disk=60))
    assert found.loaded_tokens == 100
    assert found.loaded_s == pytest.approx(1.0 + 1e-3 * 100 * 150)


def test_a_last_answer_that_takes_its_time_is_no_queue():
    assert not report(outcome(0.0, 1.0), outcome(100.0, 179.0)).is_overloaded
    assert report(outcome(0.0, 1.0), outcome(100.0, 181.0)).is_overloaded


def test_the_token_that_is_always_computed_is_no_loss():
    trace = Trace.of_prompts([range(20), range(20)], block_tokens=4, interval_s=9.0)
    found = replay(trace, SimConfig(plan=small_model(full(4)).plan(1.0), speeds=SPEEDS))
    assert (found.seen_tokens, found.resumed_tokens, found.lost) == (76, {"device": 76}, [])


def test_what_memory_has_is_not_evicted_though_the_device_gave_it_up():
    prompts = [range(first, first + 20) for first in (0, 100, 200, 300, 0)]
    plan = small_model(full(4)).plan(1.0)
    config = SimConfig(plan=plan, memory_bytes=1 << 20, speeds=SPEEDS, loads=LoadRule.NEVER)
    found = replay(Trace.of_prompts(prompts, block_tokens=4, interval_s=9.0), config)
    assert [(lost.cause, lost.num_tokens) for lost in found.lost] == [(Cause.TOO_LATE, 76)]
