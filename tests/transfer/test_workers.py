import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Barrier, Event, get_ident
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from xxhash import xxh3_64_intdigest

from octavo.chunks import ChunkCopy
from octavo.errors import InvalidTransferError, TransferError
from octavo.host import HostArena
from octavo.testing import OffloadingWorkerSuite
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    CpuWorker,
    HostCopier,
    StagedWorker,
    make_worker,
)
from octavo.transfer.cuda_worker import CudaLane
from octavo.transfer.raw_memory import PinnedSlots
from rigs.host_lane import HostLane

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class TestCpuWorker(OffloadingWorkerSuite):
    """Small jobs: done before submit returns."""

    def worker(self, caches, slots, *, take_checksums):
        return make_worker(caches, slots, take_checksums=take_checksums)


class TestCpuWorkerThread(OffloadingWorkerSuite):
    def worker(self, caches, slots, *, take_checksums):
        return CpuWorker(caches, slots, take_checksums=take_checksums, inline_bytes=-1)


@pytest.fixture(scope="class")
def sharing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("octavo.transfer.host_copier.PART_BYTES", 1)
        patch.setattr("octavo.transfer.host_copier.SMALL_BYTES", 1)
        yield


@pytest.mark.usefixtures("sharing")
class TestCpuWorkerShared(TestCpuWorkerThread):
    """Every job of several chunks is shared by two threads."""


class Unpinned(PinnedSlots):
    """Memory that cannot be pinned: the device has no address for it."""

    def __init__(self, slots, device):
        super().__init__(slots, device)
        self.close()


WAYS = {
    "as they are": {},
    "a copy for each piece in staging": {"link.LARGE_BYTES": 1},
    "nothing through staging": {"link.DIRECT_BYTES": 1},
    "all parts of a page at once": {"staging.FEW_REFS": 0, "staging._LEAST_UNIT_BYTES": 1},
    "not pinned": {"staged_worker.PinnedSlots": Unpinned},
}
"""The ways of small pages over the link, by what sends them there."""


@pytest.fixture(scope="class", params=WAYS)
def way(request) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[request.param].items():
            patch.setattr(f"octavo.transfer.{name}", value)
        yield


class StagedWorkers(OffloadingWorkerSuite):
    """What the CUDA worker does beside its streams."""

    staged_blocks: int

    def worker(self, caches, slots, *, take_checksums):
        largest = max(caches.page_size_bytes(i) for i in range(len(caches.group_refs)))
        staging = self.staged_blocks * largest
        return StagedWorker(caches, slots, make_lane=HostLane, take_checksums=take_checksums, staging_bytes=staging)


@pytest.mark.usefixtures("way")
class TestStagedWorker(StagedWorkers):
    staged_blocks = 4


class TestStagedWorkerNarrow(StagedWorkers):
    """Staging holds a block, the least: a chunk of the largest blocks goes through it one by one."""

    staged_blocks = 0


@needs_cuda
@pytest.mark.usefixtures("way")
class TestCudaWorker(OffloadingWorkerSuite):
    device = "cuda"

    def worker(self, caches, slots, *, take_checksums):
        return make_worker(caches, slots, take_checksums=take_checksums)


@needs_cuda
def test_cuda_memory_that_is_pinned_already_is_copied_without(caplog):
    slots = np.zeros((8, 64), np.uint8)
    first, second = (make_worker(small_caches("cuda"), slots) for _ in range(2))
    assert "512 bytes of memory cannot be pinned for the GPU" in caplog.text
    second.submit_store(1, [ChunkCopy(0, [1], [1])])
    assert second.wait([1], 60)
    assert not second.get_finished()[0].failed
    first.close()
    second.close()


@needs_cuda
@pytest.mark.skipif(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 24 << 30, reason="takes 18 GB")
@pytest.mark.parametrize("by_kernel", [False, True])
def test_cuda_slots_beyond_32_bits_are_reached(by_kernel, monkeypatch):
    """Kernels count elements, here more than 2**31 words of an arena."""
    if by_kernel:
        monkeypatch.setattr("octavo.transfer.link.LARGE_BYTES", 1 << 20)
    page, num_slots = 64 << 10, 280_000
    rows = torch.arange(8, dtype=torch.int8, device="cuda")[:, None].expand(8, page).contiguous()
    caches = CanonicalKVCaches(
        tensors=(CanonicalKVCacheTensor(tensor=rows, page_size_bytes=page),),
        group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=page),),),
    )
    arena = HostArena(num_slots, page)
    worker = make_worker(caches, arena.view, take_checksums=True)
    slots = [0, 262_143, 262_144, num_slots - 1]
    worker.submit_store(1, [ChunkCopy(0, [1 + i], [slot]) for i, slot in enumerate(slots)])
    assert worker.wait([1], 60)
    assert [arena.view[slot].max() for slot in slots] == [arena.view[slot].min() for slot in slots] == [1, 2, 3, 4]
    rows.zero_()
    worker.submit_load(2, [ChunkCopy(0, [7 - i], [slot]) for i, slot in enumerate(slots)])
    assert worker.wait([2], 60)
    assert rows[:, [0, -1]].tolist() == [[0, 0]] * 4 + [[4, 4], [3, 3], [2, 2], [1, 1]]
    worker.close()
    arena.close()


