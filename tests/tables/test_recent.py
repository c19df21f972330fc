"""A mapping that forgets what is old, and never what is new."""

from octavo.tables import Recent


def test_the_newest_keys_are_there():
    recent = Recent(10)
    for number in range(95):
        recent.put([number], str(number))
        assert len(recent) <= 20
        assert all(recent.get(old) == str(old) for old in range(max(0, number - 9), number + 1))
    assert 0 not in recent
    assert recent.get(0) is None
    assert recent.has_forgotten


def test_what_is_put_together_stays_together():
    recent = Recent(8)
    chain = list(range(100, 120))
    recent.put(chain, "a")
    for number in range(7):
        recent.put([number], "b")
        assert all(name in recent for name in chain)
    assert not recent.is_young(chain[0])


def test_a_key_that_comes_again_has_its_new_value():
    recent = Recent(4)
    recent.put([1, 2, 3, 4], "old")
    recent.put([1], "new")
    assert recent.get(1) == "new"
    assert recent.get(2) == "old"
    recent.clear()
    assert 1 not in recent
    assert not recent.has_forgotten
