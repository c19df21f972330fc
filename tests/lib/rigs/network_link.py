"""`NetworkLink`: a TCP port before a server, whose address is a URL or `ipc://PATH`. The link can be cut and healed.

With several servers, each connection leads to the next one of them.
"""

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from rigs.loopback_port import LoopbackPort

_CHUNK_BYTES = 64 << 10


class NetworkLink:
    """Bytes pass both ways as they come, until the link is cut."""

    def __init__(self, *targets):
        self.targets = targets
        self._is_down = False
        self._slips_in = b""
        self._num_losses = 0
        self._sockets = set()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._is_ready.wait()

    def freeze(self):
        """Nothing passes any more, and neither side is told: what is sent meanwhile arrives when the link heals."""
        self._do(self._passes.clear)

    def lose_connections(self):
        """Nothing passes through those that there are, as where a firewall has forgotten them. New ones work."""
        self._num_losses += 1

    def slip_in(self, data):
        """These bytes come to a client before the next ones of the server, once."""
        self._slips_in = data

    def break_off(self):
        """Connections are reset, and so is each new one."""
        self._do(self._reset_all)

    def heal(self, *targets):
        """Bytes pass again, maybe to other servers."""
        if targets:
            self.targets = targets
        self._do(self._heal)

    def close(self):
        self._do(self._ends.set)
        self._thread.join()

    # ---- on the thread ------------------------------------------------------------------------------------------

    def _do(self, function, *args):
        async def call():
            function(*args)

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _reset_all(self):
        self._is_down = True
        for writer in list(self._sockets):
            _reset(writer)

    def _heal(self):
        self._is_down = False
        self._passes.set()

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._passes, self._ends = asyncio.Event(), asyncio.Event()
        self._passes.set()
        async with LoopbackPort.open(self._join) as self._loopback:
            self.port = self._loopback.number
            self.url = f"http://127.0.0.1:{self.port}"
            self._is_ready.set()
            await self._ends.wait()

    async def _join(self, reader, writer):
        ends = [writer]
        self._sockets.add(writer)
        try:
            await self._passes.wait()
            if self._is_down:
                raise ConnectionResetError
            far_reader, far_writer = await self._loopback.join(self._connect())
            ends.append(far_writer)
            self._sockets.add(far_writer)
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._pump(reader, far_writer))
                both_ways.create_task(self._pump(far_reader, writer, is_answer=True))
        except* OSError:  # a side has ended the connection, or nobody listens
            for end in ends:
                _reset(end)
        finally:
            for end in ends:
                self._sockets.discard(end)
                end.close()

    def _connect(self):
        first, *others = self.targets
        self.targets, target = (*others, first), urlsplit(first)
        if target.scheme == "ipc":
            return asyncio.open_unix_connection(target.path)
        return asyncio.open_connection(target.hostname, target.port)

    async def _pump(self, reader, writer, *, is_answer=False):
        num_losses = self._num_losses
        while data := await reader.read(_CHUNK_BYTES):
            await self._passes.wait()
            if num_losses < self._num_losses:
                await self._ends.wait()
            if is_answer:
                data, self._slips_in = self._slips_in + data, b""
            writer.write(data)
            await writer.drain()
        await self._passes.wait()
        writer.write_eof()


def _reset(writer):
    """The peer is told that the connection is no more."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
