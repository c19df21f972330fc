"""The lanes of the process with Mooncake's library: whenever a caller leaves, a lane serves one request at a time.

The program in the process is the test's own: what it reads of a name is the name.
"""

import asyncio
import gc
import os

import pytest

from octavo.stores.client import StoreDownError
from octavo.stores.loop import LoopThread
from octavo.stores.mooncake.process import LibraryProcess

LANES = 4
NAME_BYTES = 8
LONG_NAME = "x" * (1 << 20)
"""More than a socket takes while nobody reads it."""
PROGRAM = """
import json, mmap, os, sys

settings = json.loads(sys.stdin.readline())
memory = mmap.mmap(settings["memory"], 0)
told, goes_on = (os.open(settings[name], os.O_RDWR) for name in ("told", "goes_on"))
print(json.dumps({"is_ready": True}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    at = request["lane"] * settings["lane_bytes"]
    for name, size in zip(request["names"], request["sizes"]):
        memory[at : at + size] = name[:size].encode()
        at += size
    answer = json.dumps({"lane": request["lane"], "codes": request["sizes"]})
    if request["do"] == "die":
        sys.exit(print(answer[:9], end="", flush=True))
    print(answer, flush=True)
    os.write(told, b".")
    if request["do"] == "pause":
        os.read(goes_on, 1)
os.write(told, b"left")
"""


class Library(LibraryProcess):
    """The process, and the pipes over which its program tells that it has answered, and is told to go on."""

    def __init__(self, folder):
        pipes = {name: folder / name for name in ("told", "goes_on")}
        for path in pipes.values():
            os.mkfifo(path)
        self.told, self.goes_on = (os.open(path, os.O_RDWR) for path in pipes.values())
        settings = {name: str(path) for name, path in pipes.items()}
        super().__init__(settings, buffer_bytes=LANES * NAME_BYTES, most_value_bytes=NAME_BYTES)

    async def read_all(self, names):
        """Each in a request of its own."""
        return await asyncio.gather(*(self.read("read", [(name, NAME_BYTES)]) for name in names))

    def await_answer(self):
        """Holds up the loop until the program has answered one request more."""
        assert os.read(self.told, 1) == b"."

    def close_pipes(self):
        os.close(self.told)
        os.close(self.goes_on)


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr("octavo.stores.mooncake.process._WORKER", tmp_path / "program.py")


@pytest.fixture
def run(tmp_path, program):
    """Runs a coroutine function with the library."""

    async def run(use):
        library = Library(tmp_path)
        try:
            await use(library)
        finally:
            await library.close()
            library.close_pipes()

    return lambda use: asyncio.run(run(use))


async def cancel(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def check_lanes(library):
    """Every lane is there, and no lane twice."""
    names = [f"name {number:03}" for number in range(4 * LANES)]
    assert await library.read_all(names) == [[name.encode()] for name in names]


@pytest.mark.parametrize("turns", range(6))
def test_a_caller_that_leaves_as_its_answer_comes(turns, run):
    """So many turns of the loop after the answer has arrived."""

    async def leave(library):
        await library.start()
        for _ in range(LANES):
            leaving = asyncio.ensure_future(library.read("read", [("leaving!", NAME_BYTES)]))
            await asyncio.sleep(0)
            library.await_answer()
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancel(leaving)
        await check_lanes(library)

    run(leave)


def test_a_caller_that_leaves_before_its_request_is_sent(run):
    async def leave(library):
        for _ in range(LANES + 1):
            await library.read("pause", [("in pause", NAME_BYTES)])
            leaving = asyncio.ensure_future(library.read("read", [(LONG_NAME, NAME_BYTES)]))
            await asyncio.sleep(0)
            await cancel(leaving)
            os.write(library.goes_on, b".")
        await check_lanes(library)

    run(leave)


def test_a_process_that_ends_in_the_middle_of_an_answer_is_started_again(run, caplog):
    async def die(library):
        with pytest.raises(StoreDownError, match="its process has ended"):
            await library.read("die", [("name 000", NAME_BYTES)])
        await check_lanes(library)
        gc.collect()  # asyncio tells then of errors that nobody took

    run(die)
    assert not caplog.records


def test_it_leaves_the_pool_when_the_tier_is_closed(tmp_path, program):
    """It was killed as soon as the loop ended, and the pool believed for a while that it had this machine's memory."""
    library, thread = Library(tmp_path), LoopThread("octavo-test")
    os.set_blocking(library.told, False)
    thread.submit(library.start()).result()
    thread.close(library.close)
    assert os.read(library.told, 4) == b"left"
    library.close_pipes()
