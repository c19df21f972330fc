"""The default policy is no worse than LRU and ARC, through the scheduler, whatever the traffic."""

from functools import cache
from itertools import count, islice
from random import Random

import pytest

from octavo.sim import SimConfig, Speeds, Trace, replay
from octavo.specs import RequestLimits
from octavo.testing import TRAFFIC, full, make_traffic, small_model, state, window

BLOCK = 4
COUNT = {"full": 300, "window + state + full": 200}
"""Requests of a trace: short, as each is replayed several times."""
MODELS = {
    "full": small_model(full(4, heads=64)),
    "window + state + full": small_model(window(8, heads=64), state(4, elements=2048), full(4, heads=32)),
}
LONG = RequestLimits(max_model_len=700 * BLOCK, max_step_tokens=2048)
SHARES = (0.05, 0.2)
"""Of the footprint."""


@cache
def resumed(model, kind, policy, share, count=None):
    """The share of the prompts that a policy resumes. The device is as small as it can be, so that all comes from
    memory."""
    trace = Trace.of_prompts(make_traffic(kind, count or COUNT[model], seed=1), block_tokens=BLOCK, interval_s=10.0)
    return resumed_of(trace, MODELS[model], policy, share)


def resumed_of(trace, model, policy, share):
    plan = model.plan(0.2)
    block_bytes = sum(group.page_bytes for group in plan.groups)
    footprint = len({int(i) for request in trace.requests for i in request.block_ids}) * block_bytes
    config = SimConfig(
        plan=plan,
        memory_bytes=int(footprint * share),
        policy=policy,
        speeds=Speeds(memory_bytes_per_s=1e18),
    )
    return replay(trace, config).resumed_share


def ahead(kind, share):
    """How much more the default resumes than the better of LRU and ARC, with full attention."""
    return resumed("full", kind, "resume_points", share) - max(resumed("full", kind, p, share) for p in ("lru", "arc"))


@pytest.mark.parametrize("kind", TRAFFIC)
def test_full_attention_resumes_hardly_less_than_with_lru_and_arc(kind):
    """At each capacity alone. Who learns while it plays needs some requests: one point, in so short a trace."""
    for share in SHARES:
        assert ahead(kind, share) >= -0.01


def test_full_attention_resumes_more_than_with_lru_and_arc_over_all_traffic():
    """More than whoever knew for each kind and capacity which of the two is better."""
    cases = [ahead(kind, share) for kind in TRAFFIC for share in SHARES]
    assert sum(cases) / len(cases) >= 0.003


@pytest.mark.parametrize("kind", ["scans", "agents", "chats", "many documents", "mixtures"])
def test_a_hybrid_resumes_no_less_than_with_lru(kind):
    """Pooled over two capacities: here the index stands alone."""
    ours, lru = (
        sum(resumed("window + state + full", kind, policy, share) for share in SHARES)
        for policy in ("resume_points", "lru")
    )
    assert ours >= lru


def test_a_hybrid_keeps_a_part_of_a_loop_that_does_not_fit():
    """LRU and ARC resume nothing of it. Points inside a prompt are soon known to be of another kind than its end."""
    assert resumed("window + state + full", "loops", "lru", 0.3, 120) == 0.0
    assert resumed("window + state + full", "loops", "resume_points", 0.3, 120) >= 0.45


def lead_over_arc(model, prompts_of, share):
    """How much more the default resumes than ARC, in the mean of four seeds."""
    leads = []
    for seed in range(1, 5):
        prompts = prompts_of(Random(seed), iter(range(10**6, 10**7)))
        trace = Trace.of_prompts(prompts, block_tokens=BLOCK, interval_s=10.0)
        leads.append(resumed_of(trace, model, "resume_points", share) - resumed_of(trace, model, "arc", share))
    return sum(leads) / len(leads)


def make_documents(chooser, fresh, count, lengths):
    """Documents, and how popular they are, by Zipf's law."""
    documents = [[next(fresh) for _ in range(chooser.choice(lengths))] for _ in range(count)]
    return documents, [1 / (index + 1) ** 0.9 for index in range(count)]


def test_a_hybrid_keeps_ends_of_documents_rather_than_points_inside_them():
    """Some of sixty documents are asked about often. Points inside one serve a request only if its end is not there."""

    def questions(chooser, fresh):
        documents, weights = make_documents(chooser, fresh, 60, range(6, 22))
        return [[*chooser.choices(documents, weights)[0], next(fresh)] for _ in range(400)]

    assert lead_over_arc(small_model(window(4, heads=64), full(4, heads=64)), questions, 0.25) >= 0.033


def test_a_hybrid_keeps_what_several_requests_went_through():
    """Each of twenty documents is followed by another one or by something new. Points that nobody asks for themselves
    lie inside a document that many go through, and inside one that is asked about once."""

    def in_pairs(chooser, fresh):
        documents, weights = make_documents(chooser, fresh, 20, range(4, 10))
        prompts = []
        for _ in range(300):
            first, second = chooser.choices(documents, weights, k=2)
            follows = second[:8] if chooser.random() < 0.5 else [next(fresh) for _ in range(8)]
            prompts.append([*first, *follows, next(fresh)])
        return prompts

    assert lead_over_arc(small_model(window(8, heads=32), full(4, heads=64)), in_pairs, 0.15) >= -0.005


def test_points_close_together_do_not_outlive_their_use():
    """Something new after one of thirty lists of examples, by Zipf's law. The first ones have a point at each block,
    and windows of eight blocks: no such point frees anything alone. Who keeps them is behind ARC."""

    def after_examples(chooser, fresh):
        examples, weights = make_documents(chooser, fresh, 30, range(40, 240))
        return [[*chooser.choices(examples, weights)[0], *islice(fresh, chooser.randrange(2, 24))] for _ in range(250)]

    model = small_model(window(8 * BLOCK, heads=64), full(BLOCK, heads=64), limits=LONG)
    assert lead_over_arc(model, after_examples, 0.35) >= 0.003


@cache
def tasks(seed):
    """Thirty documents of 90 to 600 blocks, in any order, each time with a task of its own."""
    chooser, numbers = Random(seed), count(1)
    texts = [list(islice(numbers, chooser.randrange(90, 600))) for _ in range(30)]
    prompts = [chooser.choice(texts) + list(islice(numbers, chooser.choice((10, 18, 38)))) for _ in range(200)]
    return Trace.of_prompts(prompts, block_tokens=BLOCK, interval_s=10.0)


def test_a_long_document_keeps_its_last_point():
    """Its last point saves all that comes before it once the points inside have gone. Who overlooks that gives up one
    window after the other, keeps the attention for nothing, and resumes no more than LRU does."""
    model = small_model(window(8 * BLOCK, heads=64), full(BLOCK, heads=64), limits=LONG)
    gained = [
        resumed_of(tasks(seed), model, "resume_points", 0.4) - resumed_of(tasks(seed), model, "lru", 0.4)
        for seed in (1, 2)
    ]
    assert sum(gained) / len(gained) >= 0.03
