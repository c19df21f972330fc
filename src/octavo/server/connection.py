"""`Connection`: an HTTP connection that must say something. Nobody's silence costs others their turn.

A connection without a request under way is closed after a while, also if a part of a request has come. When there are
too many, the one that has been silent for longest goes.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_FILES_FOR_OTHERS = 256
"""Of those that the process may open: segments, sockets of events, connections that are about to be closed."""
_MOST_FILES = 1 << 16


def most_connections(wanted: int) -> int:
    """So many of the wanted ones as the process may have, after it has asked for as many files as it may."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    if files != resource.RLIM_INFINITY and files < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        files = allowed
    return wanted if files == resource.RLIM_INFINITY else min(wanted, max(files // 2, files - _FILES_FOR_OTHERS))


class Connection(H11Protocol):
    """Looks at itself now and then."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        self._last_request: Any = None
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._look)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _is_silent(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        now = self.loop.time()
        if not self._is_silent or self.cycle is not self._last_request:
            self._last_request, self._silent_since = self.cycle, now
        elif now - self._silent_since >= self.timeout_keep_alive:
            self.transport.close()
            return
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._look)

    def _make_room(self) -> None:
        """Where all others are busy, this one may stay, to be told so."""
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
        silent = [c for c in others if c._is_silent]  # noqa: SLF001 - its like
        if silent:
            longest = min(silent, key=lambda connection: connection._silent_since)  # noqa: SLF001
            self.connections.discard(longest)
            longest.transport.abort()
