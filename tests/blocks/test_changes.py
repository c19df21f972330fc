"""The net effect of a step on the index, as `take_changes` tells it."""

from octavo.testing import full, window


def stored(changes):
    """Blocks by group."""
    blocks = {}
    for run in changes.stored:
        blocks.setdefault(run.group_idx, []).extend(run.blocks)
    return blocks


def test_every_group_tells_its_own(make_engine):
    engine = make_engine(full(), window(9, 8), hash_block_size=4)
    engine.serve([1] * 22)
    sizes = [group.block_size for group in engine.config.groups]
    changes = engine.manager.take_changes()
    assert stored(changes) == {group: [*range(22 // size)] for group, size in enumerate(sizes)}
    assert not changes.removed
    assert not changes.was_cleared


def test_what_comes_and_goes_within_a_step_is_not_mentioned(make_engine):
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 40)
    engine.serve([2] * 90)
    engine.serve([3] * 90)
    changes = engine.manager.take_changes()
    assert not changes.removed
    assert all(set(run.hashes) <= set(engine.manager.pool.indexes[0]) for run in changes.stored)


def test_what_goes_and_comes_back_is_not_mentioned(make_engine):
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 40)
    engine.take_changes()
    engine.serve([2] * 90)  # [1] * 40 is gone but for its first block
    engine.serve([1] * 40)
    changes = engine.manager.take_changes()
    told = {*changes.removed.get(0, ()), *(name for run in changes.stored for name in run.hashes)}
    assert told, "of [2] * 90"
    assert told.isdisjoint(engine.begin([1] * 40).blocks.hashes(0))


def test_the_part_of_a_run_that_is_new_names_its_own_parent(make_engine):
    """Blocks 0 to 7 were there before, went, and came back; only the rest is told, with block 7 as its parent."""
    engine = make_engine(full(), spare=0)
    engine.serve([1] * 32)
    engine.take_changes()
    engine.serve([2] * 95)
    engine.serve([1] * 90)
    changes = engine.manager.take_changes()
    hashes = engine.begin([1] * 90).blocks.hashes(0)
    first = min((run for run in changes.stored if run.hashes[0] in hashes), key=lambda run: run.blocks[0])
    assert first.blocks[0] > 0
    assert first.parent_hash == hashes[first.blocks[0] - 1]


def test_clearing_comes_before_what_follows_it(make_engine):
    engine = make_engine(full())
    engine.serve([1] * 22)
    engine.reset()
    engine.serve([2] * 22)
    changes = engine.manager.take_changes()
    assert changes.was_cleared
    assert not changes.removed
    assert stored(changes) == {0: [*range(5)]}


def test_a_block_that_came_twice_is_told_with_its_last_row(make_engine):
    engine = make_engine(full(), spare=0)
    for token in (1, 2, 1, 2, 1):
        engine.serve([token] * 90)
    engine.take_changes()  # compares rows and parents with the index
