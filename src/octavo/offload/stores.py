"""Stores: resume points that are promised, and the chunks that are written to keep the promise.

Which boundary is promised is found with the reader's own rule, over device and tiers together: the largest at which
every group has what a resume needs. What is on a tier already is not written again; the rest is on the device, is held
there while it is read, and goes in small jobs, so that neither pages nor slots are held for long. So what a reader will
ask for at a promised boundary is there, unless a tier has evicted it.

Promises wait in a bounded queue. The oldest gives way: what it stood for is computed again some day.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from octavo.chunks import ChunkCopy, GroupOffloadConfig, OffloadKey, PromisedPoint, TransferResult, WantedChunk
from octavo.ids import GroupIdx, enumerate_groups
from octavo.offload.device import Device, DeviceBlocks, OffloadedRequest
from octavo.offload.load_plan import tiered_blocks
from octavo.offload.manager import OffloadingManager
from octavo.offload.offloaded_blocks import ANYWHERE, TieredBlocks
from octavo.offload.request_state import RequestGroupState
from octavo.specs import GroupAvailability, blocks_to_resume, longest_resume
from octavo.transfer import OffloadingWorker

_MOST_PROMISES = 4096
_MOST_CHUNKS_IN_JOB = 64
_MOST_OF_MEMORY_IN_JOB = 1 / 8
"""So that one part can be written to the tiers below while the next one is stored."""


class StorePolicy(Enum):
    """When what a request computes is stored."""

    AT_ONCE = "at_once"
    """After every step, what the next promise will need; so less is left to do at its boundary."""
    AT_BOUNDARIES = "at_boundaries"
    """When a promised boundary is reached: the prompt's end, a checkpoint, the answer's end."""
    ON_EVICTION = "on_eviction"
    """When the device runs short of pages, oldest boundaries first."""


class _ChunkOnDevice(NamedTuple):
    """A chunk that is to be stored, with the blocks that the device had when it was asked."""

    group_idx: GroupIdx
    blocks: Sequence[int]
    chunk: WantedChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    request: OffloadedRequest
    groups: Sequence[RequestGroupState]
    num_tokens: int
    is_final: bool
    """False: what is there already of a promise that will follow."""
    resumed_at: int = 0
    """A resume point that the request has used: what it needs is kept too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A part of a promise."""

    promise: _Promise
    chunks: Sequence[_ChunkOnDevice]
    promised: PromisedPoint | None
    """In the last part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    rows: Sequence[tuple[GroupIdx, Sequence[int]]]
    """(group, rows) that are held while they are read."""
    num_bytes: int


