"""What is given up first, and what that leaves to resume from."""

from octavo.testing import full, window


def cached_blocks(engine, tokens, group=0):
    """The indices in the sequence of the blocks that can be found."""
    request = engine.begin(tokens)
    index = engine.manager.pool.indexes[group]
    found = [block for block, block_hash in enumerate(request.blocks.hashes(group)) if block_hash in index]
    engine.free(request)
    return found


def fill(engine, num_tokens, token=9):
    """Takes so many tokens' worth of pages, and holds them."""
    request = engine.begin([token] * num_tokens)
    engine.prefill(request, sampled=token)
    return request


def test_the_deepest_block_goes_first(make_engine):
    engine = make_engine(full(), spare=0)  # 24 blocks
    engine.serve([1] * 40)
    fill(engine, 68)  # 17 blocks, 3 more than are free
    assert cached_blocks(engine, [1] * 40) == [*range(7)]
    assert engine.look_up(engine.begin([1] * 40)).num_tokens == 28


def test_the_request_that_ended_first_goes_first(make_engine):
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 32)
    engine.serve([2] * 32)
    fill(engine, 44)  # 8 blocks are free, 3 more are needed
    assert cached_blocks(engine, [1] * 32) == [*range(5)]
    assert cached_blocks(engine, [2] * 32) == [*range(8)]


def test_a_hit_is_a_use(make_engine):
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 32)
    engine.serve([2] * 32)
    engine.serve([1] * 33)
    fill(engine, 44)
    assert cached_blocks(engine, [1] * 32) == [*range(8)]
    assert cached_blocks(engine, [2] * 32) == [*range(5)]


def test_what_is_held_is_never_given_up(make_engine):
    engine = make_engine(full(), spare=0)
    holder = fill(engine, 40, token=1)
    for token in range(2, 8):
        engine.serve([token] * 50)
    engine.decode(holder, [1] * 8)
    assert cached_blocks(engine, [1] * 40) == [*range(10)]


def test_two_copies_of_a_block_count_as_one(make_engine):
    """Two requests that compute the same prompt at the same time: one copy stays when both have ended."""
    engine = make_engine(full())
    twins = [engine.begin([1] * 24), engine.begin([1] * 24)]
    plans = [engine.look_up(twin) for twin in twins]
    assert [plan.num_tokens for plan in plans] == [0, 0]
    for twin in twins:
        engine.manager.allocate(twin.blocks, 24, resume=twin.plan)
    assert not set(twins[0].blocks.tables[0].rows) & set(twins[1].blocks.tables[0].rows)
    for twin in twins:
        engine.manager.commit(twin.blocks, 24)
    for twin in twins:
        engine.free(twin)
    assert engine.manager.usage()[0].cached_pages == 6
    engine.manager.check_invariants()


def test_what_falls_out_of_a_window_stays_findable(make_engine):
    engine = make_engine(window(9), full())
    request = fill(engine, 24, token=1)
    engine.decode(request, [1] * 24)
    window_group = next(i for i, group in enumerate(engine.config.groups) if group.kind == "sliding_window")
    held = [row for row in request.blocks.tables[window_group].rows if row != -1]
    assert len(held) <= 3
    assert cached_blocks(engine, [1] * 40, window_group) == [*range(10)]
    assert engine.look_up(engine.begin([1] * 17)).num_tokens == 16


def test_a_lost_window_shortens_the_resume_and_leaves_full_attention_alone(make_engine):
    engine = make_engine(window(9, heads=3), full())
    groups = {group.kind: i for i, group in enumerate(engine.config.groups)}
    engine.serve([1] * 40)
    pool = engine.manager.pool
    pool.forget_group(groups["sliding_window"])
    plan = engine.look_up(engine.begin([1] * 40))
    assert plan.num_tokens == 0
    assert plan.limited_by == groups["sliding_window"]
    assert cached_blocks(engine, [1] * 40, groups["full_attention"]) == [*range(10)]


def test_reset_forgets_everything_and_running_requests_go_on(make_engine):
    engine = make_engine(full())
    request = fill(engine, 20, token=1)
    engine.reset()
    assert engine.look_up(engine.begin([1] * 20)).num_tokens == 0
    engine.decode(request, [1] * 12)
    engine.free(request)
    assert cached_blocks(engine, [1] * 32) == []  # what old weights began is not published
    engine.serve([1] * 32)
    assert cached_blocks(engine, [1] * 32) == [*range(8)]


def test_without_caching_nothing_is_kept(make_engine):
    engine = make_engine(full(), window(9), is_caching=False)
    assert [engine.serve([1] * 40) for _ in range(2)] == [0, 0]
    assert sum(usage.cached_pages for usage in engine.manager.usage()) == 0
    assert all(not index for index in engine.manager.pool.indexes)
