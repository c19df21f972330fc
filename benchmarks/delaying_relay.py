"""`DelayingRelay`: a TCP port before a server, a given time away from it."""

import asyncio
import threading
from contextlib import suppress
from typing import Self

_CHUNK_BYTES = 256 << 10
_MOST_UNDER_WAY = 256


class DelayingRelay:
    """Each byte takes half a round trip, however many follow; opening a connection takes none. A context manager."""

    def __init__(self, port: int, round_trip_s: float) -> None:
        self.port = 0
        self._target = port
        self._delay_s = round_trip_s / 2
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        with suppress(asyncio.CancelledError):  # the relay ends
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_UNDER_WAY)

        async def deliver() -> None:
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        delivery = asyncio.ensure_future(deliver())
        try:
            while data := await reader.read(_CHUNK_BYTES):
                await under_way.put((self._loop.time() + self._delay_s, data))
            await under_way.put((0.0, b""))
            await delivery
        except ConnectionError:
            delivery.cancel()
        finally:
            writer.close()
