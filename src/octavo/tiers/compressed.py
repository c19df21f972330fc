"""A tier that keeps its chunks in another tier, in fewer bytes.

    store    buffers --copied--> thread: encode --> inner.submit_store --> reported
    load     inner.submit_load into scratch --> thread: decode --copied--> buffers, reported

One thread encodes and decodes. At most `_MOST_JOBS` jobs are under way at any stage, more are refused. The inner tier
verifies what it stores; a length that it tells is compared with the chunk's own before anything is allocated.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from octavo.chunks import ChunkBytes, OffloadKey, TierChanges, TierResult
from octavo.tiers.background import BackgroundJobs, BufferGuard, all_places, copy_bytes, gives_checksum, total_bytes
from octavo.tiers.base import Tier, TierStatus
from octavo.tiers.codecs import HEADER_BYTES, Codec

_MOST_JOBS = 32
_CLOSE_TIMEOUT_S = 5.0


class _Job(NamedTuple):
    is_store: bool
    chunks: Sequence[ChunkBytes]
    generation: int
    inner_id: int


class _Inner(NamedTuple):
    """What the inner tier does for a job."""

    job_id: int
    places: list[int]
    encoded: list[bytearray]
    """Of a load: where the encoded chunks go."""


class _Outcome(NamedTuple):
    """By place: what was encoded, or whether it was decoded; None for what was neither."""

    encoded: list[bytes | None]
    decoded: list[bool]
    raw_bytes: int
    encoded_bytes: int
    cpu_ns: int


class CompressedTier(Tier):
    """Another tier's chunks, encoded. Its medium is the inner tier's: that is where the chunks are."""

    def __init__(self, inner: Tier, codec: Codec) -> None:
        self.medium = inner.medium  # type: ignore[misc]  # a class has it, but for this one
        self._inner = inner
        self._codec = codec
        self._thread: BackgroundJobs[_Outcome] = BackgroundJobs("compression", _MOST_JOBS)
        self._jobs: dict[int, _Job] = {}
        self._at_inner: dict[int, _Inner] = {}
        """By the inner tier's number of the job."""
        self._inner_ids: Iterator[int] = count(1)
        self._finished: list[TierResult] = []
        self._generation = 0
        self._counters = dict.fromkeys(_COUNTERS, 0)

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._inner.lookup(keys)

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._inner.stored_bytes(keys)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._inner.touch(keys)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        if len(self._jobs) >= _MOST_JOBS:
            self._counters["jobs_refused"] += 1
            return False
        self._jobs[job_id] = _Job(
            is_store=True, chunks=chunks, generation=self._generation, inner_id=next(self._inner_ids)
        )
        self._thread.submit(job_id, lambda guard: self._encode(guard, chunks))
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        lengths = self._inner.stored_bytes([chunk.key for chunk in chunks])
        places = [
            place
            for place, (chunk, length) in enumerate(zip(chunks, lengths, strict=True))
            if 0 < length <= total_bytes(chunk.buffers) + HEADER_BYTES
        ]
        encoded = [bytearray(lengths[place]) for place in places]
        inner_chunks = [
            ChunkBytes(chunks[place].key, [memoryview(buffer)], chunks[place].held_blocks)
            for place, buffer in zip(places, encoded, strict=True)
        ]
        inner_id = next(self._inner_ids)
        if len(self._jobs) >= _MOST_JOBS or (places and not self._inner.submit_load(inner_id, inner_chunks)):
            self._counters["jobs_refused"] += 1
            return False
        self._jobs[job_id] = _Job(is_store=False, chunks=chunks, generation=self._generation, inner_id=inner_id)
        if places:
            self._at_inner[inner_id] = _Inner(job_id, places, encoded)
        else:
            self._report(job_id, all_places(len(chunks)))
        return True

    def cancel(self, job_id: int) -> None:
        job = self._jobs.pop(job_id, None)
        self._finished = [result for result in self._finished if result.job_id != job_id]
        self._thread.cancel(job_id)
        if job is not None and self._at_inner.pop(job.inner_id, None) is not None:
            self._inner.cancel(job.inner_id)

    def poll(self, now: float) -> list[TierResult]:
        self._go_on()
        for result in self._inner.poll(now):
            self._inner_has_finished(result)
        finished, self._finished = self._finished, []
        return finished

    def take_changes(self) -> TierChanges:
        return self._inner.take_changes()

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        self._inner.remove(keys)

    def reset(self) -> None:
        self._generation += 1
        self._inner.reset()

    def flush(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        if not self._thread.wait_idle(timeout_s):
            return False
        self._go_on()
        return self._inner.flush(max(0.0, deadline - time.monotonic()))

    def status(self) -> TierStatus:
        inner = self._inner.status()
        return TierStatus(
            state=inner.state,
            reason=inner.reason,
            bytes_used=inner.bytes_used,
            bytes_budget=inner.bytes_budget,
            num_chunks=inner.num_chunks,
            counters={**inner.counters, **self._counters},
        )

    def close(self) -> None:
        self.flush(_CLOSE_TIMEOUT_S)
        self._thread.close(_CLOSE_TIMEOUT_S)
        self._inner.close()

    # ---- in the thread ------------------------------------------------------------------------------------------

    def _encode(self, guard: BufferGuard, chunks: Sequence[ChunkBytes]) -> _Outcome:
        encoded: list[bytes | None] = []
        raw_bytes, began = 0, time.thread_time_ns()
        for chunk in chunks:
            data = np.empty(total_bytes(chunk.buffers), dtype=np.uint8)
            with guard.access() as is_allowed:
                if not is_allowed:
                    break
                copy_bytes(chunk.buffers, [data.data])
            is_sound = gives_checksum([data.data], chunk.checksum)
            encoded.append(self._codec.encode(chunk.key, data) if is_sound else None)
            raw_bytes += len(data)
        encoded += [None] * (len(chunks) - len(encoded))
        return _Outcome(
            encoded=encoded,
            decoded=[],
            raw_bytes=raw_bytes,
            encoded_bytes=sum(len(data) for data in encoded if data is not None),
            cpu_ns=time.thread_time_ns() - began,
        )

    def _decode(
        self, guard: BufferGuard, chunks: Sequence[ChunkBytes], encoded: Sequence[bytearray | None]
    ) -> _Outcome:
        """`encoded` by place, None for what the inner tier could not bring."""
        decoded: list[bool] = []
        began = time.thread_time_ns()
        for chunk, data in zip(chunks, encoded, strict=True):
            num_bytes = total_bytes(chunk.buffers)
            raw = None if data is None else self._codec.decode(chunk.key, memoryview(data), num_bytes)
            with guard.access() as is_allowed:
                if raw is not None and is_allowed:
                    copy_bytes([raw.data], chunk.buffers)
            decoded.append(raw is not None)
        return _Outcome(encoded=[], decoded=decoded, raw_bytes=0, encoded_bytes=0, cpu_ns=time.thread_time_ns() - began)

    # ---- between the stages -------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """What the thread has done goes to the inner tier, or is reported."""
        for job_id, outcome in self._thread.take_done():
            job = self._jobs[job_id]
            if outcome is None:
                self._report(job_id, all_places(len(job.chunks)))
            elif job.is_store:
                self._count(outcome, "encode_ns")
                self._store_at_inner(job_id, job, outcome.encoded)
            else:
                self._count(outcome, "decode_ns")
                self._report(job_id, frozenset(place for place, is_right in enumerate(outcome.decoded) if not is_right))

    def _store_at_inner(self, job_id: int, job: _Job, encoded: Sequence[bytes | None]) -> None:
        places = [place for place, data in enumerate(encoded) if data is not None]
        inner_chunks = [
            ChunkBytes(
                job.chunks[place].key, [memoryview(bytearray(encoded[place] or b""))], job.chunks[place].held_blocks
            )
            for place in places
        ]
        # what was submitted before a reset is forgotten
        is_current = job.generation == self._generation
        if places and is_current and self._inner.submit_store(job.inner_id, inner_chunks):
            self._at_inner[job.inner_id] = _Inner(job_id, places, [])
        else:
            self._report(job_id, all_places(len(job.chunks)))

    def _inner_has_finished(self, result: TierResult) -> None:
        inner = self._at_inner.pop(result.job_id)
        job = self._jobs[inner.job_id]
        good = {place: i for i, place in enumerate(inner.places) if i not in result.failed}
        if job.is_store:
            self._report(inner.job_id, all_places(len(job.chunks)) - set(good))
            return
        encoded = [inner.encoded[good[place]] if place in good else None for place in range(len(job.chunks))]
        self._thread.submit(inner.job_id, lambda guard: self._decode(guard, job.chunks, encoded))

    def _report(self, job_id: int, failed: frozenset[int]) -> None:
        del self._jobs[job_id]
        self._finished.append(TierResult(job_id, failed))

    def _count(self, outcome: _Outcome, cost: str) -> None:
        self._counters["raw_bytes"] += outcome.raw_bytes
        self._counters["encoded_bytes"] += outcome.encoded_bytes
        self._counters[cost] += outcome.cpu_ns


_COUNTERS = ("jobs_refused", "raw_bytes", "encoded_bytes", "encode_ns", "decode_ns")
"""The ratio of what was stored is raw_bytes / encoded_bytes, and its cost encode_ns / raw_bytes."""
