"""The default policy is no worse than LRU and ARC, through the scheduler, whatever the traffic."""

import pytest

from octavo.sim import SimConfig, Speeds, Trace, replay
from octavo.testing import TRAFFIC, full, make_traffic, small_model, state, window

BLOCK = 4
COUNT = 200
"""Requests of a trace: short, as each is replayed six times."""
MODELS = {
    "full": small_model(full(4, heads=32)),
    "window + state + full": small_model(window(8, heads=64), state(4, elements=2048), full(4, heads=32)),
}


def make_replay(model, kind):
    """Share of the prompts that a policy resumes with so much of the footprint. The device is as small as it can be, so
    that all comes from memory."""
    plan = MODELS[model].plan(0.2)
    block_bytes = sum(group.page_bytes for group in plan.groups)
    trace = Trace.of_prompts(make_traffic(kind, COUNT, seed=1), block_tokens=BLOCK, interval_s=10.0)
    footprint = len({int(i) for request in trace.requests for i in request.block_ids}) * block_bytes

    def resumed(policy, share):
        config = SimConfig(
            plan=plan,
            memory_bytes=int(footprint * share),
            policy=policy,
            speeds=Speeds(memory_bytes_per_s=1e18),
            max_step_tokens=48,
        )
        return replay(trace, config).resumed_share

    return resumed


@pytest.mark.parametrize("kind", sorted({*TRAFFIC} - {"recency"}))
def test_full_attention_resumes_no_less_than_with_lru_and_arc(kind):
    """At each capacity alone. 0.6 points are allowed: the smallest tiers hold less than one long prompt."""
    resumed = make_replay("full", kind)
    for share in (0.05, 0.2):
        ours, *rivals = (resumed(policy, share) for policy in ("resume_points", "lru", "arc"))
        assert ours >= max(rivals) - 0.006


@pytest.mark.parametrize("kind", ["scans", "agents"])
def test_a_hybrid_resumes_no_less_than_with_lru(kind):
    """Pooled over two capacities: here the index stands alone."""
    resumed = make_replay("window + state + full", kind)
    ours, lru = (sum(resumed(policy, share) for share in (0.05, 0.2)) / 2 for policy in ("resume_points", "lru"))
    assert ours >= lru
