"""Copies between a device and slots of the arena, over the link between them.

Large pieces are the copy engines', which leave the device's cores to the model. Each costs them a microsecond or so, so
what lies in many small pieces goes through staging, where a chunk is one piece:

    pages     row 7 | row 3 | row 9                                  anywhere on the device
    staging   [chunk 0: block | block][chunk 1: block | block]      chunks that are cut alike
    slots     [slot 7        ][slot 3      ] ...                     anywhere in the arena

What is small there too, as a rank's share of a chunk may be, a kernel moves through the addresses of pinned memory.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from octavo.ids import GroupIdx
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.copy_engine import Addresses
from octavo.transfer.copy_plan import ChunkBatch, CopyPlanner, Ints, Piece
from octavo.transfer.raw_memory import PinnedSlots
from octavo.transfer.shares import PageShare
from octavo.transfer.staging import Staging, as_words

DIRECT_BYTES = 256 << 10
"""Of pieces that need no staging: copy engines move them at 0.8 of the link's speed and more."""
LARGE_BYTES = 48 << 10
"""Of pieces for copy engines in any case. They move 64 KiB at 0.6 of the link's speed, and load 16 KiB at 0.07."""


class CopyAll(Protocol):
    """Enqueues copies between the host and the device, by their addresses."""

    def __call__(self, targets: Addresses, sources: Addresses, sizes: Addresses, *, is_pinned: bool) -> None: ...


class Link:
    """One direction: enqueues the copies of batches."""

    def __init__(
        self,
        caches: CanonicalKVCaches,
        staging: Staging,
        slots: PinnedSlots,
        shares: Sequence[PageShare],
        *,
        copy_all: CopyAll,
        is_load: bool,
    ) -> None:
        self._pages = [entry.tensor.data_ptr() for entry in caches.tensors]
        self._staging = staging
        self._slots = slots
        self._planner = CopyPlanner(staging.caches, slots.num_slots, slots.slot_bytes, shares)
        self._copy_all = copy_all
        self._is_load = is_load
        self._pieces: dict[_Kind, tuple[list[Piece], list[Piece]]] = {}
        """Of staging, large ones and small ones. Bounded as the planner's."""

    @staticmethod
    def is_direct(batch: ChunkBatch) -> bool:
        """Whether the batch needs no staging."""
        return all(piece.num_bytes >= DIRECT_BYTES for piece in batch.pieces)

    def move(self, batch: ChunkBatch) -> None:
        """Between pages and slots."""
        self._copy(batch.pieces, self._pages, batch.rows, batch.slots)

    def move_staged(self, batch: ChunkBatch, blocks: slice, slots: torch.Tensor) -> None:
        """Between slots and staging, where these blocks of each chunk lie one after the other. `slots` are the batch's,
        on the device."""
        key = _Kind(batch.group_idx, batch.rows.shape[1], blocks.start, blocks.stop, batch.has_neighbouring_slots)
        if key not in self._pieces:
            self._pieces[key] = self._cut(key)
        large, small = self._pieces[key]
        chunks = np.arange(len(batch.indices))[:, None]
        self._copy(large, [self._staging.buffer.data_ptr()], chunks, batch.slots)
        for piece in small:
            self._move_by_kernel(piece, len(chunks), slots[:, piece.slot])

    def _copy(self, pieces: Sequence[Piece], tensors: Sequence[int], rows: Ints, slots: Ints) -> None:
        """`tensors`: where each begins. What belongs to no row is left out."""
        if not pieces:
            return
        on_device, in_slots, sizes = [], [], []
        for piece in pieces:
            wanted = rows[:, piece.block] >= 0
            of_rows, of_slots = rows[wanted, piece.block], slots[wanted, piece.slot]
            for i in range(piece.times):
                start = tensors[piece.tensor_idx] + piece.row_offset + i * piece.row_step
                on_device.append(start + of_rows * piece.row_stride)
                start = self._slots.address + piece.slot_offset + i * piece.slot_step
                in_slots.append(start + of_slots * self._slots.slot_bytes)
                sizes.append(np.full(len(of_rows), piece.num_bytes))
        ends = [np.concatenate(arrays).astype(np.uint64) for arrays in (on_device, in_slots)]
        targets, sources = ends if self._is_load else reversed(ends)
        is_pinned = self._slots.on_device is not None
        self._copy_all(targets, sources, np.concatenate(sizes).astype(np.uint64), is_pinned=is_pinned)

    def _move_by_kernel(self, piece: Piece, num_chunks: int, slots: torch.Tensor) -> None:
        assert self._slots.on_device is not None
        shape = (piece.times, piece.num_bytes)
        staged = self._staging.buffer.as_strided(
            (num_chunks, *shape), (piece.row_stride, piece.row_step, 1), piece.row_offset
        )
        in_slots = self._slots.on_device.as_strided(
            (self._slots.num_slots, *shape), (self._slots.slot_bytes, piece.slot_step, 1), piece.slot_offset
        )
        in_slots, staged = as_words(in_slots, staged)
        if self._is_load:
            torch.index_select(in_slots, 0, slots, out=staged)
        else:
            in_slots.index_copy_(0, slots, staged)

    def _cut(self, kind: "_Kind") -> tuple[list[Piece], list[Piece]]:
        """Of a chunk as it lies in staging, which is one row to them."""
        group_idx, num_blocks, first, end, together = kind
        cut = self._planner.pieces_of(group_idx, num_blocks, together=together, is_load=self._is_load)
        pieces = _join([piece._replace(block=piece.block - first) for piece in cut if first <= piece.block < end])
        pieces = [piece._replace(tensor_idx=0, row_stride=(end - first) * piece.row_stride) for piece in pieces]
        if self._slots.on_device is None:
            return pieces, []
        large = [piece for piece in pieces if piece.num_bytes >= LARGE_BYTES]
        small = [piece for piece in pieces if piece.num_bytes < LARGE_BYTES]
        if together and small:
            return self._cut(kind._replace(together=False))  # a kernel's piece lies in one slot
        return large, small


class _Kind(NamedTuple):
    """What decides where chunks in staging are cut."""

    group_idx: GroupIdx
    num_blocks: int
    first: int
    end: int
    """Of the blocks that are there."""
    together: bool


def _join(pieces: Sequence[Piece]) -> list[Piece]:
    """The same bytes in as few pieces as neighbouring blocks make."""
    joined: list[Piece] = []
    for cut in pieces:
        piece = cut._replace(block=0, row_offset=cut.block * cut.row_stride + cut.row_offset)
        last = joined[-1] if joined else None
        if last is not None and last.times == piece.times == 1 and _follows(last, piece):
            joined[-1] = last._replace(num_bytes=last.num_bytes + piece.num_bytes)
        else:
            joined.append(piece)
    return joined


def _follows(last: Piece, piece: Piece) -> bool:
    ends = (last.slot, last.slot_offset + last.num_bytes, last.row_offset + last.num_bytes)
    return ends == (piece.slot, piece.slot_offset, piece.row_offset)
