"""`EngineConnections`: the connections to engines. Each has one request at a time; an idle one takes the next.

httpx's own pool looks at all its connections for each idle one, whenever a request begins or ends. After 1,000 streams
that ended together nobody was answered for 40 s. Here a request begins and ends at one cost, however many there are.
"""

import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import cached_property
from typing import NamedTuple, TypeAlias

import httpx

_KEPT_IDLE_S = 4.0
"""Shorter than servers keep an idle connection: vLLM 5 s, Octavo 30 s."""
_AT_ONCE_S = 1.0
"""A connection that its server closed while a request was on its way there breaks off sooner."""
_KEPT_ALIVE = [
    (level, getattr(socket, name), value)
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    )
    if hasattr(socket, name)  # not all are on all systems
]
"""A connection whose machine has gone breaks off after 30 s of silence. It would stay for ever."""
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Of a connection that needs none: it costs no look for certificates."""
_Place: TypeAlias = tuple[bytes, bytes, int | None]
"""Scheme, host and port."""


class _Idle(NamedTuple):
    """A connection without a request."""

    connection: httpx.AsyncHTTPTransport
    since: float


class EngineConnections(httpx.AsyncBaseTransport):
    """Opens a connection where none is idle. Used from one event loop."""

    def __init__(
        self,
        *,
        hidden_headers: Collection[str] = (),
        kept_idle_s: float = _KEPT_IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hidden_headers`: of answers, in lower case; the client does not get them."""
        self._hidden_headers = hidden_headers
        self._kept_idle_s = kept_idle_s
        self._clock = clock
        self._limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=kept_idle_s)
        self._open: set[httpx.AsyncHTTPTransport] = set()
        self._idle: dict[_Place, deque[_Idle]] = {}
        """Of each place with idle connections, the one that has been idle for longest first."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, whose end leaves the connection idle. Connections that have been idle for long are closed.

        A server may close an idle connection while a request is on its way there. Such a request is sent once more, on
        a new connection."""
        await self._close_old()
        place, began = (request.url.raw_scheme, request.url.raw_host, request.url.port), self._clock()
        if (idle := self._find_idle(place)) is not None:
            try:
                return await self._ask(place, idle, request)
            except (httpx.ReadError, httpx.RemoteProtocolError):
                if self._clock() - began > _AT_ONCE_S:
                    raise
        return await self._ask(place, self._open_one(request.url.scheme), request)

    async def aclose(self) -> None:
        """Closes all connections."""
        self._idle.clear()
        while self._open:
            await self._open.pop().aclose()

    async def _ask(self, place: _Place, connection: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        try:
            answer = await connection.handle_async_request(request)
        except BaseException:
            await self._give_up(connection)
            raise
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        for name in self._hidden_headers:
            answer.headers.pop(name, None)
        answer.stream = _Answer(
            answer.stream,
            forget=lambda: _forget_stream(answer),
            give_back=lambda: self._give_back(place, connection),
            give_up=lambda: self._give_up(connection),
        )
        return answer

    def _find_idle(self, place: _Place) -> httpx.AsyncHTTPTransport | None:
        """The one that was used last, so that connections that are too many grow old."""
        idle = self._idle.get(place)
        if not idle:
            return None
        connection = idle.pop().connection
        if not idle:
            del self._idle[place]
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Trusts the authorities in SSL_CERT_FILE or SSL_CERT_DIR, and without these the public ones."""
        try:
            return httpx.create_ssl_context(trust_env=True)
        except OSError as error:
            raise httpx.ConnectError(f"no certificates in SSL_CERT_FILE or SSL_CERT_DIR: {error}") from error

    def _open_one(self, scheme: str) -> httpx.AsyncHTTPTransport:
        connection = httpx.AsyncHTTPTransport(
            verify=self._tls if scheme == "https" else _NO_TLS,
            trust_env=False,
            limits=self._limits,
            socket_options=_KEPT_ALIVE,
        )
        self._open.add(connection)
        return connection

    async def _give_back(self, place: _Place, connection: httpx.AsyncHTTPTransport) -> None:
        """A connection that has broken off is opened again by its next request."""
        if _has_unread(connection):
            await self._give_up(connection)
        elif connection in self._open:
            self._idle.setdefault(place, deque()).append(_Idle(connection, self._clock()))

    async def _give_up(self, connection: httpx.AsyncHTTPTransport) -> None:
        self._open.discard(connection)
        await connection.aclose()

    async def _close_old(self) -> None:
        """One by one: a caller that leaves meanwhile leaves the others to the next one."""
        too_old = self._clock() - self._kept_idle_s
        while (connection := self._take_idle_since(too_old)) is not None:
            await self._give_up(connection)

    def _take_idle_since(self, too_old: float) -> httpx.AsyncHTTPTransport | None:
        for place, idle in self._idle.items():
            if idle[0].since <= too_old:
                connection = idle.popleft().connection
                if not idle:
                    del self._idle[place]
                return connection
        return None


class _Answer(httpx.AsyncByteStream):
    """The body of an answer, and what is done at its end. A connection takes a request again only if the whole body was
    read, and its end too: a client may leave at any moment, and httpx's connection would then stay taken by the
    former request, and the next one wait for ever."""

    def __init__(
        self,
        body: httpx.AsyncByteStream,
        *,
        forget: Callable[[], None],
        give_back: Callable[[], Awaitable[None]],
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._body = body
        self._forget = forget
        self._give_back = give_back
        self._give_up = give_up
        self._is_whole = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece
        self._is_whole = True

    async def aclose(self) -> None:
        has_ended = False
        self._forget()
        try:
            await self._body.aclose()
            has_ended = self._is_whole
        finally:
            if has_ended:
                await self._give_back()
            else:
                await self._give_up()


def _forget_stream(answer: httpx.Response) -> None:
    """httpx's answers and their streams know each other, and the request with its body, which may have megabytes. They
    would stay until garbage is collected."""
    answer.stream = httpx.ByteStream(b"")


def _has_unread(connection: httpx.AsyncHTTPTransport) -> bool:
    """Whether more came than the answer, which httpcore would take for that to the next client's request. It is not
    public; where it is not known, the connection is not used again."""
    try:
        pool = connection._pool  # noqa: SLF001
        return any(one._connection._h11_state.trailing_data[0] for one in pool.connections)  # type: ignore[attr-defined]  # noqa: SLF001
    except AttributeError:
        return True
