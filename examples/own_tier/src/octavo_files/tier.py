"""`FilesTier`: what is kept, what gives way, and what is told. It never waits for the folder.

    submit_store   copies the bytes and makes room: what gives way is deleted before the new files are written
    poll           what the thread has done counts from here on: stores are found, loads are copied to their buffers

So a lookup asks a dict, a job's buffers are touched in `submit_store` and in `poll` only, and a job that is cancelled
is forgotten at once, however long the folder takes.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from octavo.chunks import ChunkBytes, OffloadKey, TierChanges, TierResult
from octavo.specs import ceil_div
from octavo.tiers import Tier, TierState, TierStatus
from octavo_files.thread import CHECKSUM_BYTES, FolderThread

_MOST_JOBS = 32
_DISK_BLOCK_BYTES = 4096
_CLOSE_TIMEOUT_S = 5.0


def cost_of(num_bytes: int) -> int:
    """What a chunk takes of the budget: a file fills whole blocks of the disk."""
    return ceil_div(num_bytes + CHECKSUM_BYTES, _DISK_BLOCK_BYTES) * _DISK_BLOCK_BYTES


class _File(NamedTuple):
    """One chunk's file. Its name says all that a lookup needs, so that opening a folder reads no file."""

    key: OffloadKey
    mask: int
    """Of the blocks that the chunk holds."""
    serial: int
    """No two files have the same: a key may be written again before its old file is deleted."""
    num_bytes: int

    @property
    def name(self) -> str:
        return f"{self.key.hex()}.{self.mask}.{self.serial}"

    @classmethod
    def of_entry(cls, entry: "os.DirEntry[str]") -> "_File | None":
        """None for a file that this tier did not name."""
        try:
            key, mask, serial = entry.name.split(".")
            num_bytes = entry.stat(follow_symlinks=False).st_size - CHECKSUM_BYTES
            return cls(OffloadKey(bytes.fromhex(key)), int(mask), int(serial), num_bytes)
        except ValueError:
            return None


class _Part(NamedTuple):
    """One chunk of a job, and its file that is being written or read; None where the chunk has failed before that."""

    chunk: ChunkBytes
    file: _File | None
    done: "Future[Any] | None"


@dataclass(slots=True, kw_only=True)
class _Job:
    job_id: int
    is_store: bool
    generation: int
    parts: list[_Part] = field(default_factory=list)
    is_cancelled: bool = False

    @property
    def is_done(self) -> bool:
        return all(part.done is None or part.done.done() for part in self.parts)


