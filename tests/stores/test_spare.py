"""Memory that stores use again."""

from octavo.stores.spare import SpareMemory


def test_memory_is_lent_again_once_nobody_has_a_view_of_it():
    spare = SpareMemory()
    first = spare.lend(5000)
    part = first[100:200]
    first[:] = b"x" * 5000
    del first
    other = spare.lend(5000)
    other[:] = b"y" * 5000
    assert part == b"x" * 100  # a view of a part keeps all of it
    del part
    assert spare.lend(4097)[:4097] == b"x" * 4097
