"""What was given up is freed little by little, and to the end."""

from collections import deque

from octavo.tables.discards import Discards


def test_a_call_frees_no_more_than_it_is_told_to():
    whole, lists, queue = dict.fromkeys(range(100)), list(range(7)), deque(range(50))
    discards = Discards()
    discards.add([whole, lists, queue])
    while discards:
        before = len(whole) + len(lists) + len(queue)
        discards.let_go(9)
        assert before - 9 <= len(whole) + len(lists) + len(queue)
    assert len(whole) <= 9


def test_nothing_to_free():
    discards = Discards()
    discards.add([{}, []])
    assert not discards
