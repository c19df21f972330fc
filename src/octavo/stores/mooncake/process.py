"""`LibraryProcess`: the process with Mooncake's library, as the loop's thread drives it.

A call of the library blocks, up to half a minute where a machine has died, and can neither be cancelled nor, at the end
of a process, be left behind. So a process of its own makes the calls. Bytes go through shared memory.
"""

import asyncio
import json
import mmap
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from octavo.stores.client import StoreDownError
from octavo.stores.mooncake.troubles import explain_start

_WORKER = Path(__file__).parent / "worker.py"
_LANES = 4
_START_S = 60.0
_STUCK_S = 120.0
"""Seconds without an answer after which a process is ended: the library's own limits are shorter."""
_MOST_LINE_BYTES = 4 << 20
_ENVIRONMENT = {
    "MC_LOG_LEVEL": "ERROR",
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",
    "MC_RPC_TIMEOUT_MS": "5000",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "5",
    "MC_TCP_STATUS_TIMEOUT_SEC": "5",
}
"""How soon the library gives up. A person's own variables have precedence."""


class LibraryProcess:
    """Starts with the first request, and again with the next one after it has ended. All on one loop."""

    def __init__(self, settings: Mapping[str, Any], *, buffer_bytes: int, most_value_bytes: int) -> None:
        pages = -(-max(buffer_bytes // _LANES, most_value_bytes) // mmap.PAGESIZE)
        self.lane_bytes = pages * mmap.PAGESIZE
        """The most bytes of one request."""
        self._file = os.memfd_create("octavo-mooncake")
        os.ftruncate(self._file, _LANES * self.lane_bytes)
        self._memory = mmap.mmap(self._file, _LANES * self.lane_bytes)
        self._settings = {**settings, "memory": self._file, "lane_bytes": self.lane_bytes, "lanes": _LANES}
        self._process: _Process | None = None
        self._starting: asyncio.Task[StoreDownError | None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._is_closed = False
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for lane in range(_LANES):
            self._free.put_nowait(lane)
        self._asked: dict[int, _Request] = {}
        """The open requests, by lane."""

    async def write(self, do: str, values: Sequence[tuple[str, bytes | memoryview]]) -> list[int]:
        """`write`, `replace`, `keep` or `keep_other`. By index: 0, or an error."""
        async with self._lane() as lane:
            at = lane * self.lane_bytes
            for _, value in values:
                self._memory[at : at + len(value)] = value
                at += len(value)
            return await self._ask(lane, do, [name for name, _ in values], [len(value) for _, value in values])

    async def read(self, do: str, asked: Sequence[tuple[str, int]]) -> list[bytes | int]:
        """`read` or `read_starts`, at most this many bytes of each. By index: bytes, or an error."""
        sizes = [num_bytes for _, num_bytes in asked]
        async with self._lane() as lane:
            codes = await self._ask(lane, do, [name for name, _ in asked], sizes)
            starts = accumulate(sizes[:-1], initial=lane * self.lane_bytes)
            return [
                self._memory[start : start + min(code, size)] if code >= 0 else code
                for start, size, code in zip(starts, sizes, codes, strict=True)
            ]

    async def start(self) -> None:
        """Raises StoreDownError unless the process runs and has joined the pool."""
        if self._is_closed:
            raise StoreDownError("it is closed")
        if self._starting is None or (self._starting.done() and self._process is None):
            self._starting = asyncio.create_task(self._start())
        if error := await asyncio.shield(self._starting):
            raise error

    async def close(self) -> None:
        """Lets the process leave the pool and end. If this is cancelled, the process is killed."""
        self._is_closed = True
        try:
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.gather(self._starting, return_exceptions=True)
            if self._process is not None and self._serving is not None:
                self._process.requests.write_eof()
                await self._serving
        finally:
            self._memory.close()
            os.close(self._file)

    # ---- helpers ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _lane(self) -> AsyncIterator[int]:
        await self.start()
        lane = await self._free.get()
        try:
            yield lane
        finally:
            if request := self._asked.get(lane):
                request.is_left = True  # the process uses the lane until it has answered
            else:
                self._free.put_nowait(lane)

    async def _ask(self, lane: int, do: str, names: Sequence[str], sizes: Sequence[int]) -> list[int]:
        process = self._process
        if process is None:
            raise StoreDownError("its process has ended")
        loop = asyncio.get_running_loop()
        request = _Request(loop.create_future(), loop.call_later(_STUCK_S, process.popen.kill))
        self._asked[lane] = request
        with suppress(OSError):  # the reader of answers notices too
            await process.ask({"lane": lane, "do": do, "names": names, "sizes": sizes})
        answer = await request.answer
        if "error" in answer:
            raise StoreDownError(answer["error"])
        codes: list[int] = answer["codes"]
        return codes

    async def _start(self) -> StoreDownError | None:
        process = await _Process.start(self._file)
        try:
            async with asyncio.timeout(_START_S):
                await process.ask(self._settings)
                answer = await process.answer() or {"error": "Mooncake's library has ended its process"}
        except TimeoutError:
            answer = {"error": f"Mooncake's library has not started within {_START_S:g} s"}
        except OSError as error:
            answer = {"error": str(error)}
        except BaseException:
            process.end()
            raise
        if "error" in answer:
            process.end()
            return explain_start(answer)
        self._process = process
        self._serving = asyncio.create_task(self._serve(process))
        return None

    async def _serve(self, process: "_Process") -> None:
        """Takes answers until the process ends."""
        try:
            while answer := await process.answer():
                self._settle(answer["lane"], answer)
        finally:
            self._process = None
            process.end()
            for lane in list(self._asked):
                self._settle(lane, {"error": "its process has ended"})

    def _settle(self, lane: int, answer: Mapping[str, Any]) -> None:
        """From now on the lane is its caller's, who gives it back. If the caller has left, it is free."""
        request = self._asked.pop(lane)
        request.timer.cancel()
        if request.is_left:
            self._free.put_nowait(lane)
        elif not request.answer.done():
            request.answer.set_result(answer)


@dataclass(slots=True)
class _Request:
    answer: asyncio.Future[Mapping[str, Any]]
    timer: asyncio.TimerHandle
    is_left: bool = False
    """Its caller has gone, and has not given back the lane."""


@dataclass(frozen=True, slots=True)
class _Process:
    popen: Popen[bytes]
    answers: asyncio.StreamReader
    requests: asyncio.StreamWriter

    @classmethod
    async def start(cls, memory: int) -> "_Process":
        ours, theirs = socket.socketpair()
        with theirs:
            answers, requests = await asyncio.open_connection(sock=ours, limit=_MOST_LINE_BYTES)
            return cls(_run_worker(theirs, memory), answers, requests)

    async def ask(self, what: Mapping[str, Any]) -> None:
        self.requests.write(json.dumps(what).encode() + b"\n")
        await self.requests.drain()

    async def answer(self) -> dict[str, Any] | None:
        """An answer; None when the process has ended, which may be in the middle of one."""
        try:
            line = await self.answers.readuntil(b"\n")
        except (OSError, asyncio.IncompleteReadError):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        self.requests.close()
        self.popen.kill()
        self.popen.wait()


def _run_worker(connection: socket.socket, memory: int) -> Popen[bytes]:
    return Popen(  # noqa: S603 - this Python, and a file of ours
        [sys.executable, "-P", str(_WORKER)],
        stdin=connection.fileno(),
        stdout=connection.fileno(),
        stderr=None if "MC_LOG_LEVEL" in os.environ else DEVNULL,
        pass_fds=[memory],
        start_new_session=True,  # Ctrl-C is for the engine
        env={**_ENVIRONMENT, **os.environ},
    )