class Storer:
    """Keeps promises, oldest first, as fast as bounds allow."""

    def __init__(
        self,
        device: Device,
        manager: OffloadingManager,
        worker: OffloadingWorker,
        groups: Sequence[GroupOffloadConfig],
        *,
        policy: StorePolicy,
        most_bytes_in_flight: int,
        free_share_wanted: float,
    ) -> None:
        self._device = device
        self._manager = manager
        self._worker = worker
        self._groups = groups
        self._policy = policy
        self._most_bytes_in_flight = most_bytes_in_flight
        self._most_job_bytes = manager.arena.num_slots * manager.arena.slot_bytes * _MOST_OF_MEMORY_IN_JOB
        self._free_share_wanted = free_share_wanted
        self._promises: deque[_Promise] = deque()
        self._jobs: deque[_Job] = deque()
        """Of the promise that is being kept."""
        self._stores: dict[int, _Store] = {}
        """By number of the job."""
        self._bytes_in_flight = 0
        self.num_dropped = 0
        """Promises that gave way, and parts of some for which the device had lost the blocks, or memory had no room."""
        self.num_stored_chunks = 0
        self.num_stored_bytes = 0
        self.num_failed_chunks = 0

    @property
    def is_storing(self) -> bool:
        return bool(self._stores)

    @property
    def has_more(self) -> bool:
        """Whether something waits that `pump` would submit now, or once a store has ended."""
        return bool(self._jobs) or (bool(self._promises) and self._is_due())

    def promise(
        self, request: OffloadedRequest, groups: Sequence[RequestGroupState], num_tokens: int, *, resumed_at: int = 0
    ) -> None:
        """The request has computed `num_tokens`, and other requests may want to resume there. It has resumed itself at
        `resumed_at`, so the next request may do the same."""
        self._add(_Promise(request=request, groups=groups, num_tokens=num_tokens, is_final=True, resumed_at=resumed_at))

    def store_ahead(self, request: OffloadedRequest, groups: Sequence[RequestGroupState], num_tokens: int) -> None:
        """The request is on its way to a boundary that it will promise; part of what that needs may be there."""
        if self._policy is StorePolicy.AT_ONCE:
            self._add(_Promise(request=request, groups=groups, num_tokens=num_tokens, is_final=False))

    def _add(self, promise: _Promise) -> None:
        if len(self._promises) == _MOST_PROMISES:
            self._promises.popleft()
            self.num_dropped += 1
        self._promises.append(promise)

    def pump(self, *, is_flushing: bool = False) -> bool:
        """Submits what there is to store, as far as bounds allow; whether more waits."""
        while self._bytes_in_flight < self._most_bytes_in_flight:
            if self._jobs:
                if not self._submit(self._jobs[0]):
                    break
                self._jobs.popleft()
            elif self._promises and (is_flushing or self._is_due()):
                self._jobs.extend(self._jobs_of(self._promises.popleft()))
            else:
                break
        return self.has_more or (is_flushing and bool(self._promises))

    def finished(self, result: TransferResult) -> bool:
        """A job of the worker's has ended; False if it is no store."""
        store = self._stores.pop(result.job_id, None)
        if store is None:
            return False
        self._bytes_in_flight -= store.num_bytes
        self.num_stored_bytes += store.num_bytes
        self._manager.complete_store(result.job_id, result.failed, result.checksums)
        self.num_failed_chunks += len(result.failed)
        for group_idx, rows in store.rows:
            self._device.let_go(group_idx, rows)
        return True

    def forget(self) -> None:
        """Nothing that waits is to be stored any more; what is in flight ends."""
        self._promises.clear()
        self._jobs.clear()

    def _is_due(self) -> bool:
        return self._policy is not StorePolicy.ON_EVICTION or self._device.free_share() < self._free_share_wanted

    def _jobs_of(self, promise: _Promise) -> list[_Job]:
        """What is to be written for the boundary that can be promised."""
        request, config = promise.request, self._device.config
        on_device = self._device.blocks_of(request)
        tiered = tiered_blocks(promise.groups, on_device, self._manager, ANYWHERE)
        num_tokens = self._boundary(promise, tiered) if promise.is_final else promise.num_tokens
        if not num_tokens:
            return []
        used: list[OffloadKey] = []
        chunks: list[_ChunkOnDevice] = []
        for group_idx, (group, blocks) in enumerate_groups(zip(config.groups, tiered, strict=True)):
            runs = [
                run
                for boundary in (num_tokens, promise.resumed_at)
                if boundary
                for run in blocks_to_resume(
                    group.spec.rule,
                    request.resume_point(boundary),
                    is_draft=group.is_draft,
                    granularity=config.resume_granularity,
                )
            ]
            for run in _without_contained(runs):
                missing = blocks.offloaded.missing_in(run)
                used += blocks.offloaded.keys_in(run)
                chunks += _chunks_to_store(promise.groups[group_idx], blocks.device, missing, run)
        self._manager.touch(used)
        parts = self._parts_of(chunks)
        promised = self._promised_point(promise, num_tokens) if promise.is_final else None
        if not parts:
            parts = [[]] if promised else []
        return [_Job(promise=promise, chunks=part, promised=promised if part is parts[-1] else None) for part in parts]

    def _parts_of(self, chunks: Sequence[_ChunkOnDevice]) -> list[Sequence[_ChunkOnDevice]]:
        """In order; one chunk may be larger than a part should be."""
        parts: list[list[_ChunkOnDevice]] = []
        num_bytes = 0
        for chunk in chunks:
            own = len(chunk.blocks) * self._groups[chunk.group_idx].page_size_bytes
            if not parts or len(parts[-1]) == _MOST_CHUNKS_IN_JOB or num_bytes + own > self._most_job_bytes:
                parts.append([])
                num_bytes = 0
            parts[-1].append(chunk)
            num_bytes += own
        return list(parts)

    def _boundary(self, promise: _Promise, tiered: Sequence[TieredBlocks]) -> int:
        """The largest at which a reader could resume once all is stored: the reader's own rule."""
        config = self._device.config
        groups = [
            GroupAvailability(spec=group.spec.rule, blocks=blocks, is_draft=group.is_draft)
            for group, blocks in zip(config.groups, tiered, strict=True)
        ]
        point = promise.request.resume_point(promise.num_tokens + 1)
        return longest_resume(groups, point, granularity=config.resume_granularity).num_tokens

    def _promised_point(self, promise: _Promise, num_tokens: int) -> PromisedPoint | None:
        for group, state in zip(self._device.config.groups, promise.groups, strict=True):
            if group.spec.indexes_decoder_tokens and state.hashes:
                return PromisedPoint(num_tokens, state.hashes[num_tokens // group.block_size - 1])
        return None

    def _submit(self, job: _Job) -> bool:
        """Holds the rows and begins to copy them, or gives the job up. False: try again when something has ended. A
        tier that is slow holds stores up: a promise that it gets whole is worth more than parts of many."""
        chunks, rows = self._still_on_device(job)
        is_whole = len(chunks) == len(job.chunks)
        promises = (job.promised,) if job.promised and is_whole else ()
        prepared = self._manager.prepare_store([chunk.chunk for chunk in chunks], promises, for_tiers=True)
        if prepared is None:
            if self._stores or self._manager.has_pending_work():
                return False
            self.num_dropped += 1
            return True
        self.num_dropped += not is_whole
        if not prepared.places:
            return True
        held: dict[GroupIdx, list[int]] = {}
        copies, num_bytes = [], 0
        for place, slots in zip(prepared.places, prepared.slots, strict=True):
            group_idx = chunks[place].group_idx
            held.setdefault(group_idx, []).extend(rows[place])
            copies.append(ChunkCopy(group_idx, rows[place], slots))
            num_bytes += len(rows[place]) * self._groups[group_idx].page_size_bytes
        for group_idx, own in held.items():
            self._device.hold(group_idx, own)
        self._stores[prepared.job_id] = _Store(rows=tuple(held.items()), num_bytes=num_bytes)
        self._bytes_in_flight += num_bytes
        self.num_stored_chunks += len(copies)
        self._worker.submit_store(prepared.job_id, copies)
        return True

    def _still_on_device(self, job: _Job) -> tuple[list[_ChunkOnDevice], list[list[int]]]:
        """The job's chunks all of whose blocks the device still has, and their rows."""
        chunks, rows = [], []
        on_device = self._device.blocks_of(job.promise.request)
        for chunk in job.chunks:
            blocks = on_device[chunk.group_idx]
            own = [blocks.index.get(blocks.hashes[block]) for block in chunk.blocks]
            if None not in own:
                chunks.append(chunk)
                rows.append([row for row in own if row is not None])
        return chunks, rows


def _without_contained(runs: Sequence[range]) -> list[range]:
    """Ascending, and none that lies within another: of [0, 7) and [0, 12) the second."""
    kept: list[range] = []
    for run in sorted(runs, key=lambda run: (run.start, -run.stop)):
        if run and not (kept and run.stop <= kept[-1].stop):
            kept.append(run)
    return kept


def _chunks_to_store(
    state: RequestGroupState, device: DeviceBlocks, missing: Sequence[int], run: range
) -> list[_ChunkOnDevice]:
    """The chunks that bring the missing blocks of a run to the tiers, as far as the device has them."""
    size, group_idx, index, hashes = state.blocks_per_chunk, state.group_idx, device.index, device.hashes
    chunks = []
    for first in dict.fromkeys(block // size * size for block in missing) if size > 1 else missing:
        end = min(first + size, run.stop)
        blocks = [block for block in range(first, end) if hashes[block] in index]
        if not blocks or blocks[-1] != end - 1:
            continue  # not computed yet
        held = sum([1 << (block - first) for block in blocks])
        chunks.append(_ChunkOnDevice(group_idx, blocks, state.wanted_chunk(first, end - first, held)))
    return chunks
