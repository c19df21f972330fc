"""`Storer`: resume points that are promised, and the chunks that are written to keep the promise.

Which boundary is promised is found with the reader's own rule, over device and tiers together: the largest at which
every group has what a resume needs. What is on a tier already is not written again; the rest is on the device, is held
there while it is read, and goes in small jobs, so that neither pages nor slots are held for long. So what a reader will
ask for at a promised boundary is there, unless a tier has evicted it.

A promise that does not fit keeps what fits: it is stored boundary by boundary, and stops at the first part without
room. Promises wait in a bounded queue. The oldest gives way: what it stood for is computed again some day.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from octavo.chunks import ChunkCopy, GroupOffloadConfig, OffloadKey, TransferResult
from octavo.ids import GroupIdx, Row
from octavo.offload.device import Device, OffloadedRequest
from octavo.offload.manager import OffloadingManager
from octavo.offload.manager_values import PreparedStore
from octavo.offload.request_state import RequestOffloadState
from octavo.offload.store_pins import StorePins
from octavo.offload.store_plan import ChunkOnDevice, Promise, Stage, StorePlanner
from octavo.transfer import OffloadingWorker

_MOST_PROMISES = 4096
_MOST_CHUNKS_IN_JOB = 64
_MOST_OF_MEMORY_IN_JOB = 1 / 8
"""A part is small enough that it is written to the tiers below while the next part is stored."""
_MOST_UNPINNED = 1 / 2
"""The part of memory that a promise may need without pins, since a policy gives up other requests' chunks first."""
_GROWTH = 17 / 16
"""How much longer a prompt that takes much of memory is when it is planned again."""


