"""`SignalledServer`: a server that ends by itself where a signal asks it to."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket
from types import FrameType

from octavo.http.server import HttpServer
from octavo.http.signals import taking_signals
from octavo.units import counted

_logger = logging.getLogger(__name__)
_OF_GIVEN_UP_REQUESTS = ("ASGI callable returned without completing response", "Cancel %s running task(s)")
"""How Uvicorn's lines begin about requests that are given up at the end, which are no errors."""


class SignalledServer(HttpServer):
    """Serves until the first signal. Open requests may go on for a while then; a second signal ends them too."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn takes no SIGHUP, and sends itself again what it took, so that the process has not ended well."""
        with taking_signals(self.handle_exit):
            yield

    def tell_end(self, num_open: int, patience_s: float) -> None:
        """Says what the end waits for, and how to end at once."""
        if not num_open:
            _logger.info("ends: no request is open")
            return
        what, them = counted(num_open, "request"), "it" if num_open == 1 else "them"
        _logger.info("ends: waits up to %g s for %s; a second Ctrl-C stops %s", patience_s, what, them)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Ends what is open. What is given up ends later, so its lines are left out from now on."""
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Asked to end. The shell and the kernel both tell of a closed terminal: that is no second request."""
        if self.should_exit and sig != signal.SIGHUP:
            self.hurry()
        self.should_exit = True

    def hurry(self) -> None:
        """Ends what is still open."""
        self.force_exit = True


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_GIVEN_UP_REQUESTS)
