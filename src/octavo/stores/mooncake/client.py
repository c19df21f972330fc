"""`MooncakeClient`: Mooncake Store, as `RemoteTier` drives it. Each chunk is one object:

    octavo:FAMILY:EPOCH:NAMESPACE:TENANT:KEY    an envelope
    octavo:FAMILY                               EPOCH, a random name; whoever changes it has reset the family

An object goes when the master needs room, or when the machine that holds it leaves: a miss. Without its epoch a family
would lose all its objects, so the epoch is pinned, and lies on up to three machines.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex

from octavo.chunks import OffloadKey, SequenceNames
from octavo.stores.batches import batches, waves
from octavo.stores.client import HeldChunk, OutgoingChunk, RemoteClient, StoreDownError
from octavo.stores.envelope import MOST_ENVELOPE_BYTES, SUMMARY_BYTES, summarize
from octavo.stores.mooncake.process import LibraryProcess
from octavo.stores.mooncake.troubles import explain, has_other_size, is_down, is_missing, was_overtaken
from octavo.stores.tenants import tenant_word

_EPOCH_BYTES = 16
_PAUSES_S = tuple(0.01 * 2**number for number in range(7))
"""Before what another engine is just writing is tried again: 1.3 s in all."""


class MooncakeClient(RemoteClient):
    """One family of namespaces in one pool."""

    medium = "mooncake"

    def __init__(self, library: LibraryProcess, *, namespace: bytes, family: bytes, most_chunk_bytes: int) -> None:
        self._library = library
        self._family = f"octavo:{(family or namespace).hex()}"
        self._namespace = namespace.hex()
        self._most_chunk_bytes = most_chunk_bytes
        self._epoch: bytes | None = None
        self._resetting = asyncio.Lock()

    async def probe(self) -> None:
        await self._follow()

    async def find(self, sequence: SequenceNames) -> Mapping[OffloadKey, HeldChunk]:
        held: dict[OffloadKey, HeldChunk] = {}
        folder = await self._follow(sequence.tenant)
        for keys in waves(sequence):
            names = [folder + key.hex() for key in keys]
            summaries = await self._summaries(names)
            found = {
                key: HeldChunk(*summary, name)
                for key, name, summary in zip(keys, names, summaries, strict=True)
                if summary is not None and summary[1] <= self._most_chunk_bytes
            }
            if not found and sequence.needs_beginning:
                break
            held |= found
        return held

    async def put(self, chunks: Sequence[OutgoingChunk], is_wanted: Callable[[], bool]) -> list[HeldChunk | None]:
        """Stores chunks. One that another engine has stored is written again only if it differs."""
        folders = {tenant: await self._follow(tenant) for tenant in {chunk.tenant for chunk in chunks}}
        names = [folders[chunk.tenant] + chunk.key.hex() for chunk in chunks]
        there = await self._summaries(names)
        codes = [0] * len(chunks)
        for do, indices in {
            "write": [index for index, found in enumerate(there) if found is None and not chunks[index].replaces],
            "replace": [
                index
                for index, (found, chunk) in enumerate(zip(there, chunks, strict=True))
                if chunk.replaces or found not in (None, (chunk.held_blocks, chunk.num_bytes))
            ],
        }.items():
            for batch in batches([len(chunks[index].envelope) for index in indices], self._library.lane_bytes):
                if not is_wanted():
                    return [None] * len(chunks)
                values = [(names[indices[number]], chunks[indices[number]].envelope) for number in batch]
                for number, code in zip(batch, await self._library.write(do, values), strict=True):
                    codes[indices[number]] = code
        _raise_if_down(codes)
        return [
            HeldChunk(chunk.held_blocks, chunk.num_bytes, name) if code == 0 else None
            for chunk, name, code in zip(chunks, names, codes, strict=True)
        ]

    async def get(self, wanted: Sequence[tuple[OffloadKey, HeldChunk]]) -> "list[memoryview | StoreDownError | None]":
        asked = [(chunk.where, chunk.num_bytes + MOST_ENVELOPE_BYTES) for _, chunk in wanted]
        answers = await self._read("read", asked)
        _raise_if_down(answers)
        larger = [index for index, answer in enumerate(answers) if isinstance(answer, int) and has_other_size(answer)]
        if larger:  # whoever opens one is told what it is now
            starts = await self._read("read_starts", [(asked[index][0], MOST_ENVELOPE_BYTES) for index in larger])
            for index, start in zip(larger, starts, strict=True):
                answers[index] = start
        return [_envelope(answer) for answer in answers]

    async def forget_all(self) -> None:
        async with self._resetting:
            for pause_s in (0.0, *_PAUSES_S):
                await asyncio.sleep(pause_s)
                epoch = token_hex(_EPOCH_BYTES // 2).encode()
                (code,) = await self._library.write("keep_other", [(self._family, epoch)])
                if not (is_missing(code) or was_overtaken(code)):
                    break
            if code:
                raise explain(code)
            self._enter(epoch)

    async def close(self) -> None:
        await self._library.close()

    # ---- helpers ------------------------------------------------------------------------------------------------

    async def _follow(self, tenant: bytes = b"") -> str:
        """The beginning of the names of the tenant's chunks, in the epoch that another engine may have begun."""
        async with self._resetting:
            pass  # what begins after a reset is in its epoch
        asked = [(self._family, _EPOCH_BYTES)]
        (epoch,) = await self._library.read("read", asked)
        if isinstance(epoch, int) and not is_down(epoch):
            epoch = await self._begin(asked)
        if isinstance(epoch, int):
            raise explain(epoch)
        self._enter(epoch)
        return f"{self._family}:{epoch.hex()}:{self._namespace}:{tenant_word(tenant)}:"

    async def _begin(self, asked: Sequence[tuple[str, int]]) -> bytes | int:
        """The epoch of a new pool, or of one that has lost it, and all else with it. One engine begins it for all: the
        pool refuses an object that is being written, and then others wait until it is whole."""
        async with self._resetting:
            (epoch,) = await self._library.read("read", asked)
            for pause_s in (0.0, *_PAUSES_S):
                if isinstance(epoch, bytes) or is_down(epoch):
                    break
                await asyncio.sleep(pause_s)
                (code,) = await self._library.write("keep", [(self._family, token_hex(_EPOCH_BYTES // 2).encode())])
                if code and not is_missing(code):
                    raise explain(code)
                (epoch,) = await self._library.read("read", asked)
        return epoch

    def _enter(self, epoch: bytes) -> None:
        self.generation += self._epoch not in (None, epoch)
        self._epoch = epoch

    async def _summaries(self, names: Sequence[str]) -> list[tuple[int, int] | None]:
        """Held blocks and bytes of each; None for one that is not there, or is no envelope."""
        answers = await self._read("read_starts", [(name, SUMMARY_BYTES) for name in names])
        _raise_if_down(answers)
        return [None if isinstance(answer, int) else summarize(answer) for answer in answers]

    async def _read(self, do: str, asked: Sequence[tuple[str, int]]) -> list[bytes | int]:
        answers: list[bytes | int] = []
        for indices in batches([num_bytes for _, num_bytes in asked], self._library.lane_bytes):
            answers += await self._library.read(do, [asked[index] for index in indices])
        return answers


def _envelope(answer: bytes | int) -> "memoryview | StoreDownError | None":
    if isinstance(answer, bytes) or has_other_size(answer):
        return memoryview(answer if isinstance(answer, bytes) else b"")
    return explain(answer) if is_down(answer) else None


def _raise_if_down(answers: Sequence[bytes | int]) -> None:
    """Raises StoreDownError if nothing worked."""
    codes = [answer for answer in answers if isinstance(answer, int)]
    if codes and len(codes) == len(answers) and all(map(is_down, codes)):
        raise explain(codes[0])
