"""`FaultProxy`: an HTTP proxy before a real server, which does to some answers what networks and servers do to them."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from rigs.loopback_port import LoopbackPort

_JOIN_S = 10


class Request(NamedTuple):
    """What a client has asked for."""

    method: str
    target: str
    head: list[bytes]
    body: bytes

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type=" in self.target

    @property
    def is_read(self) -> bool:
        return self.method == "GET" and not self.is_listing

    @property
    def is_write(self) -> bool:
        return self.method == "PUT"


class Answer(NamedTuple):
    head: list[bytes]
    """The status line first."""
    body: bytes


class Exchange(NamedTuple):
    """One request, and the ways to answer it."""

    request: Request
    forward: Callable[[], Awaitable[Answer]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, answer: Answer, *, num_bytes: int | None = None) -> None:
        """With its whole head, and so many bytes of its body."""
        head = [line for line in answer.head if not line.lower().startswith((b"content-length", b"connection"))]
        head += [b"Content-Length: %d" % len(answer.body), b"Connection: close"]
        self.writer.write(b"\r\n".join([*head, b"", answer.body[:num_bytes]]))

    def reset(self) -> None:
        """The client is told that the connection is no more."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Fault = Callable[[Exchange], Awaitable[None]]


async def pass_on(exchange: Exchange) -> None:
    exchange.send(await exchange.forward())


def refuse(status: str, *headers: str, code: str = "InternalError") -> Fault:
    """Answers with an error of S3."""

    async def answer(exchange: Exchange) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>"
        exchange.send(Answer([line.encode() for line in (f"HTTP/1.1 {status}", *headers)], body.encode()))

    return answer


def answer_together(number: int) -> Fault:
    """Answers no request before so many are under way."""
    barrier = asyncio.Barrier(number)

    async def answer(exchange: Exchange) -> None:
        await barrier.wait()
        await pass_on(exchange)

    return answer


async def vanish(exchange: Exchange) -> None:
    """A server that is down."""
    exchange.reset()


async def reset_in_the_middle(exchange: Exchange) -> None:
    answer = await exchange.forward()
    exchange.send(answer, num_bytes=len(answer.body) // 2)
    await exchange.writer.drain()
    exchange.reset()


async def end_too_soon(exchange: Exchange) -> None:
    """Fewer bytes than its head says."""
    answer = await exchange.forward()
    exchange.send(answer, num_bytes=len(answer.body) // 2)


async def shorten(exchange: Exchange) -> None:
    """Fewer bytes than were asked for, and the head says so."""
    answer = await exchange.forward()
    exchange.send(answer._replace(body=answer.body[: len(answer.body) // 2]))


async def give_another_range(exchange: Exchange) -> None:
    """The head says that it is another one."""
    answer = await exchange.forward()
    head = [
        b"Content-Range: bytes 1-%d/%d" % (len(answer.body), len(answer.body) + 1)
        if line.lower().startswith(b"content-range")
        else line
        for line in answer.head
    ]
    exchange.send(Answer(head, answer.body))


async def give_other_bytes(exchange: Exchange) -> None:
    """As many as were asked for, from elsewhere."""
    answer = await exchange.forward()
    exchange.send(answer._replace(body=answer.body[1:] + answer.body[:1]))


async def drip(exchange: Exchange) -> None:
    """Some bytes, and then no more until the client gives up."""
    answer = await exchange.forward()
    exchange.send(answer, num_bytes=1)
    await exchange.reader.read()


async def say_nothing(exchange: Exchange) -> None:
    await exchange.reader.read()


class FaultProxy:
    """Between one server and whoever asks at `endpoint`. A context manager."""

    def __init__(self, server: str) -> None:
        self.requests: list[Request] = []
        """All so far."""
        self._server = urlsplit(server)
        self._fault: Fault = pass_on
        self._hits: Callable[[Request], bool] = lambda request: True
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._listening = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._runner.run, args=(self._serve(),), daemon=True)

    def break_with(self, fault: Fault, hits: Callable[[Request], bool] = lambda request: True) -> None:
        """From now on, for requests that it hits."""
        self._hits, self._fault = hits, fault

    def heal(self) -> None:
        self._fault = pass_on

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(_JOIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive()
        self._runner.close()

    # ---- on the thread ------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        async with LoopbackPort.open(self._answer) as self._port:
            self.endpoint = f"http://127.0.0.1:{self._port.number}"
            self._listening.set()
            await self._ended.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head, body = await _read_message(reader)
            method, target, _ = head[0].decode().split(" ", 2)
            request = Request(method, target, head, body)
            self.requests.append(request)
            fault = self._fault if self._hits(request) else pass_on
            await fault(Exchange(request, lambda: self._forward(request), reader, writer))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has given up
        finally:
            writer.close()

    async def _forward(self, request: Request) -> Answer:
        reader, writer = await self._port.join(asyncio.open_connection(self._server.hostname, self._server.port))
        try:
            head = [line for line in request.head if not line.lower().startswith(b"connection")]
            writer.write(b"\r\n".join([*head, b"Connection: close", b"", request.body]))
            return Answer(*await _read_message(reader))
        finally:
            writer.close()


async def _read_message(reader: asyncio.StreamReader) -> tuple[list[bytes], bytes]:
    """The lines of its head, and its body; what comes in chunks has a head that says so no more."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])}
    if fields.get(b"transfer-encoding") != b"chunked":
        return head, await reader.readexactly(int(fields.get(b"content-length", b"0")))
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    return [line for line in head if not line.lower().startswith(b"transfer-encoding")], b"".join(parts)
