"""The contract of an `OffloadingWorker`, as a suite that its test subclasses:

class TestCpuWorker(OffloadingWorkerSuite):
    def worker(self, caches, slots, *, take_checksums):
        return CpuWorker(caches, slots, take_checksums=take_checksums)

Bytes are compared by content: all pages and all slots, before and after.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from xxhash import xxh3_64_intdigest

from octavo.chunks import ChunkCopy, TransferResult
from octavo.errors import InvalidTransferError
from octavo.ids import NO_ROW, GroupIdx, Row, Slot, enumerate_groups
from octavo.planning import KVCacheConfig
from octavo.testing.small_models import MODEL_EXAMPLES
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    OffloadingWorker,
    register_sheets,
)

_shared = settings(suppress_health_check=[HealthCheck.differing_executors], deadline=None)
"""Subclasses run the same test; each builds its own worker, so none sees another's examples."""

_TIMEOUT_S = 60.0
_UNTOUCHED = 0xA5
"""The bytes in slots before a store."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class _Host:
    """Caches over a device's memory, and an arena."""

    memory: Sequence[torch.Tensor]
    """int8 tensors, each in one piece; the caches are views of them, and may overlap."""
    caches: CanonicalKVCaches
    slots: Bytes

    @property
    def groups(self) -> list[GroupIdx]:
        return [group_idx for group_idx, refs in enumerate_groups(self.caches.group_refs) if refs]

    def image(self) -> list[Bytes]:
        """A copy of all bytes of the device."""
        return [piece.reshape(-1).cpu().numpy().view(np.uint8).copy() for piece in self.memory]

    def parts(self, image: Sequence[Bytes], group_idx: GroupIdx, row: int) -> list[Bytes]:
        """The parts of a block in an image, in the order in which they are offloaded."""
        parts = []
        for ref in self.caches.group_refs[group_idx]:
            rows = self.caches.tensors[ref.tensor_idx].tensor
            start = rows.data_ptr() + row * rows.stride(0) + ref.offset
            for piece, content in zip(self.memory, image, strict=True):
                if piece.data_ptr() <= start < piece.data_ptr() + len(content):
                    offset = start - piece.data_ptr()
                    parts.append(content[offset : offset + ref.page_size_bytes])
        return parts

    def block(self, image: Sequence[Bytes], group_idx: GroupIdx, row: int) -> bytes:
        return b"".join(part.tobytes() for part in self.parts(image, group_idx, row))

    def put_block(self, image: Sequence[Bytes], group_idx: GroupIdx, row: int, content: bytes) -> None:
        """Writes a block's bytes into an image, as a load does."""
        for part in self.parts(image, group_idx, row):
            part[:] = np.frombuffer(content[: len(part)], np.uint8)
            content = content[len(part) :]

    def in_slots(self, chunk: ChunkCopy) -> bytes:
        num_bytes = len(chunk.rows) * self.caches.page_size_bytes(chunk.group_idx)
        return b"".join(self.slots[slot].tobytes() for slot in chunk.slots)[:num_bytes]


