"""`ZstdTier`: keeps its chunks in another tier, encoded.

    store    buffers --copied--> thread: encode --> inner.submit_store --> reported
    load     inner.submit_load into scratch --> thread: decode --copied--> buffers, reported

One thread encodes and another decodes, since requests wait for loads alone. At most `_MOST_JOBS` stores, and as many
loads, are under way at any stage; more are refused. The inner tier verifies what it stores; a length that it tells is
compared with the chunk's own before anything is allocated.
"""

import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import count

import numpy as np

from octavo.chunks import ChunkBytes, OffloadKey, SequenceNames, TierChanges, TierResult
from octavo.tiers.base import Tier, TierStatus
from octavo.tiers.buffers import BufferGuard, gather, gives_checksum, scatter, total_bytes
from octavo.tiers.zstd.codec import HEADER_BYTES, ZstdPlanes

_MOST_JOBS = 32
_CLOSE_TIMEOUT_S = 5.0
_COUNTERS = ("store_refused", "load_refused")
_WORK = ("raw_bytes", "encoded_bytes", "encode_seconds", "decode_seconds")
"""The ratio of what was stored is raw_bytes / encoded_bytes, and its cost encode_seconds / raw_bytes."""
_log = logging.getLogger(__name__)


class _ZstdJob:
    """A caller's job. Chunks whose `encoded` is None have failed."""

    def __init__(self, job_id: int, chunks: Sequence[ChunkBytes], *, is_store: bool, inner_id: int) -> None:
        self.job_id = job_id
        self.chunks = chunks
        self.is_store = is_store
        self.inner_id = inner_id
        """The job's number at the inner tier."""
        self.guard = BufferGuard()
        self.encoded: list[bytearray | None] = [None] * len(chunks)
        self.in_thread: Future[None] | None = None
        self.forgotten: set[OffloadKey] = set()
        """Keys that were removed since the job was submitted."""

    def inner_chunks(self) -> list[ChunkBytes]:
        return [
            ChunkBytes(chunk.key, [memoryview(data)], chunk.held_blocks, tenant=chunk.tenant)
            for chunk, data in zip(self.chunks, self.encoded, strict=True)
            if data is not None
        ]

    def forget(self) -> None:
        """Lets chunks fail that were removed in the meantime."""
        for index, chunk in enumerate(self.chunks):
            if chunk.key in self.forgotten:
                self.encoded[index] = None

    def fail_inner(self, failed: frozenset[int]) -> None:
        """Drops the chunks with these indices among `inner_chunks`."""
        there = [index for index, data in enumerate(self.encoded) if data is not None]
        for i in failed:
            self.encoded[there[i]] = None


