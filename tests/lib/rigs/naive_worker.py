"""A worker between the pages of `NaiveDevice` and real host memory, with faults.

A page's content becomes a number, which fills the block's bytes. So real bytes go through arena and tiers, and whatever
happens to them on the way shows: a number that nobody wrote stands for bytes that are nobody's.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from octavo.chunks import ChunkCopy, GroupOffloadConfig, TransferResult
from octavo.ids import GroupIdx
from octavo.testing import NaiveDevice, Slot
from octavo.transfer import OffloadingWorker

_DAMAGED = {0: Slot(-1, -1, -1), -1: Slot(-1, -1, -1)}


@dataclass(frozen=True, slots=True)
class _Job:
    job_id: int
    chunks: Sequence[ChunkCopy]
    run: Callable[[ChunkCopy], bool]


class NaiveWorker(OffloadingWorker):
    """Copies when it is told to, so that a copy can be as late as it likes."""

    def __init__(
        self,
        device: NaiveDevice,
        page_classes: Sequence[int | None],
        groups: Sequence[GroupOffloadConfig],
        slots: npt.NDArray[np.uint8],
    ) -> None:
        self._device = device
        self._page_classes = page_classes
        self._groups = groups
        self._slots = slots
        self._numbers: dict[tuple[tuple[int, Slot], ...], int] = {}
        self._contents: list[dict[int, Slot]] = []
        self._jobs: deque[_Job] = deque()
        self._results: list[TransferResult] = []
        self._checksums: dict[int, list[int]] = {}
        self.is_stuck = False
        self.fails = False
        """Every second chunk from now on."""
        self._num_copied = 0

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._checksums[job_id] = []
        self._submit(_Job(job_id, chunks, lambda chunk: self._store(job_id, chunk)))

    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._submit(_Job(job_id, chunks, self._load))

    def get_finished(self) -> list[TransferResult]:
        if not self.is_stuck:
            self.run_all()
        results, self._results = self._results, []
        return results

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        return not self.is_stuck

    def wait_any(self, timeout_s: float) -> None:
        """Nothing to wait for: jobs are run when they are asked for."""

    def close(self) -> None:
        self._jobs.clear()

    def run_all(self) -> None:
        """Carries out what was submitted, with the pages as they are by now."""
        while self._jobs:
            job = self._jobs.popleft()
            failed = frozenset(index for index, chunk in enumerate(job.chunks) if not self._run(job, chunk))
            self._results.append(TransferResult(job.job_id, failed, self._checksums.pop(job.job_id, ())))

    def _submit(self, job: _Job) -> None:
        self._jobs.append(job)

    def _run(self, job: _Job, chunk: ChunkCopy) -> bool:
        self._num_copied += 1
        is_right = job.run(chunk)
        return is_right and not (self.fails and self._num_copied % 2)

    def _store(self, job_id: int, chunk: ChunkCopy) -> bool:
        page_bytes = self._groups[chunk.group_idx].page_size_bytes
        content = np.concatenate([self._number_of(chunk.group_idx, row, page_bytes) for row in chunk.rows])
        self._put(chunk.slots, content)
        self._checksums[job_id].append(xxhash.xxh3_64_intdigest(content.tobytes()))
        return True

    def _load(self, chunk: ChunkCopy) -> bool:
        page_bytes = self._groups[chunk.group_idx].page_size_bytes
        page_class = self._page_classes[chunk.group_idx]
        assert page_class is not None
        content = self._get(chunk.slots, len(chunk.rows) * page_bytes)
        if chunk.checksum is not None and xxhash.xxh3_64_intdigest(content.tobytes()) != chunk.checksum:
            return False
        for index, row in enumerate(chunk.rows):
            if row >= 0:
                page = content[index * page_bytes : (index + 1) * page_bytes]
                self._device.pages[page_class, row] = self._content_of(page)
        return True

    def _number_of(self, group_idx: GroupIdx, row: int, page_bytes: int) -> npt.NDArray[np.uint8]:
        page_class = self._page_classes[group_idx]
        assert page_class is not None
        slots = self._device.pages.get((page_class, row), {})
        number = self._numbers.setdefault(tuple(sorted(slots.items())), len(self._contents))
        if number == len(self._contents):
            self._contents.append(dict(slots))
        return np.frombuffer((number.to_bytes(8, "big") * (page_bytes // 8 + 1))[:page_bytes], np.uint8)

    def _content_of(self, page: npt.NDArray[np.uint8]) -> dict[int, Slot]:
        raw = page.tobytes()
        number = int.from_bytes(raw[:8], "big")
        is_whole = raw == (raw[:8] * (len(raw) // 8 + 1))[: len(raw)]
        return dict(self._contents[number]) if is_whole and number < len(self._contents) else dict(_DAMAGED)

    def _put(self, slots: Sequence[int], content: npt.NDArray[np.uint8]) -> None:
        size = self._slots.shape[1]
        for index, slot in enumerate(slots):
            piece = content[index * size : (index + 1) * size]
            self._slots[slot, : len(piece)] = piece

    def _get(self, slots: Sequence[int], num_bytes: int) -> npt.NDArray[np.uint8]:
        return self._slots[list(slots)].reshape(-1)[:num_bytes].copy()
