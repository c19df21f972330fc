"""Calls that nobody has to wait for."""

from concurrent.futures import CancelledError, ThreadPoolExecutor
from threading import Event

import pytest

from octavo.stores import Apart, StoredItem, read_all


def test_what_a_call_returns_or_raises():
    apart = Apart()
    assert apart.call(int, "11", base=2) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        apart.call(int, "none")


def test_closing_ends_who_waits():
    apart, begun, answered = Apart(), Event(), Event()

    def hang():
        begun.set()
        answered.wait()

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(apart.call, hang)
        begun.wait()
        apart.close()
        with pytest.raises(CancelledError):
            waiting.result()
    answered.set()


def test_a_reading_that_ends_too_soon_waits_for_no_read():
    """The reads go on until their keeper is closed."""
    begun, answered = Event(), Event()

    def read(item):
        if item.name == "slow":
            begun.set()
            answered.wait()

    items = [StoredItem(name, 1, None, "f", 0, False, "n", "shared") for name in ("quick", "slow")]

    def choose():
        yield items[0]
        yield items[1]
        begun.wait()
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            list(read_all(choose(), read))
    finally:
        answered.set()
