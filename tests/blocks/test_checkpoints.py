"""Where recurrent state is kept: at the prompt's end, at intervals, at branch points, and where generation ended."""

import pytest

from octavo.testing import full, state


@pytest.fixture
def engine(make_engine):
    """Blocks of 4, and no checkpoint at an interval that a test would reach."""
    return make_engine(state(), full(), checkpoint_interval_tokens=1000)


def checkpoints(engine, tokens):
    """The boundaries at which a state of this prompt is kept."""
    group = next(i for i, group in enumerate(engine.config.groups) if group.spec.holds_checkpoints)
    request = engine.begin(tokens)
    index = engine.manager.pool.indexes[group]
    kept = [4 * (k + 1) for k, block_hash in enumerate(request.blocks.hashes(group)) if block_hash in index]
    engine.free(request)
    return kept


def test_at_the_last_boundary_before_the_prompt_ends(engine):
    engine.serve([1] * 22)
    assert checkpoints(engine, [1] * 40) == [20]
    assert engine.serve([1] * 22) == 20


def test_a_prompt_that_ends_at_a_boundary_still_computes_a_token(engine):
    engine.serve([1] * 20)
    assert checkpoints(engine, [1] * 40) == [16, 20]  # for the same prompt, and where generation ended
    assert engine.serve([1] * 20) == 16


def test_at_every_interval(make_engine):
    engine = make_engine(state(), full(), checkpoint_interval_tokens=8)
    engine.serve([1] * 35)
    assert checkpoints(engine, [1] * 40) == [8, 16, 24, 32]


def test_only_where_a_step_ends(engine):
    """Whoever does not cut a chunk where `cut_prefill` says gets no checkpoint there."""
    request = engine.begin([1] * 22)
    engine.prefill(request, respects_cuts=False)
    engine.free(request)
    assert checkpoints(engine, [1] * 40) == []


def test_at_a_branch_point(engine):
    engine.serve([1] * 40)
    branch = [1] * 18 + [2] * 9
    request = engine.begin(branch)
    plan = engine.look_up(request)
    assert (plan.num_tokens, plan.branch_point) == (0, 16)  # attention could have resumed there
    engine.prefill(request)
    engine.free(request)
    assert checkpoints(engine, branch) == [16, 24]
    assert engine.serve([1] * 18 + [3] * 9) == 16


def test_rolls_on_while_generating_and_stays_where_that_ends(engine):
    request = engine.begin([1] * 10)
    engine.prefill(request, sampled=2)
    engine.decode(request, [2] * 20)  # 30 tokens are computed
    engine.free(request)
    everything = [1] * 10 + [2] * 30
    assert checkpoints(engine, everything) == [8, 28]
    assert engine.serve(everything) == 28


def test_a_hit_is_copied_and_not_written(engine):
    engine.serve([1] * 22)
    request = engine.begin([1] * 22)
    engine.look_up(request)
    allocation = engine.manager.allocate(request.blocks, 22, resume=request.plan)
    (copy,) = allocation.copies
    index = engine.manager.pool.indexes[copy.group_idx]
    assert copy.source in index.values()
    assert copy.destination == request.blocks.tables[copy.group_idx].rows[0]
    assert copy.destination not in index.values()


@pytest.mark.parametrize("speculative", [1, 2, 3])
def test_has_a_running_state_for_every_draft(make_engine, speculative):
    engine = make_engine(state(speculative=speculative), full())
    group = next(i for i, group in enumerate(engine.config.groups) if group.spec.holds_checkpoints)
    for _ in range(2):  # the second one begins with a hit
        request = engine.begin([1] * 22)
        engine.prefill(request)
        assert len(request.blocks.tables[group].rows) == 1 + speculative
        engine.free(request)


def test_a_request_never_holds_more_than_its_most(make_engine):
    """Not even for a moment: a pool for one request is enough at every boundary."""
    engine = make_engine(state(), full(), spare=0, checkpoint_interval_tokens=4)
    request = engine.begin([1] * 20)
    engine.prefill(request)
    engine.decode(request, [1] * 70)
    engine.free(request)
