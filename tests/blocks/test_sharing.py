"""Pages that several requests read: hits, forks, sinks, encoder blocks."""

import pytest

from octavo.blocks import NULL_BLOCK
from octavo.errors import InputError
from octavo.hashing import RequestIdentity
from octavo.specs import EncoderOnlyAttentionSpec
from octavo.testing import StepPlan, cross, full, sinks, state, window


def test_a_hit_shares_pages(make_engine):
    engine = make_engine(full())
    first = engine.begin([1] * 22)
    engine.prefill(first)
    second = engine.begin([1] * 22)
    assert engine.prefill(second) == 20
    shared = first.blocks.tables[0].rows[:5]
    assert second.blocks.tables[0].rows[:5] == shared
    assert second.blocks.tables[0].rows[5] != first.blocks.tables[0].rows[5]


@pytest.mark.parametrize(
    "other",
    [{"lora_name": "a"}, {"cache_salt": "s"}, {"lora_name": "a", "lora_digest": b"1"}, {"encoder_digest": b"e"}],
)
def test_requests_of_another_identity_share_nothing(make_engine, other):
    engine = make_engine(full())
    engine.serve([1] * 22)
    assert engine.serve([1] * 22, RequestIdentity(**other)) == 0
    assert engine.serve([1] * 22, RequestIdentity(**other)) == 20


def test_a_fork_shares_all_pages_until_one_of_the_two_writes(make_engine):
    engine = make_engine(full())
    request = engine.begin([1] * 22)
    engine.prefill(request)
    twin = engine.fork(request)
    rows = list(request.blocks.tables[0].rows)
    assert twin.blocks.tables[0].rows == rows

    first = engine.manager.allocate(request.blocks, 23)
    assert [(copy.source, copy.destination) for copy in first.copies] == [(rows[5], request.blocks.tables[0].rows[5])]
    second = engine.manager.allocate(twin.blocks, 23)
    assert second.copies == ()  # nobody else reads it any more
    assert twin.blocks.tables[0].rows == rows


def test_forks_go_different_ways(make_engine):
    engine = make_engine(state(), window(9), full())
    request = engine.begin([1] * 22)
    engine.prefill(request)
    twins = [engine.fork(request) for _ in range(3)]
    for token, twin in enumerate(twins):
        engine.decode(twin, [token] * 6)
    engine.decode(request, [4] * 6)


def test_no_fork_while_a_step_is_in_flight(make_engine):
    engine = make_engine(full())
    request = engine.begin([1] * 22)
    assert engine.schedule([StepPlan(request=request, num_tokens=22)]) == [True]
    with pytest.raises(InputError, match="in flight"):
        engine.manager.fork(request.blocks, "twin")


def test_an_id_is_used_once_at_a_time(make_engine):
    engine = make_engine(full())
    request = engine.begin([1])
    for begin in (
        lambda: engine.manager.begin_request(request.blocks.request_id, [1]),
        lambda: engine.manager.begin_again(request.blocks, request.blocks.request_id),
        lambda: engine.manager.fork(request.blocks, request.blocks.request_id),
    ):
        with pytest.raises(InputError, match="there already"):
            begin()


def test_sinks_and_null_rows_are_reserved_for_ever(make_engine):
    engine = make_engine(sinks(6), window(9), null_block=True)
    kinds = [group.kind for group in engine.config.groups]
    by_kind = dict(zip(kinds, engine.manager.reserved_rows, strict=True))
    assert len(by_kind["sink_full_attention"]) == 3  # 6 tokens in blocks of 4, and the null row
    assert len(by_kind["sliding_window"]) == 1
    for token in range(6):
        engine.serve([token] * 60)
    engine.check_nothing_leaks()
    reserved = set(by_kind["sink_full_attention"])
    assert not reserved & set(engine.manager.pool.indexes[kinds.index("sink_full_attention")].values())


def test_encoder_blocks_are_shared_by_digest(make_engine):
    engine = make_engine(full(), cross())
    group = next(i for i, group in enumerate(engine.config.groups) if group.kind == "cross_attention")
    same, other = RequestIdentity(encoder_digest=b"same"), RequestIdentity(encoder_digest=b"other")
    engine.serve([1] * 22, same, num_encoder_tokens=11)
    short = engine.begin([2], same, num_encoder_tokens=11)  # resumes nothing, and needs not encode again
    assert engine.prefill(short) == 0
    assert short.blocks.tables[group].rows == list(engine.manager.pool.indexes[group].values())
    assert engine.serve([1] * 22, other, num_encoder_tokens=11) == 0
    assert engine.serve([1] * 22, same, num_encoder_tokens=11) == 20


def test_what_depends_on_an_unnamed_encoder_input_is_not_cached(make_engine):
    """Nor its decoder blocks: they would be found by a request with other input, or with none."""
    engine = make_engine(full(), cross())
    assert [engine.serve([1] * 22, num_encoder_tokens=11) for _ in range(2)] == [0, 0]
    assert all(not index for index in engine.manager.pool.indexes)
    assert engine.serve([1] * 22) == 0


def test_encoder_only_attention_keeps_nothing(make_engine):
    engine = make_engine(full(), EncoderOnlyAttentionSpec(block_size=4, num_kv_heads=1, head_size=4))
    request = engine.begin([1] * 22)
    engine.prefill(request)
    (nothing,) = [i for i, group in enumerate(engine.config.groups) if group.page_class is None]
    assert request.blocks.tables[nothing].rows == []
    engine.free(request)
    assert engine.serve([1] * 22) == 20


def test_a_resumed_window_has_no_block_before_it(make_engine):
    engine = make_engine(window(9), full())
    group = next(i for i, group in enumerate(engine.config.groups) if group.kind == "sliding_window")
    engine.serve([1] * 42)
    request = engine.begin([1] * 42)
    engine.prefill(request)
    rows = request.blocks.tables[group].rows
    assert rows[:8] == [NULL_BLOCK] * 8
    assert NULL_BLOCK not in rows[8:]
