"""A tier over a store that never answers ends in order."""

import asyncio
import gc
import socket

import pytest

from octavo.stores.loop import LoopThread
from octavo.testing import tier_driver
from octavo.tiers import TierContext, spec_from_config
from rigs.objects_suite import PATIENT


@pytest.fixture
def silent():
    """A server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_no_connection_is_opened_by_closing_and_none_stays_open(silent):
    """A call that loses its connection opens another one: so calls end first, and connections then."""
    spec = spec_from_config({"type": "redis", **PATIENT, "url": f"redis://127.0.0.1:{silent.getsockname()[1]}"})
    context = TierContext(namespace=tier_driver.NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
    tier = spec.build(context)
    tier.ask(tier_driver.ALL_KEYS)
    with silent.accept()[0] as connection:
        assert connection.recv(1)  # it waits for an answer
        tier.close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
        del tier
        gc.collect()  # an open connection would warn, and a warning is an error


def test_the_last_call_comes_when_no_other_runs():

    events, loop = [], LoopThread("octavo-test")

    async def call():
        try:
            events.append("runs")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("ended")

    async def last():
        events.append("last")

    loop.submit(call())
    loop.submit(asyncio.sleep(0)).result()
    loop.close(last)
    assert events == ["runs", "ended", "last"]


def test_what_is_told_after_the_end_is_ignored():
    """As a library's thread does whose call was cancelled."""

    async def find_loop():
        return asyncio.get_running_loop()

    async def last():
        pass

    events, thread = [], LoopThread("octavo-test")
    loop = thread.submit(find_loop()).result()
    thread.close(last)
    loop.call_soon_threadsafe(events.append, "told")
    assert events == []
