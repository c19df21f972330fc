"""`ObjectsClient`: an object store, as `RemoteTier` drives it.

A lookup takes at most four round trips, whatever the length of the prompt:

    1  listings of the first stretches, and every 5 seconds a look for a new epoch, side by side
    2  listings of all other stretches, if the first ones have anything
    3  listings by eighth and block, where thousands of sequences part (two round trips at the most)
    4  ends of the objects on the prompt's own sequence, side by side

An unknown prompt takes only the first. Listings and ends of objects are remembered for a while.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from octavo.chunks import OffloadKey, SequenceNames
from octavo.errors import InputError
from octavo.stores import Description, HeldChunk, OutgoingChunk, RemoteClient, StoreDownError, is_ahead
from octavo.stores.objects.charts import Charts, Place, Stretch, stretches
from octavo.stores.objects.epochs import Epochs
from octavo.stores.objects.folder import FolderWatch
from octavo.stores.objects.layout import (
    MOST_CHUNKS,
    TAIL_BYTES,
    Index,
    name_description,
    name_object,
    pack_object,
    parse_tail,
)
from octavo.stores.objects.troubles import explain, is_beyond_its_end, is_conflict
from octavo.stores.tenants import tenant_word

T = TypeVar("T")
_FIRST_STRETCHES = 4
_MOST_LISTED = 1000
"""The names of one page of a listing. A longer list is read in parts."""
_MOST_AT_ONCE = 32
"""The most lookups and loads under way, and the most stores. So a slow store of a long prompt delays no lookup."""
_MOST_REMEMBERED = 4096
"""The most indexes of objects that are remembered; the oldest is forgotten first."""
_DESCRIBE_S = 2.0


class _Where(NamedTuple):
    path: str
    offset: int
    length: int


class ObjectsClient(RemoteClient):
    """One prefix of one store, for one namespace."""

    medium = "objects"

    def __init__(
        self,
        store: Any,
        *,
        namespace: bytes,
        family: bytes,
        description: Description | None = None,
        watch: FolderWatch | None = None,
        reopen: Callable[[], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reopen` opens the store once more, for a probe: former connections may lead nowhere, and certificates may be
        others by now. It raises InputError for certificates that cannot be read."""
        self._store = store
        self._reopen = reopen
        self._description = description
        self._watch = watch
        self._namespace = namespace
        self._family = (family or namespace).hex()
        self._charts = Charts()
        self._epochs = Epochs(store, self._family, clock)
        self._epoch: int | None = None
        self._indexes: dict[str, Index] = {}
        """Indexes of objects, by path."""
        self._damaged: dict[str, None] = {}
        """Objects that differ from their name or an index: they are written again. The oldest is forgotten first."""
        self._reading = asyncio.Semaphore(_MOST_AT_ONCE)
        self._storing = asyncio.Semaphore(_MOST_AT_ONCE)

    def expect(self, sequence: SequenceNames) -> None:
        self._charts.chart(sequence)

    async def probe(self) -> None:
        async with self._asking():
            if self._reopen is not None:
                with suppress(InputError):  # ca_file is just being replaced
                    self._store = self._epochs.store = self._reopen()
            await self._follow(is_forced=True)

    async def find(self, sequence: SequenceNames) -> Mapping[OffloadKey, HeldChunk]:
        async with self._asking():
            parts = stretches(sequence)
            listed: dict[str, int] = {}
            if self._epoch is None:
                await self._follow()
            for wave in (parts[:_FIRST_STRETCHES], parts[_FIRST_STRETCHES:]):
                listings = [self._list_stretch(part, sequence.tenant) for part in wave]
                objects = list(filter(None, await _together([*listings, self._follow()])))
                for found in objects:
                    listed |= found
                if not objects and sequence.needs_beginning:
                    break
            indexes = await _each(self._read_index, listed.items())
        there = [(path, index) for path, index in zip(listed, indexes, strict=True) if isinstance(index, Index)]
        held: dict[OffloadKey, HeldChunk] = {}
        now_s = time.time()
        for path, index in sorted(there, key=lambda pair: _rank(pair[1], now_s)):
            for entry in index.chunks:
                where = _Where(path, entry.offset, entry.length)
                held[OffloadKey(entry.key)] = HeldChunk(entry.held_blocks, entry.num_bytes, where)
        return held

    async def put(self, chunks: Sequence[OutgoingChunk], is_wanted: Callable[[], bool]) -> list[HeldChunk | None]:
        groups: dict[tuple[bytes, str], list[tuple[Place, int]]] = {}
        for number, chunk in enumerate(chunks):
            place = self._charts.find(chunk.key)
            if place is not None:
                groups.setdefault((chunk.tenant, place.stretch), []).append((place, number))
        held: list[HeldChunk | None] = [None] * len(chunks)

        async def put_group(tenant: bytes, members: list[tuple[Place, int]]) -> None:
            last = max(members)[0]
            numbers = [number for _, number in members]
            await self._follow()
            if not is_wanted():
                return
            wheres = await self._put_object(tenant, last, [chunks[number] for number in numbers])
            if wheres is None:
                return
            for number, where in zip(numbers, wheres, strict=True):
                held[number] = HeldChunk(chunks[number].held_blocks, chunks[number].num_bytes, where)

        async with self._asking():
            parts = [
                put_group(tenant, sorted(members)[start : start + MOST_CHUNKS])
                for (tenant, _), members in groups.items()
                for start in range(0, len(members), MOST_CHUNKS)
            ]
            await _together([*parts, self._describe()])
        return held

    async def get(self, wanted: Sequence[tuple[OffloadKey, HeldChunk]]) -> list[memoryview | StoreDownError | None]:
        by_path: dict[str, list[int]] = {}
        for number, (_, held) in enumerate(wanted):
            by_path.setdefault(held.where.path, []).append(number)
        envelopes: list[memoryview | StoreDownError | None] = [None] * len(wanted)
        async with self._asking():
            places = [[wanted[number][1].where for number in numbers] for numbers in by_path.values()]
            objects = await _each(self._get_ranges, zip(by_path, places, strict=True))
        for numbers, parts in zip(by_path.values(), objects, strict=True):
            for place, number in enumerate(numbers):
                envelopes[number] = parts if isinstance(parts, StoreDownError) else parts[place]
        return envelopes

    async def forget_all(self) -> None:
        async with self._asking():
            await self._epochs.begin_next()
            self._enter(self._epochs.current)

    async def close(self) -> None:
        """Does nothing: obstore closes its connections itself."""

    # ---- helpers ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Goes around all calls of the store."""
        async with _explaining():
            if self._watch is not None:
                await self._watch.check()
            yield

    async def _follow(self, *, is_forced: bool = False) -> None:
        """Moves on to the epoch that another engine may have begun."""
        self._enter(await _within(self._reading, lambda: self._epochs.refresh(is_forced=is_forced)))

    def _enter(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._indexes.clear()
            self.generation += self._epoch is not None
            self._epoch = epoch

    def _folder(self, tenant: bytes) -> str:
        epoch = f"{self._epochs.current:08d}"
        return f"{self._family}/{epoch}/{self._namespace.hex()}/{tenant_word(tenant)}"

    async def _list_stretch(self, part: Stretch, tenant: bytes) -> dict[str, int]:
        """Paths and sizes of the objects on the reader's own sequence."""
        folder = f"{self._folder(tenant)}/{part.name}"
        own = {f"{folder}/{eighth}/{block}" for eighth, block in part.blocks}
        listed, is_all = await self._list(folder)
        for level in (part.eighths, [f"{eighth}/{block}" for eighth, block in part.blocks]):
            if is_all:
                break
            pages = await _together([self._list(f"{folder}/{name}") for name in level])
            listed = {path: size for page, _ in pages for path, size in page.items()}
            is_all = all(is_whole for _, is_whole in pages)
        return {path: size for path, size in listed.items() if path.rpartition("/")[0] in own}

    async def _list(self, folder: str) -> tuple[dict[str, int], bool]:
        """One page: paths and sizes, and whether it is the only one."""
        import obstore

        async def first_page() -> list[Any]:
            # no variable has the listing: it would go on as long as an error's traceback knows this frame
            async for page in obstore.list(self._store, prefix=folder, chunk_size=_MOST_LISTED):
                return list(page)
            return []

        page = await _within(self._reading, first_page)
        return {meta["path"]: meta["size"] for meta in page}, len(page) < _MOST_LISTED

    async def _read_index(self, path: str, size: int) -> Index | None:
        if (known := self._indexes.get(path)) is not None:
            return known
        tail = await self._get_range(path, max(0, size - TAIL_BYTES), size) if size else None
        index = parse_tail(tail, size, self._namespace) if tail is not None else None
        if index is None:
            self._suspect(path)
            return None
        self._indexes[path] = index
        if len(self._indexes) > _MOST_REMEMBERED:
            self._indexes.pop(next(iter(self._indexes)), None)
        return index

    async def _put_object(self, tenant: bytes, last: Place, chunks: Sequence[OutgoingChunk]) -> list[_Where] | None:
        """Where the chunks are now; None if the store did not take them."""
        from obstore.exceptions import AlreadyExistsError

        name = name_object([(chunk.key, chunk.held_blocks, chunk.num_bytes) for chunk in chunks])
        path = f"{self._folder(tenant)}/{last.stretch}/{last.eighth}/{last.block}/{name}"
        replaces = path in self._damaged or any(chunk.replaces for chunk in chunks)
        packed = pack_object(
            self._namespace,
            time.time_ns(),
            [(chunk.key, chunk.held_blocks, chunk.num_bytes, chunk.envelope) for chunk in chunks],
        )
        mode: Any = "overwrite" if replaces else "create"
        try:
            await self._put(path, packed, mode)
        except AlreadyExistsError as error:  # the same work, done by another engine
            if is_conflict(error):
                return None
        self._damaged.pop(path, None)
        self._indexes.pop(path, None)
        wheres, offset = [], 0
        for chunk in chunks:
            wheres.append(_Where(path, offset, len(chunk.envelope)))
            offset += len(chunk.envelope)
        return wheres

    async def _describe(self) -> None:
        from obstore.exceptions import BaseError

        if not (packed := self._description.take_due() if self._description else b""):
            return
        path = name_description(self._family, self._namespace.hex())
        with suppress(BaseError, OSError):  # a TimeoutError is an OSError
            async with asyncio.timeout(_DESCRIBE_S):
                await self._put(path, packed, "create")

    async def _put(self, path: str, packed: Any, mode: Any) -> None:
        import obstore

        await _within(
            self._storing, lambda: obstore.put_async(self._store, path, packed, mode=mode, use_multipart=False)
        )

    async def _get_ranges(self, path: str, places: Sequence[_Where]) -> list[memoryview | None]:
        """Envelopes by index. Neighbouring ranges are read as one."""
        runs: list[list[int]] = []
        for number in sorted(range(len(places)), key=lambda number: places[number].offset):
            last = places[runs[-1][-1]] if runs else None
            if last is not None and last.offset + last.length == places[number].offset:
                runs[-1].append(number)
            else:
                runs.append([number])
        parts: list[memoryview | None] = [None] * len(places)

        async def read(run: Sequence[int]) -> None:
            start, end = places[run[0]].offset, places[run[-1]].offset + places[run[-1]].length
            data = await self._get_range(path, start, end)
            if data is None:
                return
            for number in run:
                offset = places[number].offset - start
                parts[number] = data[offset : offset + places[number].length]

        await _together([read(run) for run in runs])
        return parts

    async def _get_range(self, path: str, start: int, end: int) -> memoryview | None:
        """The bytes of a range; None if the object is gone, or is not the one that the index describes."""
        import obstore
        from obstore.exceptions import GenericError

        try:
            data = memoryview(
                await _within(self._reading, lambda: obstore.get_range_async(self._store, path, start=start, end=end))
            )
        except FileNotFoundError:
            self._indexes.pop(path, None)
            return None
        except GenericError as error:
            if not is_beyond_its_end(error):
                raise
            data = memoryview(b"")
        if len(data) == end - start:
            return data
        self._suspect(path)
        return None

    def _suspect(self, path: str) -> None:
        self._indexes.pop(path, None)
        self._damaged[path] = None
        if len(self._damaged) > _MOST_REMEMBERED:
            del self._damaged[next(iter(self._damaged))]


def _rank(index: Index, now_s: float) -> float:
    """Of two objects with one key, the one with the higher rank counts."""
    written_s = index.written_ns / 1e9
    return 0.0 if is_ahead(written_s, now_s) else written_s


async def _within(limit: asyncio.Semaphore, call: Callable[[], Awaitable[T]]) -> T:
    """The answer of a call that begins once the limit has room for it."""
    async with limit:
        return await call()


@asynccontextmanager
async def _explaining() -> AsyncIterator[None]:
    """Turns obstore's errors into StoreDownError."""
    from obstore.exceptions import BaseError

    try:
        yield
    except StoreDownError:
        raise
    except (BaseError, OSError) as error:
        raise explain(error) from error


async def _together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The answers, by index. Once a call has failed, the others end: a store that does not work gets no more of them,
    and the bytes of a store that has failed are not kept for them."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _each(call: Callable[..., Awaitable[T]], arguments: Iterable[tuple[Any, ...]]) -> list[T | StoreDownError]:
    """Answers and errors, by index. If all are errors, the store did not work."""

    async def answer(its: tuple[Any, ...]) -> T | StoreDownError:
        try:
            async with _explaining():
                return await call(*its)
        except StoreDownError as error:
            return error

    answers = await asyncio.gather(*map(answer, arguments))
    failed = [answer for answer in answers if isinstance(answer, StoreDownError)]
    if failed and len(failed) == len(answers):
        raise failed[0]
    return answers