class FilesTier(Tier):
    """Chunks in a folder, the least recently used first to go."""

    medium = "files"

    def __init__(self, folder: Path, budget_bytes: int, lock: int) -> None:
        """`lock` is an open file that keeps other processes out. It is closed with the tier."""
        self._budget_bytes = budget_bytes
        self._lock: int | None = lock
        self._thread = FolderThread(folder)
        self._held: dict[OffloadKey, _File] = {}
        """What lookups find, the least recently used first."""
        self._bytes_used = 0
        """Of files that are there or are being written, but for those that the thread deletes before it goes on."""
        self._jobs: list[_Job] = []
        """In the order in which the thread does them."""
        self._generation = 0
        self._last_deletion: Future[None] | None = None
        self._touched: set[OffloadKey] = set()
        """Keys that came or went since the last `take_changes`."""
        self._counters = dict.fromkeys(("store_refused", "load_refused", "corrupt", "evicted"), 0)
        known = sorted(filter(None, map(_File.of_entry, os.scandir(folder))), key=lambda file: file.serial)
        self._serials = count(known[-1].serial + 1 if known else 0)
        for file in known:
            self._bytes_used += cost_of(file.num_bytes)
            self._hold(file)
        self._touched.clear()
        self._announced = set(self._held)
        """What others believe to be here, once they have asked."""
        self._make_room(0)

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return [file.mask if file else 0 for file in map(self._find, keys)]

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return [file.num_bytes if file else 0 for file in map(self._find, keys)]

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key in self._held:
                self._held[key] = self._held.pop(key)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        job = self._begin(job_id, len(chunks), is_store=True)
        if job is None:
            return False
        for chunk in chunks:
            content = b"".join(chunk.buffers)
            is_good = chunk.checksum in (None, xxh3_64_intdigest(content))  # else memory went wrong since
            if not is_good or not self._make_room(cost_of(len(content))):
                job.parts.append(_Part(chunk, None, None))
                continue
            file = _File(chunk.key, chunk.held_blocks, next(self._serials), len(content))
            self._bytes_used += cost_of(len(content))
            job.parts.append(_Part(chunk, file, self._thread.write(file.name, chunk.key, content)))
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        job = self._begin(job_id, len(chunks), is_store=False)
        if job is None:
            return False
        for chunk in chunks:
            file = self._find(chunk.key)
            is_as_asked = file is not None and file.mask == chunk.held_blocks
            if file is None or not is_as_asked or file.num_bytes != sum(map(len, chunk.buffers)):
                job.parts.append(_Part(chunk, None, None))
            else:
                job.parts.append(_Part(chunk, file, self._thread.read(file.name, chunk.key)))
        return True

    def cancel(self, job_id: int) -> None:
        for job in self._jobs:
            job.is_cancelled |= job.job_id == job_id

    def poll(self, now: float) -> list[TierResult]:
        results = []
        while self._jobs and self._jobs[0].is_done:
            job = self._jobs.pop(0)
            end = self._end_store if job.is_store else self._end_load
            failed = frozenset(index for index, part in enumerate(job.parts) if not end(job, part))
            if not job.is_cancelled:
                results.append(TierResult(job.job_id, failed))
        return results

    def take_changes(self) -> TierChanges:
        stored = [key for key in self._touched if key in self._held]
        removed = [key for key in self._touched if key in self._announced and key not in self._held]
        self._announced = self._announced.difference(removed).union(stored)
        self._touched.clear()
        return TierChanges(removed=removed, stored=stored)

    def announce(self) -> None:
        self._touched.update(self._held)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key in self._held:
                self._touched.add(key)
                self._delete(self._held.pop(key))

    def reset(self) -> None:
        self._generation += 1
        self.remove(list(self._held))

    def is_reset_durable(self) -> bool:
        """The thread deletes in order: when the last file is deleted, all are."""
        if any(job.generation != self._generation for job in self._jobs):
            return False
        last = self._last_deletion
        return last is None or (last.done() and last.exception() is None)

    def flush(self, timeout_s: float) -> bool:
        return self._thread.wait_idle(timeout_s)

    def status(self) -> TierStatus:
        return TierStatus(
            state=TierState.DEGRADED if self._thread.problem else TierState.OK,
            reason=self._thread.problem,
            bytes_used=self._bytes_used,
            bytes_budget=self._budget_bytes,
            num_chunks=len(self._held),
            counters=dict(self._counters),
        )

    def close(self) -> None:
        if self._lock is None:
            return
        self.flush(_CLOSE_TIMEOUT_S)
        self.poll(0.0)  # what was forgotten while it was being written is deleted now
        self.flush(_CLOSE_TIMEOUT_S)
        self._thread.close()
        os.close(self._lock)
        self._lock = None

    def _find(self, key: OffloadKey) -> _File | None:
        return None if self._thread.problem else self._held.get(key)

    def _begin(self, job_id: int, num_chunks: int, *, is_store: bool) -> _Job | None:
        """A new job, or None: too many wait for the thread, or the folder has failed."""
        if self._thread.problem or self._lock is None or len(self._jobs) >= _MOST_JOBS:
            self._counters["store_refused" if is_store else "load_refused"] += num_chunks
            return None
        self._jobs.append(_Job(job_id=job_id, is_store=is_store, generation=self._generation))
        return self._jobs[-1]

    def _end_store(self, job: _Job, part: _Part) -> bool:
        """Whether the chunk is found from here on."""
        if part.file is None or part.done is None or part.done.exception() is not None:
            return False
        if job.generation != self._generation:
            self._delete(part.file)
            return False
        self._hold(part.file)
        return True

    def _end_load(self, job: _Job, part: _Part) -> bool:
        """Whether the chunk's bytes are in its buffers now."""
        if part.file is None or part.done is None or part.done.exception() is not None:
            return False
        content = part.done.result()
        if content is None:
            self._counters["corrupt"] += 1
            if self._held.get(part.file.key) is part.file:
                self.remove([part.file.key])
            return False
        if not job.is_cancelled:
            for buffer in part.chunk.buffers:
                buffer[:], content = content[: len(buffer)], content[len(buffer) :]
        return True

    def _hold(self, file: _File) -> None:
        if before := self._held.pop(file.key, None):
            self._delete(before)
        self._held[file.key] = file
        self._touched.add(file.key)

    def _delete(self, file: _File) -> None:
        self._last_deletion = self._thread.delete(file.name)
        self._bytes_used -= cost_of(file.num_bytes)

    def _make_room(self, num_bytes: int) -> bool:
        """Lets the least recently used chunks go. False: what is being written leaves no room."""
        while self._bytes_used + num_bytes > self._budget_bytes:
            oldest = next(iter(self._held), None)
            if oldest is None:
                return False
            self.remove([oldest])
            self._counters["evicted"] += 1
        return True
