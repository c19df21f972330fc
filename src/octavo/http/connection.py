"""`Connection`: an HTTP connection with an idle timeout, which knows targets that are whole URLs too.

A connection without a running request is closed after the timeout, even if a part of a request has come. When there
are too many connections, those that have been idle for longest are closed.

A client that takes no byte of what waits for it is given up after another timeout, whether its request is still running
or not: to close a connection is to wait until all is taken.

A body may come in chunks of a byte, each of which takes as long as a large one. So a connection reads little at a time,
and takes a bounded number of chunks: fewer once the request is answered, as one without a key is at once.
"""

import asyncio
import resource
from contextlib import suppress
from heapq import nsmallest
from typing import Any
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from octavo.errors import InputError
from octavo.http.config import HttpConfig
from octavo.http.exchange import GIVE_UP

SPARE_CONNECTIONS = 32
"""Connections beyond the limit that are still accepted, so that `/health` is answered when all others are busy."""
_FILES_FOR_OTHERS = 256
"""Open files kept for segments, sockets of events, spare connections and connections that are being closed."""
_FEWEST_FILES = 64
_MOST_FILES = 1 << 16
_SHARE = 32
"""When there are too many connections, one in 32 of the idle ones is closed, as looking for the idlest looks at all."""

_MOST_READ_BYTES = 16 << 10
"""In one read, after which others have their turn. In chunks of a byte it takes some 30 ms."""
_MOST_HEAD_BYTES = 32 << 10
_MOST_CHUNKS = 1 << 16
"""In one body."""
_MOST_UNREAD_CHUNKS = 1000
"""In one body, once nobody reads it."""


def check_files() -> None:
    """InputError where the process may open so few files that a library would end it in the middle of its work."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < _FEWEST_FILES:
        raise InputError(
            f"this process may open {most} files, and a server needs {_FEWEST_FILES} at least: raise the hard limit of "
            "open files (ulimit -Hn)"
        )


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

    def __init__(self, *arguments: Any, send_timeout_s: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.conn = _FewChunks(h11.SERVER, _MOST_HEAD_BYTES)
        self._send_timeout_s = send_timeout_s
        self._look_every_s = min(self.timeout_keep_alive, send_timeout_s)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        with suppress(AttributeError):  # asyncio's own has it
            transport.max_size = _MOST_READ_BYTES  # type: ignore[attr-defined]
        self.app: Any = _prepared(self.app, transport)
        self._silent_since = self._taken_at = self.loop.time()
        self._unsent_bytes = 0
        """For the client, at the last look."""
        self._last_request: Any = None
        self._timer = self.loop.call_later(self._look_every_s, self._look)
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

    def _should_upgrade(self) -> bool:
        """Never, and it is no news: clients such as Java's offer HTTP/2 with each request."""
        return False

    def resume_writing(self) -> None:
        """The client has taken most of what waited for it."""
        self._taken_at = self.loop.time()
        super().resume_writing()

    @property
    def _is_silent(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        now = self.loop.time()
        if self._has_stalled(now):
            self.transport.abort()
            return
        if not self._is_silent or self.cycle is not self._last_request:
            self._last_request, self._silent_since = self.cycle, now
        elif now - self._silent_since >= self.timeout_keep_alive:
            self.transport.close()
        self._timer = self.loop.call_later(self._look_every_s, self._look)

    def _has_stalled(self, now: float) -> bool:
        """Whether the client has taken nothing for too long. Where nothing more is written, what waits only shrinks."""
        before, self._unsent_bytes = self._unsent_bytes, self.transport.get_write_buffer_size()
        is_written = not (self.flow.write_paused or self._is_silent or self.transport.is_closing())
        if is_written or not self._unsent_bytes or self._unsent_bytes != before:
            self._taken_at = now
        return now - self._taken_at >= self._send_timeout_s

    def _make_room(self) -> None:
        """Closes the connections that have been idle for longest. If all are busy, none is closed."""
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
        silent = [c for c in others if c._is_silent]  # noqa: SLF001 - its like
        closed = nsmallest(len(silent) // _SHARE + 1, silent, key=lambda c: c._silent_since)  # noqa: SLF001
        for connection in closed:
            self.connections.discard(connection)
            connection.transport.abort()


class _FewChunks(h11.Connection):
    """Refuses a body in too many chunks, and skips empty lines before a request: some clients end a body with one
    (RFC 9112, 2.2)."""

    _num_chunks = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while self.their_state is h11.IDLE and self.trailing_data[0].startswith(b"\r\n"):
            self._receive_buffer.maybe_extract_at_most(2)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._num_chunks = 0
        elif isinstance(event, h11.Data) and event.chunk_start:
            self._num_chunks += 1
            most = _MOST_UNREAD_CHUNKS if self.our_state is h11.DONE else _MOST_CHUNKS
            if self._num_chunks > most:
                raise h11.RemoteProtocolError(f"the body comes in more than {most:,} chunks")
        return event


def _prepared(app: ASGIApp, transport: asyncio.Transport) -> ASGIApp:
    """The application, for requests with a target in absolute form too (`GET http://host/path HTTP/1.1`). It can end
    the connection at once."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        _take_path_of_url(scope)
        scope[GIVE_UP] = transport.abort
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
