"""The default policy is no worse than LRU, through the scheduler, whatever the traffic."""

import random

import numpy as np
import pytest

from octavo.sim import SimConfig, Speeds, Trace, TraceRequest, replay
from octavo.testing import full, small_model, state, window

BLOCK = 4
COUNT = 140
"""Requests of a trace: short, as each is replayed four times."""
MODELS = {
    "full": small_model(full(4, heads=32)),
    "window + state + full": small_model(window(8, heads=64), state(4, elements=2048), full(4, heads=32)),
}


class Blocks:
    """Blocks that no request had before."""

    def __init__(self):
        self.next = 1

    def fresh(self, count):
        self.next += count
        return list(range(self.next - count, self.next))


def scans(chooser, blocks):
    """Few prompts that return, among many that do not."""
    hot = [blocks.fresh(8) for _ in range(6)]
    for _ in range(COUNT):
        yield chooser.choice(hot) + blocks.fresh(1) if chooser.random() < 0.5 else blocks.fresh(12)


def one_hit_wonders(chooser, blocks):
    """Some documents are asked for often, most prompts once."""
    documents = [blocks.fresh(chooser.randrange(4, 16)) for _ in range(20)]
    weights = [1 / (place + 1) for place in range(20)]
    for _ in range(COUNT):
        is_known = chooser.random() < 0.6
        known = chooser.choices(documents, weights)[0]
        yield known + blocks.fresh(1) if is_known else blocks.fresh(chooser.randrange(5, 16))


def loops(_, blocks):
    documents = [blocks.fresh(8) for _ in range(30)]
    for number in range(COUNT):
        yield documents[number % 30] + blocks.fresh(1)


def shifts(chooser, blocks):
    """Another working set each time."""
    for _ in range(4):
        documents = [blocks.fresh(chooser.randrange(3, 12)) for _ in range(15)]
        for _ in range(COUNT // 4):
            yield documents[min(int(chooser.expovariate(0.3)), 14)] + blocks.fresh(1)


def agents(chooser, blocks):
    """A few chains that grow long."""
    chains = [blocks.fresh(2) for _ in range(6)]
    for _ in range(COUNT):
        number = chooser.randrange(6)
        chains[number] = blocks.fresh(2) if len(chains[number]) > 20 else chains[number] + blocks.fresh(1)
        yield chains[number]


def chats(chooser, blocks):
    """Conversations with a common beginning that grow and die."""
    systems = [blocks.fresh(3) for _ in range(2)]
    live = []
    for _ in range(COUNT):
        if not live or chooser.random() < 0.2:
            live.append([*chooser.choice(systems)])
        number = chooser.randrange(len(live))
        live[number] = live[number] + blocks.fresh(chooser.randrange(1, 3))
        yield live[number]
        if len(live[number]) > 17 or chooser.random() < 0.1:
            live.pop(number)


def trace_of(kind, seed):
    requests = [
        TraceRequest(
            arrival_s=number * 10.0,
            num_prompt_tokens=len(ids) * BLOCK,
            num_output_tokens=1,
            block_ids=np.array(ids, dtype=np.int32),
            block_tokens=BLOCK,
            knows_output=False,
        )
        for number, ids in enumerate(kind(random.Random(seed), Blocks()))
    ]
    return Trace(requests=requests, block_tokens=BLOCK)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        *(("full", kind) for kind in (scans, one_hit_wonders, loops, shifts, agents, chats)),
        *(("window + state + full", kind) for kind in (scans, agents)),
    ],
)
def test_no_traffic_makes_the_default_worse_than_lru(model, kind):
    """Pooled over two capacities. The device is as small as it can be, so that all comes from memory. One point in a
    hundred is allowed for chance, as the traces are short."""
    plan = MODELS[model].plan(0.2)
    block_bytes = sum(group.page_bytes for group in plan.groups)
    trace = trace_of(kind, seed=1)
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

    ours, lru = (sum(resumed(policy, share) for share in (0.05, 0.2)) / 2 for policy in ("resume_points", "lru"))
    assert ours >= lru - 0.01
