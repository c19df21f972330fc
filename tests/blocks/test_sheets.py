"""Sheets go from class to class, reserves are left alone, and pages move where nothing else helps.

The plan has 22 sheets: of window pages one fills a sheet, of full attention four do. One longest request needs 9 sheets
of the one and 6 of the other, so 7 are for whoever wants them.
"""

from types import SimpleNamespace

import pytest

from octavo.blocks import BlockPool
from octavo.testing import StepPlan, full, small_model, window

LAYERS = window(9, heads=4), full()
FULL, WINDOW = 0, 1
"""Groups."""
LARGE, SMALL = 0, 1
"""Classes."""


@pytest.fixture
def pool():
    return BlockPool(small_model(*LAYERS).plan(0.5))


def publish_and_let_go(pool, group, rows, first_hash=0):
    """The rows are cached, as blocks of one sequence."""
    hashes = [f"{first_hash + i}".encode() for i in range(len(rows))]
    sequence = SimpleNamespace(generation=pool.generation, hashes=lambda _: hashes)
    pool.publish(group, sequence, range(len(rows)), rows)
    pool.let_go(group, rows)
    pool.check_invariants()


def test_the_plan_is_what_this_file_says(pool):
    assert pool.config.num_sheets == 22
    assert [cls.pages_per_sheet for cls in pool.config.page_classes] == [1, 4]
    assert [group.page_class for group in pool.config.groups] == [SMALL, LARGE]
    assert pool.reserved_sheets == [9, 6]


def test_nobody_takes_what_another_needs_for_its_longest_request(pool):
    assert not pool.can_take([17, 0])
    assert pool.can_take([16, 0])
    pool.take([16, 0])
    assert not pool.can_take([0, 25])
    assert pool.can_take([0, 24])
    pool.take([0, 24])
    pool.check_invariants()


def test_a_sheet_goes_back_and_is_leased_to_another_class(pool):
    rows = pool.take([16, 0])[LARGE]
    pool.let_go(WINDOW, rows)  # never published, so free
    assert pool.can_take([0, 52])
    pool.take([0, 52])
    assert pool.usage()[SMALL].leased_sheets == 13
    pool.check_invariants()


def test_what_is_cached_makes_room_for_another_class(pool):
    publish_and_let_go(pool, WINDOW, pool.take([16, 0])[LARGE])
    pool.take([0, 52])
    assert pool.usage()[LARGE].cached_pages == 9
    assert len(pool.indexes[WINDOW]) == 9
    pool.check_invariants()


def test_another_class_s_older_sheet_goes_before_newer_pages_of_its_own(pool):
    publish_and_let_go(pool, WINDOW, pool.take([16, 0])[LARGE])
    publish_and_let_go(pool, FULL, pool.take([0, 24])[SMALL])
    pool.take([0, 4])
    assert len(pool.indexes[FULL]) == 24
    assert len(pool.indexes[WINDOW]) == 15


def test_its_own_older_pages_go_before_another_class_s_newer_sheet(pool):
    publish_and_let_go(pool, FULL, pool.take([0, 24])[SMALL])
    publish_and_let_go(pool, WINDOW, pool.take([16, 0])[LARGE])
    pool.take([0, 4])
    assert len(pool.indexes[FULL]) == 20
    assert len(pool.indexes[WINDOW]) == 16


def test_two_classes_can_take_at_once_what_a_third_gives_up():
    """What one has leased a moment ago does not count as an empty sheet that another may have."""
    pool = BlockPool(small_model(window(9, heads=4), window(5, heads=2), full()).plan(0.5))
    small = pool.classes[2]
    rows = pool.take([0, 0, (len(pool.free_sheets) - sum(pool.reserved_sheets[:2])) * 4])[2]
    publish_and_let_go(pool, FULL, rows)
    counts = [pool.reserved_sheets[0] + 1, (pool.reserved_sheets[1] + 1) * 2, 0]
    assert pool.can_take(counts)
    assert [len(rows) for rows in pool.take(counts)] == counts
    assert small.num_cached == len(rows) - 2 * 4
    pool.check_invariants()


def test_a_class_is_not_asked_to_clear_a_sheet_that_it_takes_pages_from(pool):
    """A free sheet and a cached one: the one it keeps must hold the page that it takes itself."""
    rows = pool.take([0, 32])[SMALL]
    publish_and_let_go(pool, FULL, rows[:24])
    pool.let_go(FULL, rows[24:])
    counts = [15, 3]
    assert pool.can_take(counts)
    assert [len(taken) for taken in pool.take(counts)] == counts
    pool.check_invariants()


def test_pages_move_together_when_no_sheet_is_free(make_engine):
    engine = make_engine(*LAYERS, spare=0.5)
    requests = [engine.begin([token] * 40) for token in range(4)]
    for end in range(4, 41, 4):  # the four of them share every sheet
        for request in requests:
            assert engine.schedule([StepPlan(request=request, num_tokens=end)]) == [True]
            engine.commit(request)
    for request in requests[1:]:
        engine.free(request)
    stays = requests[0]
    rows = list(stays.blocks.tables[FULL].rows)
    others = [engine.begin([token] * 24) for token in (5, 6)]
    assert engine.schedule([StepPlan(request=other, num_tokens=24) for other in others]) == [True, True]
    assert engine.num_moves > 0
    assert stays.blocks.tables[FULL].rows != rows
    engine.check()
    engine.decode(stays, [0] * 4)  # it finds its bytes where they are now
    engine.take_changes()


def test_a_move_leaves_other_classes_alone(pool):
    """The groups' blocks have the same hashes, and rows of different classes the same numbers."""
    small = pool.take([0, 8])[SMALL]
    large = pool.take([8, 0])[LARGE]
    assert set(large) & set(small)
    for group, rows in ((FULL, small), (WINDOW, large)):
        hashes = [bytes([row]) for row in rows]
        sequence = SimpleNamespace(generation=0, hashes=lambda _, own=hashes: own)
        pool.publish(group, sequence, range(len(rows)), rows)
    before = dict(pool.indexes[WINDOW])
    room = pool.take([0, 8])[SMALL]
    pool.let_go(FULL, room)
    pool.move_and_give_back(SMALL, dict(zip(small, room, strict=True)), sorted({row // 4 for row in small}))
    assert pool.indexes[WINDOW] == before
    pool.check_invariants()


def test_what_cannot_be_told_does_not_move(make_engine):
    """A page with a holder that is no request's table: a refusal, and nothing has changed."""
    engine = make_engine(*LAYERS, spare=0.5)
    pool = engine.manager.pool
    sheets = pool.take([0, 52])[SMALL]
    pool.let_go(FULL, [row for row in sheets if row % 4])  # one page of each sheet is held by us
    requests = [engine.begin([token] * 24) for token in range(3)]
    answers = []
    for request in requests:
        before = engine.snapshot()
        answers.append(engine.manager.allocate(request.blocks, 24))
        if answers[-1] is None:
            assert engine.snapshot() == before
    assert answers[-1] is None
    pool.check_invariants()
