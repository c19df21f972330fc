"""The log of changes against a naive model: what was there before a step, and what is there after it."""

from hypothesis import given, strategies as st

from octavo.chunks import ChangeLog, OffloadKey

KEYS = [OffloadKey(bytes([number])) for number in range(3)]
DEEDS = st.lists(st.tuples(st.sampled_from(["store", "replace", "remove"]), st.sampled_from(KEYS)))
STEPS = st.lists(st.tuples(st.booleans(), DEEDS))


@given(steps=STEPS)
def test_a_step_is_told_by_its_net_effect(steps):
    log, there, version = ChangeLog(), {}, 0
    for log.is_announcing, deeds in steps:
        before, came = dict(there), set()
        for what, key in deeds:
            version += 1
            if what == "remove" and key in there:
                log.removed([key])
                del there[key]
                came.discard(key)
            elif what == "replace" and key in there:
                log.replaced([key])
                there[key] = version
            elif what == "store" and key not in there:
                log.stored([key])
                there[key] = version
                came.add(key)
        changes, was_cleared = log.take()
        assert not was_cleared
        assert set(changes.removed) == before.keys() - there.keys()
        told = {*changes.stored, *changes.changed}
        assert told == {key for key in there if there[key] != before.get(key)}
        assert set(changes.stored) >= (came if log.is_announcing else there.keys() - before.keys())


def test_what_was_cleared_before_is_told_apart():
    log = ChangeLog()
    log.stored(KEYS[:2])
    log.cleared()
    log.stored(KEYS[2:])
    changes, was_cleared = log.take()
    assert was_cleared
    assert (list(changes.removed), list(changes.stored)) == ([], KEYS[2:])
    assert log.take()[0].stored == []
