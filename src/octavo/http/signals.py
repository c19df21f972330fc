"""The signals that ask a process to end, and who answers them from its start to its end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

SignalHandler: TypeAlias = Callable[[int, FrameType | None], object]


class EndingSignals:
    """Answers the signals that ask for an end, which may come at any time before a server serves.

    While a server starts, the first of them is a SystemExit: what is open is closed, and the process has ended well.
    From `hand_to` on the server answers. A second SIGHUP is none: the shell and the kernel both send one.
    """

    def __init__(self) -> None:
        self._answer: SignalHandler | None = None
        self._is_asked = False

    def hand_to(self, answer: SignalHandler) -> None:
        """`answer` takes the signals from now on. It gets one that came before, if the SystemExit was lost: Python
        ignores those in callbacks of its own."""
        self._answer = answer
        if self._is_asked:
            answer(signal.SIGTERM, None)

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler of each signal."""
        is_new = number != signal.SIGHUP or not self._is_asked
        self._is_asked = True
        if self._answer is not None:
            self._answer(number, frame)
        elif is_new:
            raise SystemExit(0)


@contextmanager
def ending_well() -> Iterator[EndingSignals]:
    """Within it, signals that ask for an end go to an `EndingSignals`."""
    signals = EndingSignals()
    with taking_signals(signals.take):
        yield signals


@contextmanager
def taking_signals(handler: SignalHandler) -> Iterator[None]:
    """Within it, the handler gets the signals that ask a process to end. SIGHUP, which a closed terminal sends, is one
    unless it is ignored, as under `nohup`, or has a handler. Elsewhere than in the main thread nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hangs_up = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    numbers = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
