"""`SignalledServer`: a server that ends by itself where a signal asks it to."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask a server to end. SIGHUP, which a closed terminal sends, is one unless it is ignored, as
    under `nohup`, or has a handler."""
    hangs_up = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    return (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))


class SignalledServer(uvicorn.Server):
    """Serves until the first signal. Open requests may go on for a while then; a second signal ends them too."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn takes no SIGHUP, and sends itself again what it took, so that the process has not ended well."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in ending_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Asked to end. The shell and the kernel both tell of a closed terminal: that is no second request."""
        if self.should_exit and sig != signal.SIGHUP:
            self.hurry()
        self.should_exit = True

    def hurry(self) -> None:
        """Ends what is still open."""
        self.force_exit = True
