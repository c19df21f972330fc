"""What was given up is freed little by little, and to the end."""

from collections import deque

from octavo.tables.discards import Discards


def test_a_call_frees_no_more_than_it_is_told_to():
    whole, lists, queue = dict.fromkeys(range(100)), list(range(7)), deque(range(50))
    discards = Discards()
    discards.add([whole, lists, queue])
    while discards:
        before = len(whole) + len(lists) + len(queue)
        discards.free(9)
        assert before - 9 <= len(whole) + len(lists) + len(queue)
    assert len(whole) <= 9


def test_keys_are_told_while_they_are_freed():
    parts = [dict.fromkeys(range(10)), dict.fromkeys(range(10, 15))]
    discards = Discards()
    discards.add(parts)
    taken = [discards.take_keys(4) for _ in range(5)]
    assert [len(keys) for keys in taken] == [4, 4, 4, 3, 0]
    assert sorted(key for keys in taken for key in keys) == list(range(15))
    assert not discards


def test_nothing_to_free():
    discards = Discards()
    discards.add([{}, []])
    assert not discards
