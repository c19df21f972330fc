"""The log of changes against a naive model: what was there before a step, and what is there after it."""

from hypothesis import given, strategies as st

from octavo.chunks import ChangeLog, OffloadKey

KEYS = [OffloadKey(bytes([number])) for number in range(3)]
STEPS = st.lists(st.lists(st.tuples(st.sampled_from(["store", "replace", "remove", "anew"]), st.sampled_from(KEYS))))


@given(steps=STEPS)
def test_a_step_is_told_by_its_net_effect(steps):
    log, there, version = ChangeLog(), {}, 0
    for step in steps:
        before, anew = dict(there), set()
        for what, key in step:
            version += 1
            if what == "remove" and key in there:
                log.removed([key])
                del there[key]
                anew.discard(key)
            elif what == "anew" and key not in there:
                log.told_anew([key])
                there[key] = version
                anew.add(key)
            elif what == "replace" and key in there:
                log.replaced([key])
                there[key] = version
            elif what == "store" and key not in there:
                log.stored([key])
                there[key] = version
        changes, was_cleared = log.take()
        assert not was_cleared
        assert set(changes.removed) == before.keys() - there.keys()
        told = {*changes.stored, *changes.changed}
        assert told == {key for key in there if there[key] != before.get(key)} | anew
        assert set(changes.stored) >= (there.keys() - before.keys()) | anew


def test_what_was_cleared_before_is_told_apart():
    log = ChangeLog()
    log.stored(KEYS[:2])
    log.cleared()
    log.stored(KEYS[2:])
    changes, was_cleared = log.take()
    assert was_cleared
    assert (list(changes.removed), list(changes.stored)) == ([], KEYS[2:])
    assert log.take()[0].stored == []
