"""From chunks to copies: which bytes of which rows go to which bytes of which slots.

Where a chunk is cut depends on its group, on how many blocks it holds and on whether its slots are neighbours, not on
which rows and slots they are. So chunks that are cut alike are planned together, as arrays:

    chunk     [block 0: ref 0 | ref 1][block 1: ref 0 | ref 1]
    slots     [slot 7        ][slot 3      ][slot 12 .. ]
    pieces    |       |       |  |     |    |    |

Of several ranks each copies its share of every block (`PageShare`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.chunks import ChunkCopy
from octavo.errors import CacheLayoutError, InvalidTransferError
from octavo.ids import GroupIdx, Slot, enumerate_groups
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.shares import PageShare, Run

Ints = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Bytes that are contiguous on both sides, in every chunk that is cut this way; or several times as many, a step
    apart on each side."""

    block: int
    """The index of the block in its chunk."""
    tensor_idx: int
    row_stride: int
    row_offset: int
    slot: Slot
    """The index of the slot among those of its chunk."""
    slot_offset: int
    num_bytes: int
    times: int = 1
    row_step: int = 0
    slot_step: int = 0


class ChunkBatch(NamedTuple):
    """Chunks of one job that are cut alike."""

    group_idx: GroupIdx
    indices: Sequence[int]
    """In the job."""
    rows: Ints
    """(chunks, blocks); -1 for a block that a load leaves out."""
    slots: Ints
    """(chunks, slots)"""
    chunk_bytes: int
    pieces: Sequence[Piece]
    has_neighbouring_slots: bool
    leaves_blocks_out: bool

    def keep(self, chosen: Sequence[int]) -> "ChunkBatch":
        """Only the chunks at these indices of the batch."""
        indices = [self.indices[i] for i in chosen]
        return self._replace(indices=indices, rows=self.rows[chosen], slots=self.slots[chosen])


