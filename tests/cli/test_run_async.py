"""Ctrl-C in commands that use asyncio."""

import asyncio
import gc
import signal

import pytest

from octavo.cli.run_async import run_async


async def is_interrupted(*, again):
    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            if again:
                signal.raise_signal(signal.SIGINT)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_is_no_traceback_however_often_it_comes(again, caplog):
    with pytest.raises(KeyboardInterrupt):
        run_async(is_interrupted(again=again))
    gc.collect()
    assert not caplog.records


def test_an_error_in_a_task_of_which_nobody_hears_is_told(lost_errors):
    async def fail():
        raise ValueError

    async def run():
        await asyncio.wait([asyncio.ensure_future(fail())])
        gc.collect()

    run_async(run())
    gc.collect()
    assert "never retrieved" in lost_errors.pop()
