"""One HTTP request and its answer, below the routes: bodies within bounds, events, and clients that go away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TypeAlias, TypeVar

from starlette.types import Message, Receive, Scope, Send

from octavo.http.admission import Ticket
from octavo.http.body_parts import check_parts
from octavo.http.config import HttpConfig
from octavo.http.errors import ApiError
from octavo.http.gate import TENANT
from octavo.http.whole_events import EVENT_STREAM, ends_event, is_event_stream, whole_events

T = TypeVar("T")
Headers: TypeAlias = list[tuple[bytes, bytes]]

_JSON = (b"content-type", b"application/json")
_EVENTS = [(b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode()), (b"cache-control", b"no-cache")]
GIVE_UP = "octavo.give_up"
"""The key in a request's scope for a function that ends its connection at once. What is unsent is dropped."""
IGNORED_FIELDS = "x-octavo-ignored-fields"
"""The header of an answer that names the request's fields without effect."""
RETAIN = "x-octavo-retain"
"""The header of a request that says how long its prompt will be wanted."""
DONE = b"data: [DONE]\n\n"
_LINE_ENDS = {character.encode(): f"\\u{ord(character):04x}".encode() for character in "\x85\u2028\u2029"}
"""By character: its escape in JSON."""
_MOST_BYTES_AT_ONCE = 256 << 10
_LINGER_S = 5.0
"""For the rest of a body that is refused."""


def event(message: bytes) -> bytes:
    """One server-sent event of JSON. Many clients read it line by line, and end a line where Unicode may (`iter_lines`
    of httpx does), so the characters that JSON does not escape by itself are escaped here."""
    if not message.isascii():
        for character, escape in _LINE_ENDS.items():
            message = message.replace(character, escape)
    return b"data: " + message + b"\n\n"


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Exchange:
    """Receives from a client and sends to it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, config: HttpConfig) -> None:
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        """The request's."""
        self.tenant: str | None = scope.get(TENANT)
        self._receive = receive
        self._send = send
        self._give_up: Callable[[], None] = scope.get(GIVE_UP, lambda: None)
        self._config = config
        self.ignored_fields: list[str] = []
        """Fields of the request's body that have no effect; the answer's head names them."""
        self.has_begun = False
        """Whether the answer's status is out, so that it cannot change any more."""
        self.status = 0
        self._is_in_event = False
        """Whether the answer has so far only the beginning of an event at its end."""
        self._is_body_read = False

    async def read_body(self, ticket: Ticket) -> bytearray:
        """The body, or the refusal as soon as it is known to be too long. It holds no more than can be decoded soon."""
        most = self._config.max_body_bytes
        declared = self.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                async for piece in self._body_pieces():
                    if len(body) + len(piece) > most:
                        raise _too_large(most)
                    ticket.add_bytes(len(piece))
                    body += piece
        except TimeoutError:
            raise ApiError(HTTPStatus.REQUEST_TIMEOUT, "the body took too long to arrive") from None
        check_parts(body, most_bytes=most)
        return body

    async def run(self, answering: Awaitable[T]) -> T:
        """Waits for this, once the body is read, and gives it up when the client goes away: ClientGoneError."""
        work = asyncio.ensure_future(answering)
        gone = asyncio.ensure_future(self._wait_until_gone())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientGoneError
            return work.result()
        finally:
            for task in (work, gone):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
            del work, gone, task  # else an error, which knows this frame, keeps the body until garbage is collected

    async def answer(self, message: bytes) -> None:
        """The whole answer, as JSON. The request is open until most of it is taken."""
        await self._begin(HTTPStatus.OK, [_JSON, (b"content-length", str(len(message)).encode())])
        await self._push(message)
        await self._push(b"", is_last=True)

    async def refuse(self, error: ApiError) -> None:
        """The answer that is none; within a stream that has begun, its last event."""
        if self.has_begun:
            end = b"\n\n" if self._is_in_event else b""
            await self._push(end + event(error.body) + DONE, is_last=True)
            return
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        headers += [_JSON, (b"content-length", str(len(error.body)).encode())]
        if error.status in (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT):
            headers.append((b"connection", b"close"))  # more of the body may come
        await self._begin(error.status, headers)
        await self._push(error.body)
        if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            await self._skip_body()
        await self._push(b"", is_last=True)

    async def stream(self, events: AsyncIterator[bytes]) -> None:
        """Events, as they come."""
        await self._begin(HTTPStatus.OK, _EVENTS)
        async for piece in events:
            await self._push(piece)
        await self._push(DONE, is_last=True)

    async def relay(self, status: int, headers: Headers, pieces: AsyncIterator[bytes]) -> None:
        """Another server's answer, as it comes; its status may be one that no standard has. Events come whole, so that
        a refusal can follow one."""
        await self._begin(status, headers)
        is_events = _is_events(headers)
        async for piece in whole_events(pieces) if is_events else pieces:
            self._is_in_event = is_events and not ends_event(piece)
            await self._push(piece)
        await self._push(b"", is_last=True)

    async def _begin(self, status: int, headers: Headers) -> None:
        self.has_begun, self.status = True, status
        if self.ignored_fields:
            headers = [*headers, (IGNORED_FIELDS.encode(), ", ".join(self.ignored_fields).encode())]
        await self._transmit({"type": "http.response.start", "status": int(status), "headers": headers})

    async def _push(self, piece: bytes, *, is_last: bool = False) -> None:
        """In small parts, each of which the client has the time for: a long answer over a slow line takes minutes.
        Others have their turn in between: many pieces may be there at once, and that the client is gone shows only
        then. asyncio logs a line for each piece that is written to nobody."""
        num_whole = max(0, len(piece) - 1) // _MOST_BYTES_AT_ONCE * _MOST_BYTES_AT_ONCE
        for start in range(0, num_whole, _MOST_BYTES_AT_ONCE):
            part = piece[start : start + _MOST_BYTES_AT_ONCE]
            await self._transmit({"type": "http.response.body", "body": part, "more_body": True})
        await self._transmit({"type": "http.response.body", "body": piece[num_whole:], "more_body": not is_last})
        if not is_last:
            await asyncio.sleep(0)

    async def _transmit(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._config.send_timeout_s):
                await self._send(message)
        except TimeoutError:
            self._give_up()
            await asyncio.sleep(0)  # in which the server notices it
            raise ClientGoneError from None

    async def _body_pieces(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            self._is_body_read = not message.get("more_body", False)
            yield message.get("body", b"")
            if self._is_body_read:
                return

    async def _skip_body(self) -> None:
        """Takes the rest of a body, and drops it. To close a connection on which bytes are unread is to reset it: who
        still sends may never see the answer, only that the connection broke."""
        if self._is_body_read:
            return
        with suppress(TimeoutError, ClientGoneError):
            async with asyncio.timeout(_LINGER_S):
                async for _ in self._body_pieces():
                    pass

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _is_events(headers: Headers) -> bool:
    """Whether an answer is a stream of events, and not compressed."""
    told = dict(headers)
    return is_event_stream(told.get(b"content-type", b"").decode("latin-1")) and b"content-encoding" not in told


def _too_large(most: int) -> ApiError:
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may be {most:,} bytes long and no longer")
