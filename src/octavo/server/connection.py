"""`Connection`: an HTTP connection with an idle timeout, which knows targets that are whole URLs too.

A connection without a running request is closed after the timeout, even if a part of a request has come. When there
are too many connections, those that have been idle for longest are closed.
"""

import asyncio
import resource
from heapq import nsmallest
from typing import Any
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from octavo.server.config import HttpConfig

SPARE_CONNECTIONS = 32
"""Connections beyond the limit that are still accepted, so that `/health` is answered when all others are busy."""
_FILES_FOR_OTHERS = 256
"""Open files kept for segments, sockets of events, spare connections and connections that are being closed."""
_MOST_FILES = 1 << 16
_SHARE = 32
"""One in so many idle connections is closed when there are too many, as looking for the idlest looks at all."""


def most_connections(config: HttpConfig) -> int:
    """The wanted number, or fewer if the process may not open that many files. Raises the limit of files if it can."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    if files != resource.RLIM_INFINITY and files < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        files = allowed
    if files == resource.RLIM_INFINITY:
        return config.most_connections
    for_clients = max(files // 2, files - _FILES_FOR_OTHERS) // config.files_per_connection
    return min(config.most_connections, for_clients)


class Connection(H11Protocol):
    """Checks its own idle time at intervals."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app: Any = _with_whole_urls(self.app)
        self._silent_since = self.loop.time()
        self._last_request: Any = None
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._look)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency - SPARE_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request. A fault after the answer has begun only closes the connection.

        The head may have been a request, which the application has begun to answer: this is its answer then, and for
        the application the client is gone."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        else:
            self.transport.close()

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
        """Closes the connections that have been idle for longest. If all are busy, none is closed."""
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
        silent = [c for c in others if c._is_silent]  # noqa: SLF001 - its like
        closed = nsmallest(len(silent) // _SHARE + 1, silent, key=lambda c: c._silent_since)  # noqa: SLF001
        for connection in closed:
            self.connections.discard(connection)
            connection.transport.abort()


def _with_whole_urls(app: ASGIApp) -> ASGIApp:
    """The application, for requests with a target in absolute form too (`GET http://host/path HTTP/1.1`)."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        _take_path_of_url(scope)
        await app(scope, receive, send)

    return call


def _take_path_of_url(scope: Scope) -> None:
    """Turns a target in absolute form into its path. Its host is the one that counts (RFC 9112, 3.2.2), so that a check
    of the `host` header checks it. In place, as uvicorn's access log reads the same scope."""
    raw: bytes = scope["raw_path"]
    scheme, mark, rest = raw.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        return
    host, _, path = rest.partition(b"/")
    scope["raw_path"] = b"/" + path
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    scope["headers"] = [(b"host", host), *((name, value) for name, value in scope["headers"] if name != b"host")]