class StorePolicy(Enum):
    """When what a request computes is stored."""

    AT_ONCE = "at_once"
    """After every step, the chunks that the next promise will need; so less is left to do at its boundary."""
    AT_BOUNDARIES = "at_boundaries"
    """When a promised boundary is reached: the prompt's end, a checkpoint, the answer's end."""
    ON_EVICTION = "on_eviction"
    """When the device runs short of pages, oldest boundaries first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A part of a stage."""

    promise: Promise
    stage: Stage
    chunks: Sequence[ChunkOnDevice]
    is_last: bool
    """Whether it is the last part of its stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    rows: Sequence[tuple[GroupIdx, Sequence[Row]]]
    """(group, rows) that are held until they are read."""
    keys: Sequence[OffloadKey]
    num_bytes: int
    request: OffloadedRequest


class Storer:
    """Keeps promises, the oldest first, as fast as the bounds allow."""

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
        self._planner = StorePlanner(device, manager, groups)
        self._promises: deque[Promise] = deque()
        self._jobs: deque[_Job] = deque()
        """The remaining parts of the promise that is being kept."""
        self._pins = StorePins(manager, self._planner.is_prefix)
        self._pinned: Promise | None = None
        """The promise that is being kept, if its chunks are pinned."""
        self._has_hole = False
        """Whether the promise that is being kept lacks a part of its prefix."""
        self._stores: dict[int, _Store] = {}
        """Job -> store."""
        self._bytes_in_flight = 0
        self.num_dropped = 0
        """Promises that gave way, and parts of promises that were dropped because the device had lost their blocks or
        memory had no room."""
        self.num_stored_chunks = 0
        self.num_stored_bytes = 0
        self.num_failed_chunks = 0

    @property
    def is_storing(self) -> bool:
        return bool(self._stores)

    @property
    def has_more(self) -> bool:
        """Whether `pump` would submit something, now or once a store has ended."""
        return bool(self._jobs) or (bool(self._promises) and self._is_due())

    def promise(
        self, state: RequestOffloadState, points: Sequence[int], *, resumed_at: int = 0, is_milestone: bool = True
    ) -> None:
        """The request has computed everything up to these boundaries, and others may want to resume there. It has
        itself resumed at `resumed_at`, so the next request may do the same."""
        self._add(Promise(state=state, points=points, resumed_at=resumed_at, is_milestone=is_milestone))

    def store_ahead(self, state: RequestOffloadState, num_tokens: int) -> None:
        """The request is on its way to a boundary that it will promise. Some of what that boundary needs may be there
        already."""
        if self._policy is StorePolicy.AT_ONCE:
            self._add(Promise(state=state, points=(num_tokens,), is_final=False))

    def _add(self, promise: Promise) -> None:
        if len(self._promises) == _MOST_PROMISES:
            self._promises.popleft()
            self.num_dropped += 1
        self._promises.append(promise)

    def pump(self, *, is_flushing: bool = False) -> bool:
        """Submits stores as far as the bounds allow. Returns whether more waits."""
        while self._bytes_in_flight < self._most_bytes_in_flight:
            if self._jobs:
                if not self._submit(self._jobs[0]):
                    break
            elif self._promises and (is_flushing or self._is_due()):
                self._begin(self._promises.popleft())
            else:
                break
        return self.has_more or (is_flushing and bool(self._promises))

    def finished(self, result: TransferResult) -> bool:
        """Handles the end of a worker's job. False if the job is no store."""
        store = self._stores.pop(result.job_id, None)
        if store is None:
            return False
        self._bytes_in_flight -= store.num_bytes
        self.num_stored_bytes += store.num_bytes
        more_follows = store.request.num_computed_tokens < store.request.num_prompt_tokens
        self._manager.complete_store(result.job_id, result.failed, result.checksums, more_follows=more_follows)
        self.num_failed_chunks += len(result.failed)
        self._pins.arrived(store.keys)
        for group_idx, rows in store.rows:
            self._device.let_go(group_idx, rows)
        return True

    def forget(self) -> None:
        """Drops everything that waits to be stored. Stores in flight run to their ends."""
        self._promises.clear()
        self._end()

    def _is_due(self) -> bool:
        return self._policy is not StorePolicy.ON_EVICTION or self._device.free_share() < self._free_share_wanted

    def _begin(self, promise: Promise) -> None:
        """Plans what to write. A promise that takes much of memory, without a tier below, is pinned, and stored
        boundary by boundary from the first one on."""
        room = self._manager.room(promise.state.tenant)
        if room.is_memory and self._planner.writes_more_than(int(room.num_bytes * _MOST_UNPINNED), promise):
            if not (promise.is_final or all(self._planner.is_prefix)) or not _is_worth_staging(promise):
                return
            promise.state.staged_at = promise.state.request.num_computed_tokens
            self._pinned = promise = promise.stage_by_stage()
        for stage in self._planner.stages(promise, room):
            self._manager.renew(stage.keys_there)
            parts = self._parts_of(stage.chunks) or [[]]
            for part in parts:
                self._jobs.append(_Job(promise=promise, stage=stage, chunks=part, is_last=part is parts[-1]))

    def _end(self) -> None:
        """The promise is kept, as far as it fits."""
        self._jobs.clear()
        self._pins.release()
        self._pinned, self._has_hole = None, False

    def _parts_of(self, chunks: Sequence[ChunkOnDevice]) -> list[Sequence[ChunkOnDevice]]:
        """The parts of a stage, in order. A chunk that is larger than a part should be is a part of its own."""
        parts: list[list[ChunkOnDevice]] = []
        num_bytes = 0
        for chunk in chunks:
            own = len(chunk.blocks) * self._groups[chunk.group_idx].page_size_bytes
            if not parts or len(parts[-1]) == _MOST_CHUNKS_IN_JOB or num_bytes + own > self._most_job_bytes:
                parts.append([])
                num_bytes = 0
            parts[-1].append(chunk)
            num_bytes += own
        return list(parts)

    def _submit(self, job: _Job) -> bool:
        """Holds the rows of the first job and begins to copy them, or gives the job up. False: try again when a store
        has ended. A slow tier delays stores, since one whole promise on it is worth more than parts of many."""
        if job.promise is self._pinned:
            self._pins.add(job.stage.keys_there, job.stage)
            job.stage.keys_there.clear()
        chunks, rows = self._still_on_device(job)
        if len(chunks) < len(job.chunks):
            self.num_dropped += 1
            there = {chunk.chunk.key for chunk in chunks}
            self._has_hole |= any(
                self._planner.is_prefix[chunk.group_idx] for chunk in job.chunks if chunk.chunk.key not in there
            )
        is_whole = len(chunks) == len(job.chunks) and not self._has_hole
        promises = (job.stage.promised,) if job.stage.promised and job.is_last and is_whole else ()
        self._manager.make_room_for(job.promise.state.request.request_id)
        prepared = self._manager.prepare_store([chunk.chunk for chunk in chunks], promises, for_tiers=True)
        if prepared is None:
            if self._stores or self._manager.has_pending_work():
                return False
            self._make_smaller(job)
            return True
        if job.promise is self._pinned:
            keys = [chunk.chunk.key for chunk in chunks]
            coming = {keys[index] for index in prepared.indices}
            self._pins.expect(coming, job.stage)
            self._pins.add([key for key in keys if key not in coming], job.stage)
        if prepared.indices:
            self._copy(prepared, chunks, rows, job.promise.state.request)
        self._submitted(job, is_whole=is_whole)
        return True

    def _make_smaller(self, job: _Job) -> None:
        """Halves the first job, since memory has no room for all of it. A job that cannot be halved ends the
        promise."""
        if len(job.chunks) <= 1:
            self.num_dropped += 1
            self._end()
            return
        half = len(job.chunks) // 2
        self._jobs.popleft()
        self._jobs.appendleft(replace(job, chunks=job.chunks[half:]))
        self._jobs.appendleft(replace(job, chunks=job.chunks[:half], is_last=False))

    def _submitted(self, job: _Job, *, is_whole: bool) -> None:
        self._jobs.popleft()
        if job.is_last and is_whole and job.promise.is_final:
            state = job.promise.state
            state.stored_tokens = max(state.stored_tokens, job.stage.num_tokens)
            if job.promise is self._pinned:
                self._pins.keep_runs_of(job.stage)
        if not self._jobs:
            self._end()

    def _copy(
        self,
        prepared: PreparedStore,
        chunks: Sequence[ChunkOnDevice],
        rows: Sequence[list[Row]],
        request: OffloadedRequest,
    ) -> None:
        held: dict[GroupIdx, list[Row]] = {}
        copies, num_bytes = [], 0
        for index, slots in zip(prepared.indices, prepared.slots, strict=True):
            group_idx = chunks[index].group_idx
            held.setdefault(group_idx, []).extend(rows[index])
            copies.append(ChunkCopy(group_idx, rows[index], slots))
            num_bytes += len(rows[index]) * self._groups[group_idx].page_size_bytes
        for group_idx, own in held.items():
            self._device.hold(group_idx, own)
        self._stores[prepared.job_id] = _Store(
            rows=tuple(held.items()),
            keys=[chunks[index].chunk.key for index in prepared.indices],
            num_bytes=num_bytes,
            request=request,
        )
        self._bytes_in_flight += num_bytes
        self.num_stored_chunks += len(copies)
        self._worker.submit_store(prepared.job_id, copies)

    def _still_on_device(self, job: _Job) -> tuple[list[ChunkOnDevice], list[list[Row]]]:
        """The job's chunks whose blocks are all still on the device, and their rows."""
        chunks, rows = [], []
        on_device = self._device.blocks_of(job.promise.state.request)
        for chunk in job.chunks:
            blocks = on_device[chunk.group_idx]
            own = [blocks.index.get(blocks.hashes[block]) for block in chunk.blocks]
            if None not in own:
                chunks.append(chunk)
                rows.append([row for row in own if row is not None])
        return chunks, rows


def _is_worth_staging(promise: Promise) -> bool:
    """Whether to plan what fits of the request once more. That begins at its first token, so it is done at milestones,
    and when the request has grown: all plans together then take a few times as long as the last one."""
    is_milestone = promise.is_final and (promise.is_milestone or promise.resumed_at > 0)
    return is_milestone or promise.state.request.num_computed_tokens >= promise.state.staged_at * _GROWTH