@needs_cuda
def test_cuda_transfers_are_ordered_with_the_kernels_around_them():
    caches, slots = small_caches("cuda"), np.zeros((8, 64), np.uint8)
    worker = make_worker(caches, slots)
    rows = caches.tensors[0].tensor
    torch.cuda._sleep(50_000_000)
    rows.fill_(5)
    worker.submit_store(1, [ChunkCopy(0, [2], [3])])
    assert worker.wait([1], 60)
    assert (slots[3] == 5).all()
    torch.cuda._sleep(50_000_000)
    rows.fill_(6)
    worker.submit_load(2, [ChunkCopy(0, [4], [3])])
    assert worker.wait([2], 60)
    assert rows[[3, 4]].sum(dim=1).tolist() == [6 * 64, 5 * 64]
    worker.close()


def test_a_job_sets_up_no_device_but_its_own(monkeypatch):
    """Torch goes back from a stream to the device that the thread had before, and sets it up for that: so the thread
    must have the stream's. From a device it goes back to one that is set up only."""
    entered = []

    @contextmanager
    def entering(what):
        entered.append(what)
        yield

    stream = SimpleNamespace(wait_event=entered.append, synchronize=lambda: entered.append("end"))
    for name, value in {"Stream": lambda device: stream, "stream": entering, "device": entering}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    with CudaLane(torch.device("cuda:1")).after("mark"):
        pass
    assert entered == [torch.device("cuda:1"), stream, "mark", "end"]


class LostDevice(HostLane):
    """A lane whose device is lost, before or after a job is handed over."""

    def __init__(self, *, when: str) -> None:
        self.when = when

    def mark(self):
        if self.when == "mark":
            raise RuntimeError("the device is lost")

    @contextmanager
    def after(self, mark) -> Iterator[None]:
        yield
        if self.when == "after":
            raise RuntimeError("the device is lost")


@pytest.mark.parametrize("when", ["mark", "after"])
def test_a_lost_device_is_a_failed_job(when, caplog):
    caches, slots = small_caches(), np.zeros((8, 64), np.uint8)
    worker = StagedWorker(caches, slots, make_lane=lambda: LostDevice(when=when), staging_bytes=1024)
    worker.submit_store(1, [ChunkCopy(0, [1], [1]), ChunkCopy(0, [2], [2])])
    worker.submit_load(2, [ChunkCopy(0, [3], [3])])
    assert worker.wait([1, 2], 60)
    assert {(job.job_id, job.failed) for job in worker.get_finished()} == {(1, frozenset({0, 1})), (2, frozenset({0}))}
    assert [record.message.split(";")[1] for record in caplog.records] == [" further failures are reported, not logged"]
    worker.close()


def test_transfers_come_after_the_moment_of_their_submission():
    """A job takes its mark on the caller's thread, and gives it to its lane."""
    used = []

    class Recorder(HostLane):
        def mark(self):
            return get_ident(), len(used)

        def after(self, mark):
            used.append(mark)
            return super().after(mark)

    worker = StagedWorker(small_caches(), np.zeros((8, 64), np.uint8), make_lane=Recorder, staging_bytes=64)
    worker.submit_store(1, [ChunkCopy(0, [1], [1]), ChunkCopy(0, [2], [2])])
    assert worker.wait([1], 60)
    worker.submit_load(2, [ChunkCopy(0, [3], [1])])
    assert worker.wait([2], 60)
    assert used == [(get_ident(), 0), (get_ident(), 1)]
    worker.close()


@pytest.mark.parametrize("page", [60, 64])
def test_what_is_made_in_inference_mode_is_written_to_all_the_same(page):
    """As in vLLM, whose steps are in it. Pages of whole words and of others."""
    with torch.inference_mode():
        caches, slots = small_caches(page=page), np.zeros((8, 64), np.uint8)
        caches.tensors[0].tensor[1] = 5
        worker = StagedWorker(caches, slots, make_lane=HostLane, staging_bytes=1024)
    worker.submit_store(1, [ChunkCopy(0, [1], [1])])
    assert worker.wait([1], 60)
    worker.submit_load(2, [ChunkCopy(0, [2], [1])])
    assert worker.wait([2], 60)
    assert [job.failed for job in worker.get_finished()] == [set(), set()]
    assert caches.tensors[0].tensor[:4, 0].tolist() == [0, 5, 5, 0]
    worker.close()