class ZstdTier(Tier):
    """Keeps the chunks of another tier, encoded. Its medium is that of the inner tier, where the chunks are."""

    def __init__(self, inner: Tier, codec: ZstdPlanes) -> None:
        self.medium = inner.medium  # type: ignore[misc]  # a class has it, but for this one
        self.cold_start = inner.cold_start
        self.asks_ahead = inner.asks_ahead
        self.shared_as = inner.shared_as
        self.gather_s = inner.gather_s
        self._inner = inner
        self._codec = codec
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="octavo-zstd-encode")
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="octavo-zstd-decode")
        self._jobs: dict[int, _ZstdJob] = {}
        self._at_inner: dict[int, _ZstdJob] = {}
        """Number at the inner tier -> job."""
        self._inner_ids = count(1)
        self._finished: list[TierResult] = []
        self._is_closed = False
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._work = dict.fromkeys(_WORK, 0.0)

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._inner.lookup(keys)

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._inner.stored_bytes(keys)

    def ask(self, sequence: SequenceNames, *, wants_answer: bool = True) -> bool:
        return self._inner.ask(sequence, wants_answer=wants_answer)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._inner.touch(keys)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        if not self._has_room(is_store=True):
            self._counters["store_refused"] += len(chunks)
            return False
        job = self._jobs[job_id] = _ZstdJob(job_id, chunks, is_store=True, inner_id=next(self._inner_ids))
        job.in_thread = self._encoder.submit(self._encode, job)
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        job = _ZstdJob(job_id, chunks, is_store=False, inner_id=next(self._inner_ids))
        for index, length in enumerate(self._inner.stored_bytes([chunk.key for chunk in chunks])):
            if 0 < length <= total_bytes(chunks[index].buffers) + HEADER_BYTES:
                job.encoded[index] = bytearray(length)
        inner_chunks = job.inner_chunks()
        if not self._has_room(is_store=False):
            self._counters["load_refused"] += len(chunks)
            return False
        if inner_chunks and not self._inner.submit_load(job.inner_id, inner_chunks):  # which counts it
            return False
        self._jobs[job_id] = job
        if inner_chunks:
            self._at_inner[job.inner_id] = job
        else:
            self._report(job)
        return True

    def cancel(self, job_id: int) -> None:
        self._finished = [result for result in self._finished if result.job_id != job_id]
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        job.guard.cancel()
        if job.in_thread is not None:
            job.in_thread.cancel()
        if self._at_inner.pop(job.inner_id, None) is not None:
            self._inner.cancel(job.inner_id)

    def poll(self, now: float) -> list[TierResult]:
        self._take_from_threads()
        for result in self._inner.poll(now):
            job = self._at_inner.pop(result.job_id)
            job.fail_inner(result.failed)
            if job.is_store:
                self._report(job)
            else:
                job.in_thread = self._decoder.submit(self._decode, job)
        finished, self._finished = self._finished, []
        return finished

    def take_changes(self) -> TierChanges:
        return self._inner.take_changes()

    def owned_by(self, tenants: Collection[bytes]) -> list[tuple[OffloadKey, bytes, int]]:
        return self._inner.owned_by(tenants)

    def announce(self) -> None:
        self._inner.announce()

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        for job in self._jobs.values():
            if job.is_store:
                job.forgotten.update(keys)
        self._inner.remove(keys)

    def reset(self) -> None:
        for job in self._jobs.values():
            job.forgotten.update(chunk.key for chunk in job.chunks)
        self._inner.reset()

    def is_reset_durable(self) -> bool:
        return self._inner.is_reset_durable()

    def flush(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        under_way = [job.in_thread for job in self._jobs.values() if job.in_thread is not None]
        if wait(under_way, timeout_s).not_done:
            return False
        self._take_from_threads()
        return self._inner.flush(max(0.0, deadline - time.monotonic()))

    def status(self) -> TierStatus:
        inner = self._inner.status()
        counters = Counter(inner.counters)
        counters.update(self._counters)
        return replace(inner, counters=counters, work={**inner.work, **self._work})

    def close(self) -> None:
        self.flush(_CLOSE_TIMEOUT_S)
        self._is_closed = True
        for job in self._jobs.values():
            job.guard.cancel()  # a thread ends with the chunk that it is at
        for thread in (self._encoder, self._decoder):
            thread.shutdown(cancel_futures=True)
        self._inner.close()

    def _has_room(self, *, is_store: bool) -> bool:
        num_jobs = sum(job.is_store is is_store for job in self._jobs.values())
        return num_jobs < _MOST_JOBS and not self._is_closed

    def _take_from_threads(self) -> None:
        """Sends encoded chunks to the inner tier, and reports decoded ones."""
        for job in list(self._jobs.values()):
            if job.in_thread is None or not job.in_thread.done():
                continue
            error, job.in_thread = job.in_thread.exception(), None
            if error is not None:
                _log.error("zstd: a job failed", exc_info=error)
            if error is not None:
                job.encoded = [None] * len(job.chunks)
            job.forget()
            chunks = job.inner_chunks() if job.is_store else []
            if chunks and self._inner.submit_store(job.inner_id, chunks):
                self._at_inner[job.inner_id] = job
                continue
            if job.is_store:
                job.encoded = [None] * len(job.chunks)
            self._report(job)

    def _report(self, job: _ZstdJob) -> None:
        del self._jobs[job.job_id]
        failed = frozenset(index for index, data in enumerate(job.encoded) if data is None)
        self._finished.append(TierResult(job.job_id, failed))

    # In the threads

    def _encode(self, job: _ZstdJob) -> None:
        began = time.thread_time()
        for index, chunk in enumerate(job.chunks):
            data = np.empty(total_bytes(chunk.buffers), dtype=np.uint8)
            with job.guard.access() as is_allowed:
                if not is_allowed:
                    return
                gather(chunk.buffers, data.data)
            if gives_checksum(data.data, chunk.checksum):
                encoded = job.encoded[index] = self._codec.encode(chunk.key, data)
                self._work["raw_bytes"] += len(data)
                self._work["encoded_bytes"] += len(encoded)
        self._work["encode_seconds"] += time.thread_time() - began

    def _decode(self, job: _ZstdJob) -> None:
        began = time.thread_time()
        for index, (chunk, encoded) in enumerate(zip(job.chunks, job.encoded, strict=True)):
            if encoded is None:
                continue
            data = self._codec.decode(memoryview(encoded), total_bytes(chunk.buffers))
            if data is None:
                job.encoded[index] = None
                continue
            with job.guard.access() as is_allowed:
                if not is_allowed:
                    return
                scatter(data.data, chunk.buffers)
        self._work["decode_seconds"] += time.thread_time() - began
