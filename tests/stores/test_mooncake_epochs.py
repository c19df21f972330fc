"""The epoch of a new pool, which several engines begin at once; the pool itself is made up."""

import asyncio
from itertools import chain, repeat

import pytest

from octavo.stores.client import StoreDownError
from octavo.stores.mooncake import MooncakeClient

BEING_WRITTEN, IS_THERE, MISSING = -703, -705, -704
EPOCH = b"0123456789abcdef"


class Pool:
    """Answers questions for the epoch one after the other, and refuses to write it."""

    def __init__(self, answers):
        self.answers = iter(answers)

    async def read(self, do, asked):
        return [next(self.answers)]

    async def write(self, do, values):
        return [IS_THERE]


def probe(pool):
    asyncio.run(MooncakeClient(pool, namespace=bytes(16), family=b"", most_chunk_bytes=1).probe())


@pytest.mark.parametrize("times", [1, 3, 5])
def test_an_epoch_that_another_engine_is_writing_is_waited_for(times):
    probe(Pool([MISSING, *[BEING_WRITTEN] * times, EPOCH]))


def test_an_epoch_that_nobody_ends_to_write_is_told(monkeypatch):
    monkeypatch.setattr("octavo.stores.mooncake.client._PAUSES_S", (0.0,) * 3)
    with pytest.raises(StoreDownError, match="another engine is writing the name of the family's epoch"):
        probe(Pool(chain([MISSING], repeat(BEING_WRITTEN))))
