"""Where nothing can ever be resumed, a plan says so; where something can, it does not."""

import pytest
from hypothesis import given, strategies as st

from octavo.planning import plan_kv_cache, why_nothing_resumes
from octavo.specs import FullAttentionSpec, MambaSpec, RequestLimits, last_boundary

LAYERS = {
    "attention": FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64),
    "state": MambaSpec(block_size=256, shapes=((64,),), dtypes=("float32",)),
}


def plan(context, **changes):
    return plan_kv_cache(LAYERS, memory_bytes=1 << 24, limits=RequestLimits(max_model_len=context), **changes)


@pytest.mark.parametrize("context", [200, 256, 257])
def test_a_context_that_ends_before_the_first_resume_point(context):
    reason = plan(context).why_nothing_resumes()
    assert "resume points lie 256 tokens apart" in reason
    assert f"a context of {context}. Give a context of at least 258 tokens" in reason


def test_the_shortest_context_that_can_be_resumed():
    assert plan(258).why_nothing_resumes() is None


def test_a_draft_group_needs_a_granule_more():
    assert "at least 513 tokens" in plan(512, draft_layers=["attention"]).why_nothing_resumes()
    assert plan(513, draft_layers=["attention"]).why_nothing_resumes() is None


@given(st.integers(1, 64), st.integers(2, 300), st.booleans())
def test_it_agrees_with_the_rule_for_every_prompt(granularity, context, has_draft):
    can_resume = any(last_boundary(n, granularity, has_draft=has_draft) for n in range(1, context))
    assert (why_nothing_resumes(granularity, context, has_draft=has_draft) is None) is can_resume


@given(st.integers(1, 64), st.booleans())
def test_the_remedy_helps_and_no_less_does(granularity, has_draft):
    said = why_nothing_resumes(granularity, 2, has_draft=has_draft)
    if said is not None:
        shortest = int(said.split("at least ")[1].split()[0].replace(",", ""))
        assert why_nothing_resumes(granularity, shortest, has_draft=has_draft) is None
        assert why_nothing_resumes(granularity, shortest - 1, has_draft=has_draft) is not None
