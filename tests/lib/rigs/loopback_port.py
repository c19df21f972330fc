"""`LoopbackPort`: a TCP port of a proxy, which leaves no connection behind when it closes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LoopbackPort:
    """Made by `open`. What nobody has read when it closes is lost.

    asyncio's own server forgets a connection that it accepts as it closes.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.number: int = self._listener.getsockname()[1]
        self._tasks: set[asyncio.Future[None]] = set()
        self._accepted: list[socket.socket] = []
        self._writers: list[asyncio.StreamWriter] = []
        """All that ever were: a connection that is closing has no task."""

    @classmethod
    @asynccontextmanager
    async def open(cls, answer: Answer) -> AsyncIterator[Self]:
        port, loop = cls(answer), asyncio.get_running_loop()
        loop.add_reader(port._listener, port._accept)
        try:
            yield port
        finally:
            loop.remove_reader(port._listener)
            await port._close()

    async def join(self, connecting: Awaitable[Streams]) -> Streams:
        """A connection that ends with the port."""
        reader, writer = await connecting
        self._writers.append(writer)
        return reader, writer

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:  # the client has left
            return
        self._accepted.append(accepted)
        self._tasks.add(task := asyncio.ensure_future(self._serve(accepted)))
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        await self._answer(*await self.join(asyncio.open_connection(sock=accepted)))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        for sock in (self._listener, *self._accepted):
            sock.close()
