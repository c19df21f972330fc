"""`RedisClient`: Redis or Valkey, as `RemoteTier` drives it. Each chunk is one value:

    octavo:FAMILY:EPOCH:NAMESPACE:TENANT:KEY    an envelope, with a time to live
    octavo:FAMILY                               EPOCH, a random name; whoever changes it has reset the family
    octavo:FAMILY:names:NAMESPACE               whose the namespace is; it ends when the last of its chunks would

One round trip reads many values and the epoch, and no more of a value than a chunk can have. An unknown prompt costs
one round trip, for its first blocks; of a known one, longer and longer parts are asked for until one has nothing. One
round trip stores many values and reads the epoch: what was stored in a former one is stored again, as nobody finds it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from secrets import token_hex
from typing import Any

from octavo.chunks import OffloadKey, SequenceNames
from octavo.errors import MALFORMED
from octavo.stores.batches import batches, waves
from octavo.stores.client import HeldChunk, OutgoingChunk, RemoteClient, StoreDownError
from octavo.stores.descriptions import Description
from octavo.stores.envelope import MOST_ENVELOPE_BYTES, SUMMARY_BYTES, summarize
from octavo.stores.redis.one_server import read_from_all
from octavo.stores.redis.troubles import explain, is_of_another_type, other_answer
from octavo.stores.tenants import tenant_word

_log = logging.getLogger(__name__)
_BATCH_BYTES = 8 << 20
"""The most bytes of one round trip, so that others have their turn."""
_MOST_VALUE_BYTES = 256 << 20
"""A larger chunk is refused: a server refuses values of 512 MiB, and moving such a value stops it for all others."""
MOST_CONNECTIONS = 16
_MOST_STORING = MOST_CONNECTIONS // 2
"""The most connections that store at once. So however slow stores are, lookups and loads find a connection."""
_MOST_FORMER = 1024
"""The most former epochs that are remembered; the oldest is forgotten first."""
_IS_GONE = (
    "Redis tier: %s is gone, and all that was stored before with it: the server was emptied, or gives up values that "
    "do not expire; its maxmemory-policy should be volatile-lru"
)
_IS_BACK = (
    "Redis tier: %s has gone back to a former epoch, and nothing of that is used: the server has lost its last writes, "
    "or its address leads to several servers"
)
_IS_FULL = (
    "Redis tier: the server of %s is full and gives up nothing, so nothing more is stored: its maxmemory-policy should "
    "be volatile-lru"
)


class RedisClient(RemoteClient):
    """One family of namespaces on one server."""

    medium = "redis"

    def __init__(
        self,
        redis: Any,
        *,
        namespace: bytes,
        family: bytes,
        most_chunk_bytes: int,
        keep_s: float,
        description: Description | None = None,
        renew: Callable[[], Any] | None = None,
    ) -> None:
        """`redis` is the asynchronous client of the package redis; `renew` returns it, as it is opened now."""
        self._redis = redis
        self._renew = renew
        self._family = f"octavo:{(family or namespace).hex()}"
        self._namespace = namespace.hex()
        self._most_chunk_bytes = most_chunk_bytes
        self._keep_ms = max(1, round(keep_s * 1000))
        self._description = description
        self._described = name_description(self._family, self._namespace)
        self._epoch = b""
        """Empty until it is read."""
        self._former: dict[bytes, None] = {}
        """The epochs before it, as far as this engine was there."""
        self._storing = asyncio.Semaphore(_MOST_STORING)
        self._said: set[str] = set()

    async def probe(self) -> None:
        async with self._asking():
            if self._renew is not None and (redis := self._renew()) is not self._redis:
                former, self._redis = self._redis, redis
                await former.aclose()
            await self._take(await read_from_all(self._redis, self._family))

    async def find(self, sequence: SequenceNames) -> Mapping[OffloadKey, HeldChunk]:
        held: dict[OffloadKey, HeldChunk] = {}
        async with self._asking():
            if not self._epoch:
                await self._follow()
            folder = self._folder(sequence.tenant)
            for keys in waves(sequence):
                names = [folder + key.hex() for key in keys]
                starts = await self._read([(name, SUMMARY_BYTES) for name in names], follows=not held)
                found = {
                    key: HeldChunk(*summary, name)
                    for key, name, start in zip(keys, names, starts, strict=True)
                    if (summary := summarize(start)) is not None and summary[1] <= self._most_chunk_bytes
                }
                if not found and sequence.needs_beginning:
                    break
                held |= found
        return held

    async def put(self, chunks: Sequence[OutgoingChunk], is_wanted: Callable[[], bool]) -> list[HeldChunk | None]:
        held: list[HeldChunk | None] = [None] * len(chunks)
        async with self._asking():
            if not self._epoch:
                await self._follow()
            generation = self.generation
            names = [self._folder(chunk.tenant) + chunk.key.hex() for chunk in chunks]
            fitting = [index for index, chunk in enumerate(chunks) if len(chunk.envelope) <= _MOST_VALUE_BYTES]
            for batch in batches([len(chunks[index].envelope) for index in fitting], _BATCH_BYTES):
                async with self._storing:
                    if not is_wanted() or generation != self.generation:  # nobody would find what these names hold
                        return [None] * len(chunks)
                    await self._put_batch(chunks, names, [fitting[number] for number in batch], held)
        return held

    async def get(self, wanted: Sequence[tuple[OffloadKey, HeldChunk]]) -> "list[memoryview | StoreDownError | None]":
        async with self._asking():
            # one byte more than is expected, so that a longer value is told from a whole one
            asked = [(chunk.where, chunk.num_bytes + MOST_ENVELOPE_BYTES + 1) for _, chunk in wanted]
            return [memoryview(value) if value else None for value in await self._read(asked, is_use=True)]

    async def forget_all(self) -> None:
        async with self._asking():
            epoch = token_hex(8).encode()
            await self._redis.set(self._family, epoch)
            self._enter(epoch)

    async def close(self) -> None:
        await self._redis.aclose()

    # ---- helpers ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Turns errors of the server into StoreDownError, and opens new connections from then on: its name may lead to
        another server by now, as where a replica has taken the place of a primary that still answers."""
        from redis.exceptions import RedisError  # an optional dependency

        try:
            yield
        except (RedisError, OSError, *MALFORMED) as error:
            with suppress(RedisError, OSError):
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise explain(error) from error

    async def _follow(self) -> None:
        """Moves on to the epoch that another engine may have begun."""
        await self._take(await self._redis.get(self._family))

    async def _take(self, epoch: bytes | None) -> None:
        """Enters the epoch that an answer told. Another one than before is asked for alone, on several connections: the
        answer may be late, or be that to another question, as where a proxy sends one reply too many; and where the
        address leads to several servers, each has an epoch of its own."""
        if self._epoch and epoch != self._epoch:
            epoch = await read_from_all(self._redis, self._family)
        if epoch is None:  # a new server, or one that has lost its data: no engine finds what was stored before
            if self._description is not None:
                self._description.renew()
            if self._epoch:
                self._say_once(_IS_GONE)
            await self._redis.set(self._family, token_hex(8), nx=True)
            epoch = await self._redis.get(self._family)
        if epoch is None:
            raise StoreDownError("it does not keep what it is given")
        if not isinstance(epoch, bytes):
            raise other_answer()
        self._enter(await self._leave_former() if epoch in self._former else epoch)

    async def _leave_former(self) -> bytes:
        """The server has lost a reset, as after a failover or a restart from a snapshot: it is done once more."""
        epoch = token_hex(8).encode()
        await self._redis.set(self._family, epoch)
        self._say_once(_IS_BACK)
        return epoch

    def _say_once(self, warning: str) -> None:
        """It may be the server's configuration that does it, again and again."""
        if warning not in self._said:
            self._said.add(warning)
            _log.warning(warning, self._family)

    def _enter(self, epoch: bytes) -> None:
        if self._epoch not in (b"", epoch):
            self.generation += 1
            self._former[self._epoch] = None
            if len(self._former) > _MOST_FORMER:
                del self._former[next(iter(self._former))]
        self._epoch = epoch

    def _folder(self, tenant: bytes) -> str:
        """The beginning of the names of the tenant's chunks."""
        return f"{self._family}:{self._epoch[:32].hex()}:{self._namespace}:{tenant_word(tenant)}:"

    async def _put_batch(
        self,
        chunks: Sequence[OutgoingChunk],
        names: Sequence[str],
        indices: Sequence[int],
        held: list[HeldChunk | None],
    ) -> None:
        """Stores values. One that another engine has stored is overwritten only if it differs. `indices` were looked up
        not long ago, so that is rare, and a store is one round trip. A full server takes nothing, and is not down."""
        from redis.exceptions import OutOfMemoryError

        values = {index: (names[index], chunks[index].envelope) for index in indices}
        kept = {index for index in indices if not chunks[index].replaces}
        answers = await self._write(values, kept)
        if any(isinstance(answer, OutOfMemoryError) for answer in answers.values()):
            self._say_once(_IS_FULL)
        there = [index for index, answer in answers.items() if answer is None or isinstance(answer, OutOfMemoryError)]
        starts = await self._read([(names[index], SUMMARY_BYTES) for index in there], is_use=True)
        others = []
        for index, start in zip(there, starts, strict=True):
            if summarize(start) == (chunks[index].held_blocks, chunks[index].num_bytes):
                answers[index] = True
            elif answers[index] is None:
                others.append(index)
        if others:
            answers |= await self._write({index: values[index] for index in others}, ())
        for index, answer in answers.items():
            if answer is True:
                held[index] = HeldChunk(chunks[index].held_blocks, chunks[index].num_bytes, names[index])
            elif not isinstance(answer, OutOfMemoryError):
                raise answer if isinstance(answer, Exception) else other_answer()

    async def _write(self, values: Mapping[int, tuple[str, memoryview]], kept: Collection[int]) -> dict[int, Any]:
        """The answers, by index. Those in `kept` leave what is there. The epoch is read after the values, and tells
        whether they were stored in it."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for index, (name, envelope) in values.items():
                pipeline.set(name, envelope, px=self._keep_ms, nx=index in kept)
            if self._description is not None:  # no error of these two is looked at
                if packed := self._description.take_due():
                    pipeline.set(self._described, packed, px=self._keep_ms, nx=True)
                pipeline.pexpire(self._described, self._keep_ms)
            pipeline.get(self._family)
            answers = await pipeline.execute(raise_on_error=False)
        await self._take(*_raise_errors(answers[-1:]))
        return dict(zip(values, answers, strict=False))

    async def _read(
        self, asked: Sequence[tuple[str, int]], *, is_use: bool = False, follows: bool = False
    ) -> list[bytes]:
        """The first bytes of each value, as many as are asked for; none of one that is not there, or is a list or the
        like. `is_use`: they shall live on, unless the server may only be read. `follows`: goes on to the epoch that
        another engine may have begun, in the same round trip."""
        values: list[bytes] = []
        for indices in batches([num_bytes for _, num_bytes in asked], _BATCH_BYTES):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for name, num_bytes in (asked[index] for index in indices):
                    pipeline.getrange(name, 0, num_bytes - 1)
                for name in (*(asked[index][0] for index in indices), self._described) if is_use else ():
                    pipeline.pexpire(name, self._keep_ms)
                if follows:
                    pipeline.get(self._family)
                answers = await pipeline.execute(raise_on_error=False)
            values += _raise_errors(
                [b"" if is_of_another_type(answer) else answer for answer in answers[: len(indices)]]
            )
            if not all(isinstance(value, bytes) for value in values):
                raise other_answer()
            if follows:
                await self._take(*_raise_errors(answers[-1:]))
        return values


def _raise_errors(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def name_description(family: str, namespace: str) -> str:
    """The name of the value that describes a namespace. `family` is the name of the family's epoch."""
    return f"{family}:names:{namespace}"
