"""`SignalledServer`: a server that ends by itself where a signal asks it to."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from octavo.server.signals import taking_signals


class SignalledServer(uvicorn.Server):
    """Serves until the first signal. Open requests may go on for a while then; a second signal ends them too."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn takes no SIGHUP, and sends itself again what it took, so that the process has not ended well."""
        with taking_signals(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Asked to end. The shell and the kernel both tell of a closed terminal: that is no second request."""
        if self.should_exit and sig != signal.SIGHUP:
            self.hurry()
        self.should_exit = True

    def hurry(self) -> None:
        """Ends what is still open."""
        self.force_exit = True
