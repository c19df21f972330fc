"""What is let in, what is refused and how that is said, and what is counted."""

import random

import pytest

from octavo.blocks import KVCacheManager
from octavo.errors import InputError, RequestTooLargeError
from octavo.hashing import BlockHasher
from octavo.testing import MODEL_EXAMPLES, NaiveEngine, StepPlan, cross, full, small_model, window


def test_a_request_is_admitted_if_all_of_its_prompt_fits(make_engine):
    engine = make_engine(full(), spare=0.5)
    holder = engine.begin([1] * 96)
    engine.prefill(holder)
    late = engine.begin([2] * 90)
    assert engine.schedule([StepPlan(request=late, num_tokens=8, must_fit_tokens=90)]) == [False]
    assert engine.schedule([StepPlan(request=late, num_tokens=8)]) == [True]


@pytest.mark.parametrize("name", MODEL_EXAMPLES)
@pytest.mark.parametrize("seed", range(6))
def test_a_request_alone_gets_to_its_end_in_steps_of_any_size(name, seed):
    """Its pool holds one longest request, and no more."""
    model, chooser = MODEL_EXAMPLES[name], random.Random(seed)
    engine, limits = NaiveEngine(KVCacheManager(model.plan(spare=0))), model.limits
    request = engine.begin([1] * chooser.randrange(1, limits.max_model_len - 1), num_encoder_tokens=seed % 5)
    while request.num_known < limits.max_model_len:
        size = chooser.choice([1, 2, 3, chooser.randrange(1, limits.max_step_tokens + 1), limits.max_step_tokens])
        end = min(request.num_known, request.computed + size)
        if seed % 2:
            end = engine.manager.cut_prefill(request.blocks, end)
        sampled = (1,) if end == request.num_known else ()
        step = StepPlan(request=request, num_tokens=end, sampled=sampled)
        assert engine.schedule([step]) == [True], f"no room for {end} tokens"
        engine.commit(request)
        engine.check()


def test_a_window_is_not_asked_for_more_than_it_ever_holds(make_engine):
    engine = make_engine(window(9, heads=4), full(), spare=0)
    request = engine.begin([1] * 90)
    assert engine.schedule([StepPlan(request=request, num_tokens=24, must_fit_tokens=90)]) == [True]


def test_a_refusal_changes_nothing_and_the_request_may_try_again(make_engine):
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 40)
    holder = engine.begin([2] * 96)
    step = StepPlan(request=holder, num_tokens=60)
    assert engine.schedule([step]) == [True]
    request = engine.begin([1] * 90)
    engine.look_up(request)
    step = StepPlan(request=request, num_tokens=90)
    assert engine.schedule([step]) == [False]
    assert not request.blocks.is_started
    engine.free(holder)
    assert engine.prefill(request) > 0


def test_a_stale_plan_is_looked_up_again(make_engine):
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 40)
    request = engine.begin([1] * 40)
    assert engine.look_up(request).num_tokens == 36
    engine.serve([2] * 70)  # evicts 4 blocks
    step = StepPlan(request=request, num_tokens=40)
    assert engine.schedule([step]) == [True]
    assert request.in_flight[0].start == 24


def test_a_stale_plan_never_gets_longer(make_engine):
    """The engine has counted the tokens that it will compute."""
    engine = make_engine(full(), spare=0)
    request = engine.begin([1] * 40)
    assert engine.look_up(request).num_tokens == 0
    engine.serve([2] * 90)
    engine.serve([1] * 40)
    assert engine.schedule([StepPlan(request=request, num_tokens=8)]) == [True]
    assert request.in_flight[0].start == 0


@pytest.mark.parametrize("num_tokens", [97, 1000])
def test_a_request_that_no_pool_could_hold_is_refused(make_engine, num_tokens):
    engine = make_engine(full(), cross())
    with pytest.raises(RequestTooLargeError, match=rf"{num_tokens:,} tokens are more than .* 96"):
        engine.begin([1] * num_tokens)
    with pytest.raises(RequestTooLargeError, match="12 encoder tokens are more than the plan's 11"):
        engine.begin([1], num_encoder_tokens=12)
    with pytest.raises(InputError, match="at least one token"):
        engine.begin([])
    request = engine.begin([1] * 90)
    with pytest.raises(RequestTooLargeError):
        engine.manager.allocate(request.blocks, num_tokens)
    assert engine.manager.requests.keys() == {request.blocks.request_id}


def test_the_hasher_and_the_plan_must_agree():
    with pytest.raises(InputError, match="3 tokens, the plan's 4"):
        KVCacheManager(small_model(full()).plan(0), hasher=BlockHasher(hash_block_size=3))


def test_events_must_be_asked_for():
    with pytest.raises(InputError, match="enable_events"):
        KVCacheManager(small_model(full()).plan(0)).take_changes()


def test_usage_counts_every_page_once(make_engine):
    engine = make_engine(full(), spare=0)
    request = engine.begin([1] * 22)
    engine.prefill(request)
    (usage,) = engine.manager.usage()
    assert usage.held_pages == 6
    engine.free(request)
    (usage,) = engine.manager.usage()
    assert (usage.held_pages, usage.cached_pages) == (0, 5)  # the block that is not full is nobody's


def test_statistics_count_every_prompt_and_say_who_missed(make_engine):
    engine = make_engine(window(9), full())
    groups = {group.kind: i for i, group in enumerate(engine.config.groups)}
    engine.serve([1] * 22)
    stats = engine.manager.take_stats()
    assert (stats.requests, stats.tokens_asked, stats.tokens_attainable, stats.tokens_resumed) == (1, 22, 20, 0)
    assert stats.tokens_missed_by_group == {groups["full_attention"]: 20}

    engine.manager.pool.forget_group(groups["sliding_window"])
    engine.serve([1] * 22)
    stats = engine.manager.take_stats()
    assert stats.tokens_missed_by_group == {groups["sliding_window"]: 20}

    engine.serve([1] * 22)
    stats = engine.manager.take_stats()
    assert (stats.tokens_resumed, stats.tokens_missed_by_group) == (20, {})
    assert engine.manager.take_stats().requests == 0


def test_looking_is_not_counted(make_engine):
    engine = make_engine(full())
    request = engine.begin([1] * 22)
    for _ in range(3):
        engine.look_up(request)
    assert engine.manager.take_stats().requests == 0
