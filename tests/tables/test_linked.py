import pytest

from octavo.tables import LinkedLists


@pytest.fixture
def lists():
    """Two lists, and the numbers 2 to 6 in none."""
    lists = LinkedLists(2)
    for _ in range(5):
        lists.grow()
    return lists


def test_numbers_stand_in_order(lists):
    for number in (4, 2):
        lists.append(0, number)
    lists.insert_after(0, 3)
    lists.insert_after(4, 6)
    lists.append(1, 5)
    assert list(lists.items(0)) == [3, 4, 6, 2]
    assert list(lists.items(1)) == [5]
    assert lists.first(0) == 3
    lists.check_invariants()


def test_a_number_leaves_its_list(lists):
    for number in (2, 3, 4):
        lists.append(0, number)
    lists.remove(3)
    lists.remove(3)
    assert 3 not in lists
    assert list(lists.items(0)) == [2, 4]
    lists.append(1, 3)
    assert list(lists.items(1)) == [3]
    lists.check_invariants()


def test_a_number_moves_to_the_end_of_a_list(lists):
    for number in (2, 3, 4):
        lists.append(0, number)
    lists.append(1, 5)
    lists.move(0, 2)
    lists.move(1, 3)
    lists.move(1, 3)
    assert list(lists.items(0)) == [4, 2]
    assert list(lists.items(1)) == [5, 3]
    lists.check_invariants()


def test_an_empty_list_has_no_first(lists):
    assert lists.first(0) is None