class CopyPlanner:
    """Checks chunks against the caches and the arena, and cuts them into pieces."""

    def __init__(self, caches: CanonicalKVCaches, num_slots: int, slot_bytes: int, shares: Sequence[PageShare]) -> None:
        """`shares`: by group, those of a rank of several. Alone it has the whole pages."""
        self._caches = caches
        self._num_slots = num_slots
        self._slot_bytes = slot_bytes
        self._shares = shares or [
            _whole(caches.page_size_bytes(group)) for group, _ in enumerate_groups(caches.group_refs)
        ]
        for group_idx, share in enumerate_groups(self._shares):
            if share.page_bytes != caches.page_size_bytes(group_idx):
                raise CacheLayoutError(
                    f"group {group_idx} has pages of {caches.page_size_bytes(group_idx)} bytes, and the rank's share "
                    f"is of pages of {share.page_bytes} bytes"
                )
        self._pieces: dict[tuple[GroupIdx, int, bool, bool], tuple[Piece, ...]] = {}
        """Bounded by groups times blocks per chunk."""

    def plan(self, chunks: Sequence[ChunkCopy], *, is_load: bool) -> list[ChunkBatch]:
        """The batches of a job; InvalidTransferError if rows or slots are not there."""
        batches: list[ChunkBatch] = []
        for indices, group_idx, row_lists, slot_lists in _alike(chunks):
            num_blocks, num_slots = len(row_lists[0]), len(slot_lists[0])
            chunk_bytes = self._check_sizes(group_idx, num_blocks, num_slots)
            rows, slots = _table(row_lists), _table(slot_lists)
            first_row = -1 if is_load else 0
            _check_range("row", rows, first_row, self._caches.num_blocks(group_idx), group_idx)
            _check_range("slot", slots, 0, self._num_slots, group_idx)
            neighbouring = (slots[:, 1:] - slots[:, :-1] == 1).all(axis=1)
            leaves_out = bool(is_load and (rows < 0).any())
            whole = ChunkBatch(group_idx, indices, rows, slots, chunk_bytes, (), True, leaves_out)
            for together in (True, False):
                chosen = np.flatnonzero(neighbouring == together).tolist()
                if chosen:
                    batch = whole if len(chosen) == len(indices) else whole.keep(chosen)
                    pieces = self.pieces_of(group_idx, num_blocks, together=together, is_load=is_load)
                    batches.append(batch._replace(pieces=pieces, has_neighbouring_slots=together))
        return batches

    def _check_sizes(self, group_idx: GroupIdx, num_blocks: int, num_slots: int) -> int:
        """The bytes of a chunk, if the slots are as many as they take."""
        groups = len(self._caches.group_refs)
        if not 0 <= group_idx < groups or not self._caches.group_refs[group_idx]:
            raise InvalidTransferError(f"group {group_idx} of {groups} keeps nothing that could be moved")
        chunk_bytes = num_blocks * self._shares[group_idx].whole_bytes
        needed = -(-chunk_bytes // self._slot_bytes)
        if num_slots != needed or not num_blocks:
            raise InvalidTransferError(
                f"a chunk of {num_blocks} blocks of group {group_idx} has {chunk_bytes} bytes, which take {needed} "
                f"slots of {self._slot_bytes}, not {num_slots}"
            )
        return chunk_bytes

    def pieces_of(self, group_idx: GroupIdx, num_blocks: int, *, together: bool, is_load: bool) -> tuple[Piece, ...]:
        """Of a chunk with so many blocks. `together`: its slots are neighbours, and no piece ends where one does."""
        key = (group_idx, num_blocks, together, is_load)
        if key not in self._pieces:
            self._pieces[key] = tuple(self._cut(*key))
        return self._pieces[key]

    def _cut(self, group_idx: GroupIdx, num_blocks: int, together: bool, is_load: bool) -> Iterator[Piece]:
        """Cuts the rank's runs where a ref begins and, unless a chunk's slots are neighbours, where a slot does."""
        share = self._shares[group_idx]
        slot_bytes = num_blocks * share.whole_bytes if together else self._slot_bytes
        for block in range(num_blocks):
            for run in share.loads if is_load else share.stores:
                pieces = self._cut_run(group_idx, block, run, slot_bytes)
                yield from pieces if run.times == 1 else _join(pieces)

    def _cut_run(self, group_idx: GroupIdx, block: int, run: Run, slot_bytes: int) -> Iterator[Piece]:
        refs, ref_starts = self._caches.group_refs[group_idx], self._caches.ref_starts(group_idx)
        share = self._shares[group_idx]
        ref_ends = (*ref_starts[1:], share.page_bytes)
        for i in range(run.times):
            begin = run.page_start + i * run.page_stride
            offset = block * share.whole_bytes + run.whole_start + i * run.whole_stride
            end = begin + run.num_bytes
            while begin < end:
                ref_idx = bisect_right(ref_starts, begin) - 1
                num_bytes = min(end, ref_ends[ref_idx], begin + slot_bytes - offset % slot_bytes) - begin
                ref = refs[ref_idx]
                yield Piece(
                    block=block,
                    tensor_idx=ref.tensor_idx,
                    row_stride=int(self._caches.tensors[ref.tensor_idx].tensor.stride(0)),
                    row_offset=ref.offset + begin - ref_starts[ref_idx],
                    slot=Slot(offset // slot_bytes),
                    slot_offset=offset % slot_bytes,
                    num_bytes=num_bytes,
                )
                begin, offset = begin + num_bytes, offset + num_bytes


def _whole(page_bytes: int) -> PageShare:
    runs = (Run(0, 0, page_bytes),) if page_bytes else ()
    return PageShare(page_bytes=page_bytes, whole_bytes=page_bytes, loads=runs, stores=runs)


def _join(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Pieces of one length that are equal steps apart become one."""
    last: Piece | None = None
    for piece in pieces:
        joined = None if last is None else _joined(last, piece)
        if last is not None and joined is None:
            yield last
        last = joined or piece
    if last is not None:
        yield last


def _joined(last: Piece, piece: Piece) -> Piece | None:
    alike = ("block", "tensor_idx", "slot", "num_bytes")
    if any(getattr(last, name) != getattr(piece, name) for name in alike):
        return None
    steps = (
        piece.row_offset - last.row_offset - (last.times - 1) * last.row_step,
        piece.slot_offset - last.slot_offset - (last.times - 1) * last.slot_step,
    )
    if min(steps) < last.num_bytes or (last.times > 1 and steps != (last.row_step, last.slot_step)):
        return None
    return last._replace(times=last.times + 1, row_step=steps[0], slot_step=steps[1])


Lists = Sequence[Sequence[int]]


def _alike(chunks: Sequence[ChunkCopy]) -> Iterator[tuple[Sequence[int], GroupIdx, Lists, Lists]]:
    """Chunks of one group that have equally many rows and equally many slots: their indices, the group, rows and slots
    of each. Most jobs are of one kind, which is found without looking at chunks one by one."""
    if not chunks:
        return
    group_idxs, rows, slots, _ = zip(*chunks, strict=True)
    row_counts, slot_counts = list(map(len, rows)), list(map(len, slots))
    if len(set(group_idxs)) == len(set(row_counts)) == len(set(slot_counts)) == 1:
        yield range(len(chunks)), group_idxs[0], rows, slots
        return
    indices: dict[tuple[GroupIdx, int, int], list[int]] = defaultdict(list)
    for index, kind in enumerate(zip(group_idxs, row_counts, slot_counts, strict=True)):
        indices[kind].append(index)
    for (group_idx, _, _), members in indices.items():
        yield members, group_idx, [rows[index] for index in members], [slots[index] for index in members]


def _table(lists: Lists) -> Ints:
    """Lists of one length, as an array."""
    width = len(lists[0])
    return np.fromiter(chain.from_iterable(lists), np.int64, len(lists) * width).reshape(len(lists), width)


def _check_range(what: str, values: Ints, first: int, end: int, group_idx: GroupIdx) -> None:
    low, high = int(values.min()), int(values.max())
    if low < first or high >= end:
        raise InvalidTransferError(
            f"a chunk of group {group_idx} names {what} {low if low < first else high}; there are {end}"
        )
