"""The simplest tier: a dict, a budget, and jobs that end at the next poll."""

from collections.abc import Mapping, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

from octavo.chunks import ChangeLog, ChunkBytes, OffloadKey, TierChanges, TierResult
from octavo.tiers import OffloadingSpec, Tier, TierContext, TierState, TierStatus


class NaiveTier(Tier):
    """Keeps bytes by key, and verifies them; the oldest give way."""

    medium = "naive"

    def __init__(self, budget_bytes: int, *, keys_told_per_call: int = 2048) -> None:
        self._budget_bytes = budget_bytes
        self._keys_told_per_call = keys_told_per_call
        self._chunks: dict[OffloadKey, tuple[int, bytes]] = {}
        self._checksums: dict[OffloadKey, int] = {}
        self._results: list[TierResult] = []
        self._changes = ChangeLog()
        self._untold: list[OffloadKey] = []

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return [self._chunks[key][0] if key in self._chunks else 0 for key in keys]

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return [len(self._chunks[key][1]) if key in self._chunks else 0 for key in keys]

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key in self._chunks:
                self._chunks[key] = self._chunks.pop(key)

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        failed = set()
        for index, chunk in enumerate(chunks):
            content = b"".join(chunk.buffers)
            if chunk.checksum is not None and xxh3_64_intdigest(content) != chunk.checksum:
                failed.add(index)
                continue
            is_there = chunk.key in self._chunks
            self.remove([chunk.key])
            while self._chunks and self._bytes_used() + len(content) > self._budget_bytes:
                self.remove([next(iter(self._chunks))])
            if len(content) > self._budget_bytes:
                failed.add(index)
                continue
            self._chunks[chunk.key] = (chunk.held_blocks, content)
            self._checksums[chunk.key] = xxh3_64_intdigest(content)
            self._changes.stored([chunk.key])
            self._changes.replaced([chunk.key] if is_there else [])
        self._results.append(TierResult(job_id, frozenset(failed)))
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        failed = set()
        for index, (key, buffers, held_blocks, *_) in enumerate(chunks):
            mask, content = self._chunks.get(key, (0, b""))
            if mask != held_blocks or len(content) != sum(map(len, buffers)):
                failed.add(index)
                continue
            if xxh3_64_intdigest(content) != self._checksums[key]:
                failed.add(index)
                self.remove([key])
                continue
            for buffer in buffers:
                buffer[:], content = content[: len(buffer)], content[len(buffer) :]
        self._results.append(TierResult(job_id, frozenset(failed)))
        return True

    def cancel(self, job_id: int) -> None:
        self._results = [result for result in self._results if result.job_id != job_id]

    def poll(self, now: float) -> list[TierResult]:
        results, self._results = self._results, []
        return results

    def take_changes(self) -> TierChanges:
        portion, self._untold = self._untold[: self._keys_told_per_call], self._untold[self._keys_told_per_call :]
        self._changes.stored([key for key in portion if key in self._chunks])
        return self._changes.take()[0]._replace(has_more=bool(self._untold))

    def announce(self) -> None:
        self._untold = list(self._chunks)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        self._changes.removed([key for key in keys if self._chunks.pop(key, None) is not None])

    def reset(self) -> None:
        self.remove(list(self._chunks))

    def is_reset_durable(self) -> bool:
        return True

    def flush(self, timeout_s: float) -> bool:
        return True

    def status(self) -> TierStatus:
        return TierStatus(
            state=TierState.OK,
            reason="",
            bytes_used=self._bytes_used(),
            bytes_budget=self._budget_bytes,
            num_chunks=len(self._chunks),
            counters={},
        )

    def close(self) -> None:
        self._chunks.clear()

    def flip_bit(self, key: OffloadKey) -> None:
        """In the bytes of a chunk, if it is there."""
        if key in self._chunks:
            mask, content = self._chunks[key]
            self._chunks[key] = (mask, bytes([content[0] ^ 1]) + content[1:])

    def _bytes_used(self) -> int:
        return sum(len(content) for _, content in self._chunks.values())


class NaiveSpec(OffloadingSpec):
    """Builds a `NaiveTier`."""

    name = "naive"

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "NaiveSpec":
        return cls(**config)

    def build(self, context: TierContext) -> NaiveTier:
        return NaiveTier(self._budget_bytes)
