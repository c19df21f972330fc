"""Pages that the scheduler lends to a request while it is loaded or stored: none is lost, and none is lent for ever."""

import pytest

from octavo.ids import GroupIdx
from octavo.offload.loader import Readiness
from rigs.naive_tier import NaiveTier
from rigs.offload_engine import PATIENCE_S
from rigs.served import BLOCKS, BOUNDARY, PROMPT, Served


def begin_to_load(*, is_stuck):
    """A request whose prefix comes from memory; with `is_stuck`, not before somebody says so."""
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.is_stuck = is_stuck
    request = served.begin(PROMPT)
    assert not served.is_ready(request)
    return served, request


@pytest.mark.parametrize("is_stuck", [True, False])
def test_who_leaves_while_it_is_loaded_leaves_no_page_behind(is_stuck):
    served, request = begin_to_load(is_stuck=is_stuck)
    served.abort(request)
    served.worker.is_stuck = False
    served.settle()
    served.check_nothing_leaks()
    assert not +served.watched.held


@pytest.mark.parametrize("is_under_way", [True, False])
def test_what_was_lent_to_a_waiting_request_is_called_in(is_under_way):
    served, request = begin_to_load(is_stuck=is_under_way)
    served.poll()
    assert len(list(served.held_by_transfers())) == BLOCKS
    assert served.offload.call_in(request.blocks)
    assert not served.offload.call_in(request.blocks), "it has nothing any more"
    served.worker.is_stuck = False
    served.poll()
    assert not list(served.held_by_transfers())
    served.wait(request)
    assert served.prefill(request) == BOUNDARY, "what was called in is found as long as nobody needs its pages"


def test_what_was_called_in_and_evicted_was_not_resumed():
    """The request starts from the beginning: nothing of it came from memory in the end."""
    served, request = begin_to_load(is_stuck=False)
    served.poll()
    assert served.offload.call_in(request.blocks)
    served.forget()
    assert served.prefill(request) == 0
    assert served.offload.resumed_from(request.blocks) == {}


def test_what_was_called_in_and_evicted_is_loaded_again():
    """It waits for its turn with all of it on the device, and has nothing there when its turn comes."""
    served, request = begin_to_load(is_stuck=False)
    served.poll()
    assert served.offload.call_in(request.blocks)
    assert served.is_ready(request), "it is still on the device"
    served.forget()
    served.poll(10 * PATIENCE_S)
    served.wait(request)
    assert served.prefill(request) == BOUNDARY
    assert served.offload.resumed_from(request.blocks) == {"memory": BOUNDARY}


def test_who_is_not_to_wait_any_more_starts_with_what_is_there():
    """Even if the device loses that too."""
    served, request = begin_to_load(is_stuck=False)
    served.poll()
    assert served.offload.call_in(request.blocks)
    assert served.is_ready(request)
    served.offload.started(request.blocks)
    served.forget()
    served.poll()
    assert served.is_ready(request)


@pytest.mark.parametrize("has_tier", [False, True])
def test_what_was_evicted_before_its_turn_is_loaded(has_tier):
    """The device had it when the request was looked at, so nothing was to be loaded then."""
    served = Served(tiers=[NaiveTier(1 << 20)] if has_tier else ())
    served.serve_offloaded()
    request = served.begin(PROMPT)
    assert served.is_ready(request)
    if has_tier:
        served.lose_memory()
    else:
        served.forget()
    served.poll(10 * PATIENCE_S)
    assert not served.is_ready(request)
    served.wait(request)
    assert served.prefill(request) == BOUNDARY
    assert sum(served.offload.resumed_from(request.blocks).values()) == BOUNDARY


def test_nothing_is_lent_where_the_whole_request_has_no_room():
    """Room for its load, and for no more."""
    served = Served()
    served.serve_offloaded()
    pool = served.manager.pool
    [taken] = pool.take([pool.config.page_classes[0].num_blocks])
    pool.let_go(GroupIdx(0), taken[:BLOCKS])
    request = served.begin(PROMPT)
    assert served.offload.prepare(request.blocks, served.now) is Readiness.NO_ROOM
    pool.let_go(GroupIdx(0), taken[BLOCKS : BLOCKS + 1])
    served.now += 1
    assert served.offload.prepare(request.blocks, served.now) is Readiness.WAIT
    assert served.offload.holds_pages()


def test_while_others_have_all_pages_a_request_does_not_give_up_its_load():
    served = Served()
    served.serve_offloaded()
    served.forget()
    other = served.begin([token + 100 for token in PROMPT])
    served.wait(other)
    served.prefill(other)
    pool = served.manager.pool
    [rest] = pool.take([pool.config.page_classes[0].num_blocks - pool.usage()[0].held_pages])
    request = served.begin(PROMPT)
    for _ in range(3):
        assert served.offload.prepare(request.blocks, served.now) is Readiness.NO_ROOM
        served.poll(0.9 * PATIENCE_S)
    served.free(other)
    pool.let_go(GroupIdx(0), rest)
    served.forget()
    served.wait(request)
    assert served.prefill(request) == BOUNDARY


def test_a_load_for_which_there_was_no_room_leaves_its_chunks_to_others():
    """Memory holds no more than these, and gives them up for those of the next request."""
    served = Served(chunks_in_memory=BLOCKS)
    served.serve_offloaded()
    pool = served.manager.pool
    [taken] = pool.take([pool.config.page_classes[0].num_blocks])
    request = served.begin(PROMPT)
    assert served.offload.prepare(request.blocks, served.now) is Readiness.NO_ROOM
    served.abort(request)
    pool.let_go(GroupIdx(0), taken)
    before = served.stats.stored_chunks
    served.serve_offloaded([token + 100 for token in PROMPT])
    assert served.stats.stored_chunks == before + BLOCKS


def test_while_an_older_request_waits_for_pages_only_memory_is_filled():
    served = Served(tiers=[NaiveTier(1 << 20)])
    served.serve_offloaded()
    served.forget()
    request = served.begin(PROMPT)
    assert served.offload.prepare(request.blocks, served.now, may_borrow=False) is Readiness.NO_ROOM
    assert not list(served.held_by_transfers())
    served.poll()
    assert served.offload.prepare(request.blocks, served.now) is Readiness.WAIT
    assert len(list(served.held_by_transfers())) == BLOCKS


def test_what_comes_and_is_evicted_again_does_not_keep_a_request_waiting():
    """Memory holds a part of it, and the device forgets each part that comes."""
    served = Served(tiers=[NaiveTier(1 << 20)], chunks_in_memory=3)
    served.serve_offloaded()
    request = served.begin(PROMPT)
    for _ in range(50 * BLOCKS):
        served.forget()
        if served.is_ready(request):
            break
        served.poll(PATIENCE_S / 20)
    else:
        pytest.fail("it waits for ever")


def test_a_reset_while_it_is_loaded_publishes_nothing():
    served, request = begin_to_load(is_stuck=True)
    served.reset()
    served.worker.is_stuck = False
    served.wait(request)
    assert served.prefill(request) == 0


def test_a_store_in_flight_keeps_its_pages():
    served = Served()
    request = served.begin(PROMPT)
    served.wait(request)
    served.worker.is_stuck = True
    served.prefill(request)
    served.free(request)
    served.poll()
    assert len(list(served.held_by_transfers())) == BLOCKS
    served.worker.is_stuck = False
    served.settle()
    served.check_nothing_leaks()
