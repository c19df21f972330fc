"""What left which medium of late: the newest word of each medium counts, within bounds."""

from octavo.chunks import Departures, Leaving

A, B = (bytes([letter]) * 20 for letter in (1, 2))


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def how(departures, key):
    return [(found.medium, found.how) for found in departures.find(key)]


def test_each_medium_has_its_own_word_the_newest_last():
    clock = Clock()
    departures = Departures(clock)
    departures.note([A, B], "memory", Leaving.EVICTED, rule="lru", by="r1")
    clock.now += 1
    departures.note([A], "device", Leaving.EVICTED)
    assert how(departures, A) == [("memory", Leaving.EVICTED), ("device", Leaving.EVICTED)]
    (found,) = departures.find(B)
    assert (found.rule, found.by, found.at) == ("lru", "r1", 100.0)


def test_what_could_not_be_read_and_then_went_was_damaged():
    departures = Departures(Clock())
    departures.note([A], "disk", Leaving.UNREADABLE)
    assert how(departures, A) == [("disk", Leaving.UNREADABLE)]
    departures.note_gone([A, B], "disk", rule="its turn")
    assert how(departures, A) == [("disk", Leaving.DAMAGED)]
    assert how(departures, B) == [("disk", Leaving.EVICTED)]


def test_a_quota_is_not_called_an_eviction():
    departures = Departures(Clock())
    departures.note([A], "disk", Leaving.QUOTA)
    departures.note_gone([A], "disk", rule="its turn")
    assert how(departures, A) == [("disk", Leaving.QUOTA)]


def test_an_old_word_says_nothing_of_what_happens_now():
    clock = Clock()
    departures = Departures(clock)
    departures.note([A], "disk", Leaving.UNREADABLE)
    clock.now += 3600
    departures.note_gone([A], "disk", rule="its turn")
    assert how(departures, A) == [("disk", Leaving.EVICTED)]


def test_it_says_when_it_has_forgotten():
    departures = Departures(Clock())
    for number in range(3 * (1 << 15)):
        departures.note([number.to_bytes(20, "big")], "device", Leaving.EVICTED)
    assert departures.has_forgotten
    assert not departures.find((0).to_bytes(20, "big"))
    assert departures.find((3 * (1 << 15) - 1).to_bytes(20, "big"))
    departures.clear()
    assert not departures.has_forgotten


def test_media_are_bounded():
    departures = Departures(Clock())
    for number in range(40):
        departures.note([A], f"tier {number}", Leaving.EVICTED)
    assert len(departures.find(A)) == 16
