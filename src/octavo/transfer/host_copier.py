"""Copies between pages in host memory and slots of the arena, and the checksums of what lies in slots.

One copy for each piece. A gather of many pages at once (`np.take`) is no faster: slots lie anywhere, so every byte
would be copied twice. A large piece is numpy's to copy, which releases the interpreter's lock meanwhile. Of small ones
only some are, since numpy's call costs a good part of the copy; the others are copied as memoryviews, which keep it.

A large job is shared with a second thread where the lock lets both work: where pieces are large. One thread that copies
and hashes is bound to be slower than one that only copies.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from octavo.chunks import ChunkCopy
from octavo.transfer.canonical import CanonicalKVCaches, CanonicalKVCacheTensor
from octavo.transfer.copy_plan import ChunkBatch, CopyPlanner
from octavo.transfer.helper import Helper
from octavo.transfer.shares import PageShare
from octavo.transfer.slot_hasher import PART_BYTES, SlotHasher, flat_arena

Bytes = npt.NDArray[np.uint8]


SMALL_BYTES = 32 << 10
"""Copied in two microseconds or so."""
_CACHED_BYTES = 256 << 10
_BYTES_PER_RELEASE = 256 << 10
"""Copies of small pieces keep the interpreter's lock. They release it once in this many bytes, or a waiting thread
would wait for the whole job."""


class _Moves(NamedTuple):
    """The copies of one piece of some chunks."""

    tensor_idx: int
    page_starts: list[int]
    """By chunk; -1 where the block is left out."""
    slot_starts: list[int]
    num_bytes: int
    times: int
    page_step: int
    slot_step: int


class _Part(NamedTuple):
    """Some chunks of a batch: those from `first` on, up to `end`."""

    batch: ChunkBatch
    moves: list[_Moves]
    slots: list[list[int]]
    first: int
    end: int

    @property
    def indices(self) -> Sequence[int]:
        """In the job."""
        return self.batch.indices[self.first : self.end]


class HostCopier:
    """The copies of jobs between caches in host memory and an arena. Any thread may run them; they share nothing."""

    def __init__(self, caches: CanonicalKVCaches, slots: Bytes, shares: Sequence[PageShare] = ()) -> None:
        self._arena = flat_arena(slots)
        self.planner = CopyPlanner(caches, len(slots), slots.shape[1], shares)
        self._pages = [_flat_bytes(entry) for entry in caches.tensors]
        self._page_views = [pages.data for pages in self._pages]
        self._arena_view = self._arena.data
        self._slot_bytes = slots.shape[1]
        self._hasher = SlotHasher(slots)
        self._helper = Helper("octavo-transfer-helper")

    def store(self, batches: Sequence[ChunkBatch], *, num_chunks: int, take_checksums: bool) -> Sequence[int]:
        """Pages to slots. The chunks' checksums by index, if they are taken."""
        checksums = [0] * num_chunks

        def store_part(part: _Part) -> None:
            if not take_checksums:
                self._copy(part.moves, part.first, part.end, to_slots=True)
                return
            for index, checksum in zip(part.indices, self._copy_and_hash(part, to_slots=True), strict=True):
                checksums[index] = checksum

        self._do(store_part, batches)
        return checksums if take_checksums else ()

    def load(self, batches: Sequence[ChunkBatch], chunks: Sequence[ChunkCopy]) -> frozenset[int]:
        """Slots to pages. Returns the indices of the chunks whose checksum is wrong; their pages are erased."""
        failed: list[int] = []

        def load_part(part: _Part) -> None:
            given = [chunks[index].checksum for index in part.indices]
            if given.count(None) == len(given):
                self._copy(part.moves, part.first, part.end, to_slots=False)
                return
            found = self._copy_and_hash(part, to_slots=False)
            if given != found:
                wrong = [i for i, (a, b) in enumerate(zip(given, found, strict=True)) if a not in (None, b)]
                failed.extend(part.indices[i] for i in wrong)
                self._erase(part.moves, [part.first + i for i in wrong])

        self._do(load_part, batches)
        return frozenset(failed)

    def close(self) -> None:
        """Ends the second thread, after what it is doing."""
        self._helper.close()

    def _do(self, work: Callable[[_Part], None], batches: Sequence[ChunkBatch]) -> None:
        """The work for all parts of a job."""
        parts = self._parts(batches)
        if all(piece.num_bytes >= SMALL_BYTES for batch in batches for piece in batch.pieces):
            self._helper.share(work, parts)
        else:  # threads would wait for each other's lock
            for part in parts:
                work(part)

    def _moves(self, batch: ChunkBatch) -> list[_Moves]:
        moves = []
        for piece in batch.pieces:
            rows, slots = batch.rows[:, piece.block], batch.slots[:, piece.slot]
            page_starts = rows * piece.row_stride + piece.row_offset
            if batch.leaves_blocks_out:
                page_starts[rows < 0] = -1
            slot_starts = slots * self._slot_bytes + piece.slot_offset
            moves.append(
                _Moves(
                    piece.tensor_idx,
                    page_starts.tolist(),
                    slot_starts.tolist(),
                    piece.num_bytes,
                    piece.times,
                    piece.row_step,
                    piece.slot_step,
                )
            )
        return moves

    def _parts(self, batches: Sequence[ChunkBatch]) -> Iterator[_Part]:
        for batch in batches:
            moves, slots = self._moves(batch), batch.slots.tolist()
            count = max(1, PART_BYTES // batch.chunk_bytes)
            for first in range(0, len(slots), count):
                yield _Part(batch, moves, slots, first, min(first + count, len(slots)))

    def _copy_and_hash(self, part: _Part, *, to_slots: bool) -> list[int]:
        """The checksums of the chunks. A few chunks at a time: they are hashed while the CPU's cache holds them."""
        checksums: list[int] = []
        step = max(1, _CACHED_BYTES // part.batch.chunk_bytes)
        for first in range(part.first, part.end, step):
            end = min(first + step, part.end)
            self._copy(part.moves, first, end, to_slots=to_slots)
            checksums += self._hasher.checksums(part.batch, part.slots[first:end])
        return checksums

    def _copy(self, moves: Sequence[_Moves], first: int, end: int, *, to_slots: bool) -> None:
        for move in moves:
            arrays = self._pages[move.tensor_idx], self._arena
            if move.times > 1:
                _copy_steps(*arrays, move, first, end, to_slots=to_slots)
                continue
            if move.num_bytes >= SMALL_BYTES:
                _copy_pieces(*arrays, move, first, end, to_slots=to_slots)
                continue
            views = self._page_views[move.tensor_idx], self._arena_view
            step = max(1, _BYTES_PER_RELEASE // move.num_bytes)
            for i in range(first, end, step):
                _copy_pieces(*arrays, move, i, i + 1, to_slots=to_slots)
                _copy_pieces(*views, move, i + 1, min(i + step, end), to_slots=to_slots)

    def _erase(self, moves: Sequence[_Moves], chunks: Sequence[int]) -> None:
        for move in moves:
            for i in chunks:
                page = move.page_starts[i]
                if page >= 0:
                    _steps(self._pages[move.tensor_idx], page, move, move.page_step)[...] = 0


def _copy_pieces(pages: Any, arena: Any, move: _Moves, first: int, end: int, *, to_slots: bool) -> None:
    """Both as arrays, or both as memoryviews."""
    num_bytes = move.num_bytes
    starts = zip(move.page_starts[first:end], move.slot_starts[first:end], strict=True)
    if to_slots:
        for page, slot in starts:
            arena[slot : slot + num_bytes] = pages[page : page + num_bytes]
    else:
        for page, slot in starts:
            if page >= 0:
                pages[page : page + num_bytes] = arena[slot : slot + num_bytes]


def _copy_steps(pages: Bytes, arena: Bytes, move: _Moves, first: int, end: int, *, to_slots: bool) -> None:
    for page, slot in zip(move.page_starts[first:end], move.slot_starts[first:end], strict=True):
        if page >= 0:
            of_page = _steps(pages, page, move, move.page_step)
            of_slot = _steps(arena, slot, move, move.slot_step)
            if to_slots:
                of_slot[...] = of_page
            else:
                of_page[...] = of_slot


def _steps(array: Bytes, start: int, move: _Moves, step: int) -> Bytes:
    """The bytes of one move on one side, (times, num_bytes)."""
    shape, strides = (move.times, move.num_bytes), (step, 1)
    return np.ndarray(shape, np.uint8, buffer=array.data, offset=start, strides=strides)


def _flat_bytes(entry: CanonicalKVCacheTensor) -> Bytes:
    """All bytes from the first row's start to the last one's end."""
    tensor = entry.tensor
    span = (tensor.shape[0] - 1) * tensor.stride(0) + entry.page_size_bytes if len(tensor) else 0
    flat: Bytes = torch.as_strided(tensor, (span,), (1,)).numpy().view(np.uint8)
    return flat
