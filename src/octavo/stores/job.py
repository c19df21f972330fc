"""The stores and loads of a remote tier, and how their bytes go between buffers and the store's client."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from octavo.chunks import ChunkBytes, OffloadKey
from octavo.stores.client import HeldChunk, OutgoingChunk, RemoteClient, StoreDownError
from octavo.stores.envelope import Envelopes
from octavo.tiers import BufferGuard, gather, gives_checksum, scatter, total_bytes

T = TypeVar("T")
_log = logging.getLogger(__name__)
_TURN_BYTES = 256 << 10
"""Bytes that are copied before other tasks have their turn."""


class RemoteJob:
    """A store or a load under way."""

    def __init__(self, job_id: int, chunks: Sequence[ChunkBytes], *, is_store: bool) -> None:
        self.job_id = job_id
        self.chunks = chunks
        self.is_store = is_store
        self.is_wanted = True
        """False after a reset: then it must have no effect."""
        self.num_bytes = sum(total_bytes(chunk.buffers) for chunk in chunks)
        self.guard = BufferGuard()
        self.begun = time.monotonic()
        self.failed: set[int] = set()
        self.corrupt: set[int] = set()
        self.gone: set[int] = set()
        self.forgotten: set[OffloadKey] = set()
        """Keys that were removed since it was submitted."""
        self.held: dict[int, HeldChunk] = {}
        """By index: the chunk in the store."""
        self.seconds = 0.0
        self.error: StoreDownError | None = None
        self.future: Future[None] | None = None


class Mover:
    """Moves the bytes of jobs, on the loop's thread."""

    def __init__(self, client: RemoteClient, envelopes: Envelopes) -> None:
        self._client = client
        self._envelopes = envelopes
        self._drafting = asyncio.Lock()

    async def store(self, job: RemoteJob, replaces: Sequence[bool]) -> None:
        async with self._drafting:  # jobs in turn, so that one is sent while the next is copied
            indices, outgoing = await self._draft(job, replaces)
        for index, held in zip(
            indices, await self._client.put(outgoing, lambda: job.is_wanted) if outgoing else [], strict=True
        ):
            if held is None:
                job.failed.add(index)
            else:
                job.held[index] = held

    async def load(self, job: RemoteJob) -> None:
        indices = list(job.held)
        wanted = [(job.chunks[index].key, job.held[index]) for index in indices]
        for index, envelope in zip(indices, await self._client.get(wanted) if wanted else [], strict=True):
            chunk = job.chunks[index]
            if envelope is None:
                job.gone.add(index)
                continue
            if isinstance(envelope, StoreDownError):
                job.failed.add(index)
                continue
            payload = self._envelopes.open(envelope, chunk.key, *job.held[index][:2])
            if payload is None:
                is_another = self._envelopes.is_of_other_blocks(envelope, chunk.key, *job.held[index][:2])
                (job.gone if is_another else job.corrupt).add(index)
                continue
            with job.guard.access() as is_allowed:
                if not is_allowed:
                    return
                scatter(payload, chunk.buffers)
        job.failed |= job.gone | job.corrupt

    async def _draft(self, job: RemoteJob, replaces: Sequence[bool]) -> tuple[list[int], list[OutgoingChunk]]:
        """Copies and seals whole chunks, and fails the others. Does nothing for a cancelled job."""
        indices, outgoing, turn = [], [], 0
        for index, chunk in enumerate(job.chunks):
            draft = self._envelopes.draft(total_bytes(chunk.buffers))
            with job.guard.access() as is_allowed:
                if not is_allowed:
                    return [], []
                gather(chunk.buffers, draft.payload)
            if not gives_checksum(draft.payload, chunk.checksum):
                job.failed.add(index)
                continue
            envelope = self._envelopes.seal(draft, chunk.key, chunk.held_blocks)
            indices.append(index)
            num_bytes = len(draft.payload)
            outgoing.append(
                OutgoingChunk(chunk.key, chunk.held_blocks, num_bytes, envelope, chunk.tenant, replaces[index])
            )
            turn += num_bytes
            if turn >= _TURN_BYTES:
                turn = 0
                await asyncio.sleep(0)
        return indices, outgoing


async def attempt(call: Callable[[], Awaitable[T]], timeout_s: float) -> tuple[T | None, StoreDownError | None]:
    """The answer of a call, or the error that it ended with."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call(), None
    except TimeoutError:
        return None, StoreDownError(f"it has not answered within {timeout_s:g} s")
    except StoreDownError as error:
        return None, error
    except Exception as error:  # noqa: BLE001 - a client may raise anything, and the engine goes on
        _log.error("a store's client failed", exc_info=error)
        return None, StoreDownError(f"{type(error).__name__}: {error}")
