"""The epoch of a new pool, which several engines begin at once; the pool itself is made up."""

import asyncio
from itertools import chain, repeat

import pytest

from octavo.stores.client import StoreDownError
from octavo.stores.mooncake import MooncakeClient

BEING_WRITTEN, IS_THERE, MISSING, OVERTAKEN = -703, -705, -704, -601
EPOCH = b"0123456789abcdef"


class Pool:
    """Answers questions for the epoch, and attempts to write it, one after the other."""

    def __init__(self, answers=(), *, writes=None):
        self.answers, self.writes = iter(answers), iter(writes or repeat(IS_THERE))

    async def read(self, do, asked):
        return [next(self.answers)]

    async def write(self, do, values):
        return [next(self.writes)]


def client(pool):
    return MooncakeClient(pool, namespace=bytes(16), family=b"", most_chunk_bytes=1)


@pytest.mark.parametrize("times", [1, 3, 5])
def test_an_epoch_that_another_engine_is_writing_is_waited_for(times):
    asyncio.run(client(Pool([MISSING, *[BEING_WRITTEN] * times, EPOCH])).probe())


def test_an_epoch_that_nobody_ends_to_write_is_told(monkeypatch):
    monkeypatch.setattr("octavo.stores.mooncake.client._PAUSES_S", (0.0,) * 3)
    with pytest.raises(StoreDownError, match="another engine is writing the name of the family's epoch"):
        asyncio.run(client(Pool(chain([MISSING], repeat(BEING_WRITTEN)))).probe())


@pytest.mark.parametrize("code", [OVERTAKEN, BEING_WRITTEN])
def test_of_resets_at_once_each_is_done(code):
    asyncio.run(client(Pool(writes=[code, code, 0])).forget_all())


def test_a_reset_that_is_always_overtaken_is_told(monkeypatch):
    monkeypatch.setattr("octavo.stores.mooncake.client._PAUSES_S", (0.0,) * 3)
    with pytest.raises(StoreDownError, match="another engine writes the same at this moment"):
        asyncio.run(client(Pool(writes=repeat(OVERTAKEN))).forget_all())
