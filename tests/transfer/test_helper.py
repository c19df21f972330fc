from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, get_ident

import pytest
from hypothesis import given, strategies as st

from octavo.transfer.helper import Helper


@given(count=st.integers(0, 50), is_closed=st.booleans())
def test_every_part_is_done_once(count, is_closed):
    helper, done = Helper("helper"), []
    if is_closed:
        helper.close()
    helper.share(done.append, range(count))
    assert sorted(done) == list(range(count))
    helper.close()


def test_two_threads_work_at_once():
    helper, both = Helper("helper"), Barrier(2)
    helper.share(lambda _: both.wait(300), range(2))
    helper.close()


def test_a_busy_helper_is_not_waited_for():
    helper, begun, gate, done = Helper("helper"), Barrier(3), Event(), []

    def held(_):
        begun.wait(300)
        assert gate.wait(300)

    with ThreadPoolExecutor(1) as other:
        first = other.submit(helper.share, held, range(2))
        begun.wait(300)
        helper.share(done.append, range(5))
        assert sorted(done) == list(range(5))
        assert not first.done()
        gate.set()
        first.result(60)
    helper.close()


@pytest.mark.parametrize("is_here", [True, False])
def test_after_an_error_nobody_works_on_a_part(is_here):
    """Neither thread has begun a part that it has not ended, and what nobody began stays as it is."""
    helper, both, caller, ended = Helper("helper"), Barrier(2), get_ident(), []

    def work(part):
        both.wait(300)
        if (get_ident() == caller) == is_here:
            raise LookupError("gone")
        ended.append(part)

    with pytest.raises(LookupError, match="gone"):
        helper.share(work, range(2))
    assert len(ended) == 1
    helper.close()


def test_a_missing_part_is_an_error_like_others():
    """An IndexError of the work is not taken for the end of the parts."""
    helper = Helper("helper")
    with pytest.raises(IndexError):
        helper.share(lambda part: [][part], range(4))
    helper.close()