class OffloadingWorkerSuite:
    """The contract of a worker. A subclass builds it; it may override a test with a reason."""

    device = "cpu"

    def worker(self, caches: CanonicalKVCaches, slots: Bytes, *, take_checksums: bool) -> OffloadingWorker:
        """A worker to check."""
        raise TypeError(f"{type(self).__name__} must override worker()")

    @_shared
    @given(data=st.data())
    def test_a_store_puts_blocks_one_after_the_other(self, data: st.DataObject) -> None:
        host = data.draw(self._hosts(), label="host")
        chunks = data.draw(_chunks(host), label="chunks")
        before, image = host.slots.copy(), host.image()
        with self._working(host, take_checksums=True) as worker:
            worker.submit_store(7, chunks)
            result = _only_result(worker, 7)
        assert result.failed == frozenset()
        for chunk, checksum in zip(chunks, result.checksums, strict=True):
            content = b"".join(host.block(image, chunk.group_idx, row) for row in chunk.rows)
            assert host.in_slots(chunk) == content
            assert checksum == xxh3_64_intdigest(content)
        others = sorted(set(range(len(host.slots))) - {slot for chunk in chunks for slot in chunk.slots})
        assert (host.slots[others] == before[others]).all()
        assert _equal(host.image(), image)

    @_shared
    @given(data=st.data())
    def test_what_was_stored_is_loaded_into_other_rows(self, data: st.DataObject) -> None:
        host = data.draw(self._hosts(), label="host")
        stored = data.draw(_chunks(host), label="stored")
        before, expected = host.image(), host.image()
        wanted = data.draw(_other_rows(host, stored), label="loaded")
        for old, new in zip(stored, wanted, strict=True):
            for from_row, to_row in zip(old.rows, new.rows, strict=True):
                if to_row >= 0:
                    content = host.block(before, old.group_idx, from_row)
                    host.put_block(expected, old.group_idx, to_row, content)
        is_verified = data.draw(st.booleans(), label="is_verified")
        with self._working(host, take_checksums=is_verified) as worker:
            worker.submit_store(1, stored)
            sums = _only_result(worker, 1).checksums
            assert len(sums) == (len(stored) if is_verified else 0)
            if is_verified:
                wanted = [chunk._replace(checksum=sum_) for chunk, sum_ in zip(wanted, sums, strict=True)]
            worker.submit_load(2, wanted)
            assert _only_result(worker, 2).failed == frozenset()
        assert _equal(host.image(), expected)

    @_shared
    @given(data=st.data())
    def test_damaged_bytes_are_not_left_on_the_device(self, data: st.DataObject) -> None:
        host = data.draw(self._hosts(), label="host")
        chunks = data.draw(_chunks(host), label="chunks")
        damaged = data.draw(st.sets(st.sampled_from(range(len(chunks)))), label="damaged")
        with self._working(host, take_checksums=True) as worker:
            worker.submit_store(1, chunks)
            sums = _only_result(worker, 1).checksums
            sealed = [chunk._replace(checksum=sum_) for chunk, sum_ in zip(chunks, sums, strict=True)]
            for index in damaged:
                offset = data.draw(st.integers(0, len(host.in_slots(chunks[index])) - 1), label="offset")
                slot_idx, byte = divmod(offset, host.slots.shape[1])
                host.slots[chunks[index].slots[slot_idx], byte] ^= 1 << data.draw(st.integers(0, 7), label="bit")
            for piece in host.memory:
                piece.fill_(0x77)
            untouched, erased = host.image(), host.image()
            for index, chunk in enumerate(chunks):
                size = host.caches.page_size_bytes(chunk.group_idx)
                content = host.in_slots(chunk)
                for i, row in enumerate(chunk.rows):
                    block = content[i * size : (i + 1) * size]
                    if index not in damaged:
                        host.put_block(untouched, chunk.group_idx, row, block)
                    host.put_block(erased, chunk.group_idx, row, bytes(size) if index in damaged else block)
            worker.submit_load(2, sealed)
            assert _only_result(worker, 2).failed == damaged
        assert _equal(host.image(), untouched) or _equal(host.image(), erased)

    @_shared
    @given(data=st.data())
    def test_every_job_is_reported_once(self, data: st.DataObject) -> None:
        host = data.draw(self._hosts(), label="host")
        jobs = [[chunk] for chunk in data.draw(_chunks(host), label="chunks")]
        with self._working(host, take_checksums=False) as worker:
            for job_id, chunks in enumerate([[], *jobs]):
                worker.submit_store(job_id, chunks)
            ids = range(len(jobs) + 1)
            reported: list[int] = []
            while len(reported) < len(ids):
                worker.wait_any(_TIMEOUT_S)
                finished = worker.get_finished()
                assert finished
                reported += [result.job_id for result in finished]
            assert sorted(reported) == list(ids)
            assert worker.wait(ids, _TIMEOUT_S)
            worker.wait_any(_TIMEOUT_S)
            assert worker.get_finished() == []

    def test_a_closed_worker_fails_what_it_is_given(self) -> None:
        host = self._host("full only", slot_bytes=64)
        worker = self.worker(host.caches, host.slots, take_checksums=True)
        worker.submit_store(1, [_copy(0, [0], [0, 1])])
        worker.close()
        worker.submit_store(2, [_copy(0, [0], [0, 1]), _copy(0, [1], [2, 3])])
        first, second = sorted(worker.get_finished())
        assert (first.job_id, second.job_id) == (1, 2)
        assert first.failed in (frozenset(), frozenset({0}))
        assert second.failed == frozenset({0, 1})

    def test_what_is_not_there_is_refused(self) -> None:
        host = self._host("encoder-only + full", slot_bytes=64)
        (group_idx,) = host.groups
        (nothing,) = {GroupIdx(0), GroupIdx(1)} - {group_idx}
        rows, before = host.caches.num_blocks(group_idx), host.image()
        size = host.caches.page_size_bytes(group_idx)
        good = _copy(group_idx, [1], range(-(-size // 64)))
        wrong = {
            "row": [good._replace(rows=[Row(rows)]), good._replace(rows=[Row(-2)])],
            "slot": [
                good._replace(slots=[Slot(len(host.slots)), *good.slots[1:]]),
                good._replace(slots=[Slot(-1), *good.slots[1:]]),
            ],
            "slots of 64": [
                good._replace(slots=[]),
                good._replace(slots=[*good.slots, Slot(7)]),
                good._replace(rows=[]),
            ],
            "group": [
                good._replace(group_idx=nothing),
                good._replace(group_idx=GroupIdx(2)),
                good._replace(group_idx=GroupIdx(-1)),
            ],
        }
        with self._working(host, take_checksums=False) as worker:
            for what, chunks in wrong.items():
                for chunk in chunks:
                    with pytest.raises(InvalidTransferError, match=what):
                        worker.submit_load(1, [good, chunk])
            with pytest.raises(InvalidTransferError, match="row"):
                worker.submit_store(1, [good._replace(rows=[NO_ROW])])
            assert worker.get_finished() == []
        assert _equal(host.image(), before)

    @contextmanager
    def _working(self, host: _Host, *, take_checksums: bool) -> Iterator[OffloadingWorker]:
        worker = self.worker(host.caches, host.slots, take_checksums=take_checksums)
        try:
            yield worker
        finally:
            worker.close()

    def _hosts(self) -> st.SearchStrategy[_Host]:
        """Sheets of any model of the design, and caches of several tensors with padding and overlaid groups."""
        sheets = st.builds(
            self._host,
            st.sampled_from(sorted(MODEL_EXAMPLES)),
            slot_bytes=st.sampled_from([16, 48, 64, 200, 1024, 1 << 14]),
        )
        scattered = st.builds(
            self._scattered_host,
            slot_bytes=st.sampled_from([16, 40, 333]),
            words=st.sampled_from([1, 8]),
        )
        return st.one_of(sheets, scattered)

    def _host(self, model: str, *, slot_bytes: int) -> _Host:
        plan = _plan(model)
        pool = _random_bytes(plan.num_sheets * plan.sheet_bytes).to(self.device)
        caches = register_sheets(pool.view(plan.num_sheets, plan.sheet_bytes), plan)
        return _Host(memory=[pool], caches=caches, slots=_arena(slot_bytes))

    def _scattered_host(self, *, slot_bytes: int, words: int) -> _Host:
        """Two overlaid groups of two tensors each, and a third with a gap in its rows; sizes in whole words or not."""
        first, second = (_random_bytes(20 * n * words).to(self.device).view(20, n * words) for n in (24, 40))
        tensors = (
            CanonicalKVCacheTensor(tensor=first, page_size_bytes=24 * words),
            CanonicalKVCacheTensor(tensor=second[:, : 31 * words], page_size_bytes=31 * words),
        )
        refs = [[(0, 24, 0), (1, 31, 0)], [(1, 5, 2), (0, 3, 20)], [(1, 4, 0), (1, 7, 9)]]
        group_refs = tuple(
            tuple(CanonicalKVCacheRef(tensor_idx=i, page_size_bytes=n * words, offset=at * words) for i, n, at in group)
            for group in refs
        )
        caches = CanonicalKVCaches(tensors=tensors, group_refs=group_refs)
        return _Host(memory=[first, second], caches=caches, slots=_arena(slot_bytes))


@cache
def _plan(model: str) -> KVCacheConfig:
    return MODEL_EXAMPLES[model].plan(1.0)


def _arena(slot_bytes: int) -> Bytes:
    """An arena with slots for a few chunks, and some more."""
    return np.full((20 + (1 << 14) // slot_bytes, slot_bytes), _UNTOUCHED, np.uint8)


def _random_bytes(num_bytes: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(num_bytes).integers(-128, 128, num_bytes, dtype=np.int8))


def _equal(one: Sequence[Bytes], other: Sequence[Bytes]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _only_result(worker: OffloadingWorker, job_id: int) -> TransferResult:
    assert worker.wait([job_id], _TIMEOUT_S)
    (result,) = worker.get_finished()
    assert result.job_id == job_id
    return result


@st.composite
def _chunks(draw: st.DrawFn, host: _Host) -> list[ChunkCopy]:
    """Chunks of any groups, with slots that are neighbours or anywhere."""
    rng = Random(draw(st.integers(0, 1 << 32)))  # noqa: S311 - a permutation at once; drawing it takes long
    free_slots = list(range(len(host.slots)))
    if draw(st.booleans()):
        rng.shuffle(free_slots)
    free_rows = _free_rows(host, rng)
    chunks: list[ChunkCopy] = []
    for group_idx in draw(st.lists(st.sampled_from(host.groups), min_size=1, max_size=6)):
        rows = list(islice(free_rows(group_idx), draw(st.integers(1, 3))))
        needed = -(-len(rows) * host.caches.page_size_bytes(group_idx) // host.slots.shape[1])
        if rows and needed <= len(free_slots):
            chunks.append(_copy(group_idx, rows, [free_slots.pop(0) for _ in range(needed)]))
    assume(chunks)
    return chunks


@st.composite
def _other_rows(draw: st.DrawFn, host: _Host, chunks: Sequence[ChunkCopy]) -> list[ChunkCopy]:
    """The same chunks for other rows, without some of their blocks."""
    free_rows = _free_rows(host, Random(draw(st.integers(0, 1 << 32))))  # noqa: S311 - as above
    loads = []
    for chunk in chunks:
        free = free_rows(chunk.group_idx)
        loads.append(
            chunk._replace(rows=[Row(next(free, NO_ROW)) if draw(st.integers(0, 3)) else NO_ROW for _ in chunk.rows])
        )
    return loads


def _copy(group_idx: int, rows: Iterable[int], slots: Iterable[int]) -> ChunkCopy:
    return ChunkCopy(GroupIdx(group_idx), list(map(Row, rows)), list(map(Slot, slots)))


def _free_rows(host: _Host, rng: Random) -> Callable[[GroupIdx], Iterator[int]]:
    """Gives rows of a group that share no byte with those given before, of any group."""
    is_taken = [np.zeros_like(content) for content in host.image()]

    def rows_of(group_idx: GroupIdx) -> Iterator[int]:
        num_blocks = host.caches.num_blocks(group_idx)
        for row in rng.sample(range(num_blocks), num_blocks):
            parts = host.parts(is_taken, group_idx, row)
            if not any(part.any() for part in parts):
                for part in parts:
                    part.fill(1)
                yield row

    return rows_of
