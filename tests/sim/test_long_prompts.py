"""What a prompt costs that is larger than memory: twice as long, twice as much."""

import sys

import pytest

from octavo.sim import SimConfig, Speeds, Trace, replay
from octavo.specs import RequestLimits
from octavo.testing import full, small_model, state, window

BLOCK = 4
MODELS = {
    "state": [state(BLOCK, elements=256), full(BLOCK, heads=32)],
    "window": [window(2 * BLOCK, heads=64), full(BLOCK, heads=32)],
    "full": [full(BLOCK, heads=32)],
}


def num_calls(layers, num_blocks):
    """Of all functions, for a prompt that asks for twice the memory, and then again."""
    trace = Trace.of_prompts([range(1, num_blocks + 1)] * 2, block_tokens=BLOCK, interval_s=1000.0)
    plan = small_model(*layers, limits=RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=64)).plan(0.1)
    memory_bytes = num_blocks * sum(group.page_bytes for group in plan.groups) // 2
    config = SimConfig(plan=plan, memory_bytes=memory_bytes, speeds=Speeds(memory_bytes_per_s=1e18))
    called = 0

    def count(frame, event, arg):
        nonlocal called
        called += event == "call"

    sys.setprofile(count)
    try:
        report = replay(trace, config)
    finally:
        sys.setprofile(None)
    assert report.resumed_share > 0.1
    return called


@pytest.mark.parametrize("kind", MODELS)
def test_a_prompt_that_is_twice_as_long_costs_twice_as_much(kind):
    short, long = (num_calls(MODELS[kind], num_blocks) for num_blocks in (300, 600))
    assert long < 2.5 * short, (short, long)
