"""A rank's side: vLLM's transfers as Octavo's.

vLLM     rows of all groups, one after the other; where each group's first row lies in its first chunk
Octavo   for each chunk its rows and slots
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import compress
from typing import NamedTuple

from vllm.v1.kv_offload.base import (
    CanonicalKVCaches as VllmCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)

from octavo.chunks import ChunkCopy
from octavo.errors import TransferError
from octavo.ids import NO_ROW, GroupIdx, Row, Slot, enumerate_groups
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    CpuWorker,
    OffloadingWorker as Worker,
    Page,
    PageShare,
    make_worker,
    share_beside,
    share_page,
)
from octavo.units import counted
from octavo.vllm_plugin.adapter.chunk_slots import ChunkSlots
from octavo.vllm_plugin.groups import most_missing
from octavo.vllm_plugin.ranks import GroupReport
from octavo.vllm_plugin.shared_arena import RankArena

logger = logging.getLogger(__name__)

_MOST_JOBS = 512
"""The most jobs in flight; the next `submit` waits. A worker takes twice as many before it fails jobs."""
_WAIT_S = 60.0
_INLINE_BYTES = 64 << 20
_EMPTY_STEP_S = 0.001
_PAUSE_S = 0.002
"""vLLM goes round without a pause while requests wait for loads, and takes the interpreter from the threads that copy.
After steps that come faster than any model computes, it waits this long for a transfer to end."""


class _Job(NamedTuple):
    copies: list[ChunkCopy]
    heads: list[Slot]
    """The first slot of each chunk."""
    num_bytes: int
    is_load: bool
    started: float


class OctavoWorker(OffloadingWorker):
    """Carries out the transfers of one rank. It maps the arena at the first transfer, when the scheduler has made
    it."""

    def __init__(
        self,
        caches: CanonicalKVCaches,
        groups: Sequence[GroupReport],
        blocks_per_chunk: int,
        pages: Sequence[Page | None],
        *,
        open_arena: Callable[[int], RankArena],
        reports_failed_loads: bool,
    ) -> None:
        """`pages`: by group, as far as it is known how ranks share them. `open_arena` takes the number of slots. If
        `reports_failed_loads` is false, nobody calls `take_failed_loads`, and a load that fails raises: vLLM would go
        on with bytes that are not there."""
        self._caches = caches
        self._groups = groups
        self._blocks_per_chunk = blocks_per_chunk
        self._pages = pages
        self._open_arena = open_arena
        self._reports_failed_loads = reports_failed_loads
        self._most_missing = most_missing(groups, blocks_per_chunk)
        self._arena: RankArena | None = None
        self._worker: Worker | None = None
        self._shares: list[PageShare] = []
        self._jobs: dict[int, _Job] = {}
        self._ended: list[TransferResult] = []
        self._failed_loads: set[int] = set()
        self._asked_at = 0.0

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        self._submit(job_id, src_spec, dst_spec, is_load=False)
        return True

    def submit_load(
        self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec, expedited: bool = False
    ) -> bool:
        """vLLM 0.33 waits within the step for a load that is expedited."""
        self._submit(job_id, dst_spec, src_spec, is_load=True)
        return True

    def get_finished(self) -> list[TransferResult]:
        """Reports every transfer as a success, since vLLM asserts that. Failures of stores are noted in the arena;
        those of loads raise here if nobody takes them."""
        if self._worker is not None and self._jobs and time.monotonic() - self._asked_at < _EMPTY_STEP_S:
            self._worker.wait_any(_PAUSE_S)
        self._collect()
        self._asked_at = time.monotonic()
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids: set[int]) -> None:
        """Waits until these transfers have ended, without a deadline: vLLM next uses their device pages for other
        tokens."""
        own = [job_id for job_id in job_ids if job_id in self._jobs]
        while own and self._worker is not None and not self._worker.wait(own, _WAIT_S):
            logger.warning("transfers %s have not ended for %d s; vLLM waits for them", own, _WAIT_S)
        self._collect()  # an expedited load that failed raises before the step computes with its pages

    def take_failed_loads(self) -> set[int]:
        failed, self._failed_loads = self._failed_loads, set()
        return failed

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def _submit(self, job_id: int, pages: GPULoadStoreSpec, chunks: LoadStoreSpec, *, is_load: bool) -> None:
        assert isinstance(chunks, ChunkSlots), chunks
        worker, arena = self._attached(chunks)
        copies, heads = [], []
        for head, copy in self._copies(arena, pages, chunks, is_load=is_load):
            copies.append(copy)
            heads.append(head)
        while len(self._jobs) >= _MOST_JOBS:
            worker.wait_any(_WAIT_S)
            self._collect()
        num_bytes = sum(sum(row >= 0 for row in c.rows) * self._page_bytes(c.group_idx) for c in copies)
        self._jobs[job_id] = _Job(copies, heads, num_bytes, is_load, time.monotonic())
        if is_load:
            worker.submit_load(job_id, copies)
        else:
            worker.submit_store(job_id, copies)

    def _page_bytes(self, group_idx: GroupIdx) -> int:
        return self._caches.page_size_bytes(group_idx)

    def _attached(self, chunks: ChunkSlots) -> tuple[Worker, RankArena]:
        if self._worker is None or self._arena is None:
            with ExitStack() as to_close:
                arena = self._open_arena(chunks.arena_slots)
                to_close.callback(arena.close)
                shares = [
                    self._share(arena, group_idx, *chunks.pages[group.group_id])
                    for group_idx, group in enumerate_groups(self._groups)
                ]
                self._worker = _make_worker(self._caches, arena, shares)
                to_close.pop_all()
            self._arena, self._shares = arena, shares
        return self._worker, self._arena

    def _share(self, arena: RankArena, group_idx: GroupIdx, whole_bytes: int, is_by_rank: bool) -> PageShare:
        page = self._pages[group_idx]
        if is_by_rank or page is None:
            return share_beside(self._page_bytes(group_idx), whole_bytes, arena.rank, arena.num_ranks)
        return share_page(page, arena.rank, arena.num_ranks)

    def _copies(
        self, arena: RankArena, pages: GPULoadStoreSpec, chunks: ChunkSlots, *, is_load: bool
    ) -> Iterator[tuple[Slot, ChunkCopy]]:
        """The first slot and the copy of each chunk. Another rank may write all that this one has; and with pipeline
        parallelism this one may have no layer of a group."""
        size, start = self._blocks_per_chunk, 0
        for group_idx, (group, num_rows, first) in enumerate_groups(
            zip(self._groups, pages.group_sizes, pages.block_indices, strict=True)
        ):
            rows = pages.block_ids[start : start + num_rows].tolist()
            start += num_rows
            is_own = [idx == group.group_id for idx in chunks.groups]
            slots_of_group = list(compress(chunks.slots, is_own))
            share = self._shares[group_idx]
            is_checked = list(compress(chunks.is_checked, is_own)) or [False] * len(slots_of_group)
            if is_load:
                rows_of_chunks = fill_load(rows, first % size, len(slots_of_group), size)
            else:
                rows_of_chunks = fill_store(
                    rows, first % size, len(slots_of_group), size, self._most_missing[group_idx]
                )
            for own, slots, check in zip(rows_of_chunks, slots_of_group, is_checked, strict=True):
                if own is None:
                    arena.note_failed(slots[0])
                elif share.loads if is_load else share.stores:
                    checksum = arena.find_checksum(slots[0]) if check else None
                    yield slots[0], ChunkCopy(group_idx, own, slots, checksum)

    def _collect(self) -> None:
        if self._worker is None:
            return
        now = time.monotonic()
        for result in self._worker.get_finished():
            job = self._jobs.pop(result.job_id)
            arena = self._arena_of_job()
            for head, checksum in zip(job.heads, result.checksums, strict=False):  # a load has none
                arena.note_checksum(head, checksum)
            for index in result.failed:
                arena.note_failed(job.heads[index])
            if result.failed and job.is_load:
                self._load_failed(result.job_id, len(result.failed))
            self._ended.append(TransferResult(result.job_id, True, job.num_bytes, now - job.started))

    def _arena_of_job(self) -> RankArena:
        assert self._arena is not None
        return self._arena

    def _load_failed(self, job_id: int, num_chunks: int) -> None:
        if not self._reports_failed_loads:
            raise TransferError(
                f"{counted(num_chunks, 'chunk')} did not reach the device as they were stored, and vLLM's "
                "OffloadingConnector cannot be told so: the engine ends rather than go on with other bytes. With "
                '"kv_connector": "OctavoConnector", "kv_connector_module_path": "octavo.vllm_plugin" and '
                '"kv_load_failure_policy": "recompute" it would '
                "compute what is missing"
            )
        self._failed_loads.add(job_id)


def _make_worker(caches: CanonicalKVCaches, arena: RankArena, shares: Sequence[PageShare]) -> Worker:
    """On a CPU most jobs end at once: a thread would wait for the interpreter far longer than a copy takes."""
    is_alone = arena.num_ranks == 1
    if caches.device.type == "cpu":
        return CpuWorker(caches, arena.slots, shares=shares, take_checksums=is_alone, inline_bytes=_INLINE_BYTES)
    return make_worker(caches, arena.slots, shares=shares, take_checksums=is_alone)


def fill_load(rows: list[Row], num_missing: int, num_chunks: int, size: int) -> list[list[Row] | None]:
    """Per chunk: a row for each of its blocks. A load may leave out blocks at both ends."""
    filled = [NO_ROW] * num_missing + rows
    filled += [NO_ROW] * (num_chunks * size - len(filled))
    return [filled[start : start + size] for start in range(0, num_chunks * size, size)]


def fill_store(
    rows: list[Row], num_missing: int, num_chunks: int, size: int, most_missing: int
) -> list[list[Row] | None]:
    """By chunk: a row for each of its blocks, or None if it cannot be stored.

    A store lacks the blocks that its request's window has passed. The first `most_missing` blocks of a chunk are needed
    by no resume at its end, so any row may stand for them. If more are missing, as when vLLM tries a store again late,
    the first chunk is not stored. If later blocks are missing, vLLM does not say which, and no chunk is stored.
    """
    if num_missing + len(rows) != num_chunks * size:
        return [None] * num_chunks
    filled = rows[:1] * num_missing + rows
    chunks: list[list[Row] | None] = [filled[start : start + size] for start in range(0, len(filled), size)]
    if num_missing > most_missing:
        chunks[0] = None
    return chunks


def as_canonical(caches: VllmCaches) -> CanonicalKVCaches:
    """vLLM's caches of a rank as Octavo's classes, over the same memory."""
    return CanonicalKVCaches(
        tensors=tuple(
            CanonicalKVCacheTensor(tensor=entry.tensor, page_size_bytes=entry.tensor.shape[1])
            for entry in caches.tensors
        ),
        group_refs=tuple(
            tuple(CanonicalKVCacheRef(tensor_idx=ref.tensor_idx, page_size_bytes=ref.page_size_bytes) for ref in refs)
            for refs in caches.group_data_refs
        ),
    )
