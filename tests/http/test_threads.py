"""Calls in threads of their own, and callers that leave."""

import asyncio
import gc
import threading

import pytest

from octavo.http.threads import PatientCalls

PATIENCE_S = 300.0


@pytest.mark.parametrize("turns", range(6))
def test_a_caller_that_leaves_as_its_call_fails_leaves_no_complaint(turns):
    """So many turns of the loop after the thread has ended."""
    complaints = []

    async def leave():
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        calls, begun, goes_on, threads = PatientCalls(name="call", at_once=1), asyncio.Event(), threading.Event(), []
        loop = asyncio.get_running_loop()

        def fail():
            threads.append(threading.current_thread())
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait()
            raise ValueError

        leaving = asyncio.ensure_future(calls.run(fail, patience_s=PATIENCE_S))
        await begun.wait()
        goes_on.set()
        threads[0].join()
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert await calls.run(lambda: "the next one", patience_s=PATIENCE_S) == "the next one"

    asyncio.run(leave())
    gc.collect()
    assert not complaints
