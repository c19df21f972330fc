"""Tells an address that leads to several servers, of which none has what another one was given."""

import asyncio
from typing import Any

from octavo.stores.client import SeveralStoresError

_CONNECTIONS = 4
"""Opened and asked at the same time: a name or a proxy that leads to several servers spreads them."""
_LOOKS = 5
_PAUSE_S = 0.1
"""Between two looks: a replica may be a moment behind, and another engine may write the value just then."""


async def read_from_all(redis: Any, name: str) -> Any:
    """The value of this name. SeveralStoresError if it is not the same on several connections, time and again. `redis`
    is the asynchronous client of the package redis."""
    for look in range(_LOOKS):
        await asyncio.sleep(_PAUSE_S if look else 0)
        await redis.connection_pool.disconnect(inuse_connections=False)
        try:
            async with asyncio.TaskGroup() as group:  # once a read has failed, the others end
                reads = [group.create_task(redis.get(name)) for _ in range(_CONNECTIONS)]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        value, *others = [read.result() for read in reads]
        if all(other == value for other in others):
            return value
    raise SeveralStoresError(
        "its address leads to several servers that do not hold the same", "give the address of one"
    )
