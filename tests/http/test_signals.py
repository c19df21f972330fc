"""Who answers a signal that asks for an end: nobody's callback can swallow it."""

import signal
import weakref

import pytest

from octavo.http import ending_well


class Thing:
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_callback_is_told_to_the_server():
    asked = []
    with ending_well() as signals:
        thing = Thing()
        watch = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing  # Python ignores what callbacks raise
        assert watch() is None
        signals.hand_to(lambda number, _: asked.append(number))
        signal.raise_signal(signal.SIGINT)
    assert asked == [signal.SIGTERM, signal.SIGINT]


def test_handlers_are_as_before():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(SystemExit) as ended, ending_well():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 0
    assert [signal.getsignal(number) for number in numbers] == before