def test_memory_may_begin_anywhere():
    """Its words are then not those of the tensors over it."""
    memory = np.zeros(1024, np.uint8)
    start = -memory.ctypes.data % 8 + 4
    rows = torch.from_numpy(memory[start:][:160].view(np.int8)).view(10, 16)
    rows[1] = 5
    caches = CanonicalKVCaches(
        tensors=(CanonicalKVCacheTensor(tensor=rows, page_size_bytes=16),),
        group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=8, offset=4),),),
    )
    slots = memory[start + 160 :][:64].reshape(8, 8)
    worker = StagedWorker(caches, slots, make_lane=HostLane, staging_bytes=64)
    worker.submit_store(1, [ChunkCopy(0, [1], [1])])
    assert worker.wait([1], 60)
    worker.submit_load(2, [ChunkCopy(0, [2], [1])])
    assert worker.wait([2], 60)
    assert [job.failed for job in worker.get_finished()] == [set(), set()]
    assert rows[2].tolist() == [0] * 4 + [5] * 8 + [0] * 4
    worker.close()


def test_a_large_job_is_shared_by_two_threads(monkeypatch):
    """Where copies let the other thread run. The bytes are in place, and every checksum is its own chunk's."""
    monkeypatch.setattr("octavo.transfer.host_copier.PART_BYTES", 64 << 10)
    rows = torch.randint(-128, 128, (8, 64 << 10), dtype=torch.int8, device="cpu")
    caches = CanonicalKVCaches(
        tensors=(CanonicalKVCacheTensor(tensor=rows, page_size_bytes=64 << 10),),
        group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=64 << 10),),),
    )
    slots, threads, both = np.zeros((8, 64 << 10), np.uint8), set(), Barrier(2)
    copier = HostCopier(caches, slots)
    copy = copier._copy

    def copy_together(*args, **kwargs):
        threads.add(get_ident())
        both.wait(300)
        copy(*args, **kwargs)

    monkeypatch.setattr(copier, "_copy", copy_together)
    batches = copier.planner.plan([ChunkCopy(0, [row], [7 - row]) for row in range(8)], is_load=False)
    checksums = copier.store(batches, num_chunks=8, take_checksums=True)
    assert len(threads) == 2
    assert (slots[::-1] == rows.numpy().view(np.uint8)).all()
    assert checksums == [xxh3_64_intdigest(slots[7 - row]) for row in range(8)]
    copier.close()


def test_jobs_beyond_the_bound_fail_at_once(monkeypatch):
    worker = CpuWorker(small_caches(), np.zeros((8, 64), np.uint8), inline_bytes=-1, max_jobs=2)
    gate = Event()
    monkeypatch.setattr(worker._copier, "store", lambda *_, **__: gate.wait(300) and ())
    for job_id in range(4):
        worker.submit_store(job_id, [ChunkCopy(0, [job_id], [job_id])])
    assert [(job.job_id, job.failed) for job in worker.get_finished()] == [(2, {0}), (3, {0})]
    assert not worker.wait([0], 0)
    worker.wait_any(0)
    assert worker.get_finished() == []
    with pytest.raises(InvalidTransferError, match="job 1 has not ended"):
        worker.submit_load(1, [ChunkCopy(0, [1], [1])])
    gate.set()
    assert worker.wait([0, 1], 60)
    assert [(job.job_id, job.failed) for job in worker.get_finished()] == [(0, set()), (1, set())]
    worker.close()


@pytest.mark.parametrize("make", [make_worker, partial(StagedWorker, make_lane=HostLane)])
def test_a_worker_needs_an_arena_in_one_piece(make):
    for slots in (np.zeros((8, 64), np.int8), np.zeros(64, np.uint8), np.zeros((8, 64), np.uint8)[:, ::2]):
        with pytest.raises(TransferError, match="an arena is one piece of uint8"):
            make(small_caches(), slots)


def test_a_worker_needs_a_device_that_it_knows():
    with pytest.raises(TransferError, match="'meta'; there are some for cpu and cuda"):
        make_worker(small_caches("meta"), np.zeros((8, 64), np.uint8))


def small_caches(device: str = "cpu", page: int = 64) -> CanonicalKVCaches:
    rows = torch.zeros(10, page, dtype=torch.int8, device=device)
    return CanonicalKVCaches(
        tensors=(CanonicalKVCacheTensor(tensor=rows, page_size_bytes=page),),
        group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=page),),),
    )
