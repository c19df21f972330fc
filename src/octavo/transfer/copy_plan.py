"""From chunks to copies: which bytes of which rows go to which bytes of which slots.

Where a chunk is cut depends on its group, on how many blocks it holds and on whether its slots are neighbours, not on
which rows and slots they are. So chunks that are cut alike are planned together, as arrays:

    chunk     [block 0: ref 0 | ref 1][block 1: ref 0 | ref 1]
    slots     [slot 7        ][slot 3      ][slot 12 .. ]
    pieces    |       |       |  |     |    |    |
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.chunks import ChunkCopy
from octavo.errors import InvalidTransferError
from octavo.ids import GroupIdx, Slot
from octavo.transfer.canonical import CanonicalKVCaches

Ints = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Bytes that are contiguous on both sides, in every chunk that is cut this way."""

    block: int
    """Of the chunk, by place."""
    tensor_idx: int
    row_stride: int
    row_offset: int
    slot: Slot
    """Of the chunk, by place."""
    slot_offset: int
    num_bytes: int


class ChunkBatch(NamedTuple):
    """Chunks of one job that are cut alike."""

    places: Sequence[int]
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
        places = [self.places[i] for i in chosen]
        return self._replace(places=places, rows=self.rows[chosen], slots=self.slots[chosen])


class CopyPlanner:
    """Checks chunks against the caches and the arena, and cuts them into pieces."""

    def __init__(self, caches: CanonicalKVCaches, num_slots: int, slot_bytes: int) -> None:
        self._caches = caches
        self._num_slots = num_slots
        self._slot_bytes = slot_bytes
        self._pieces: dict[tuple[GroupIdx, int, bool], tuple[Piece, ...]] = {}
        """Bounded by groups times blocks per chunk."""

    def plan(self, chunks: Sequence[ChunkCopy], *, is_load: bool) -> list[ChunkBatch]:
        """The batches of a job; InvalidTransferError if rows or slots are not there."""
        batches: list[ChunkBatch] = []
        for places, group_idx, row_lists, slot_lists in _alike(chunks):
            num_blocks, num_slots = len(row_lists[0]), len(slot_lists[0])
            chunk_bytes = self._check_sizes(group_idx, num_blocks, num_slots)
            rows, slots = _table(row_lists), _table(slot_lists)
            first_row = -1 if is_load else 0
            _check_range("row", rows, first_row, self._caches.num_blocks(group_idx), group_idx)
            _check_range("slot", slots, 0, self._num_slots, group_idx)
            neighbouring = (slots[:, 1:] - slots[:, :-1] == 1).all(axis=1)
            whole = ChunkBatch(places, rows, slots, chunk_bytes, (), True, bool(is_load and (rows < 0).any()))
            for together in (True, False):
                chosen = np.flatnonzero(neighbouring == together).tolist()
                if chosen:
                    batch = whole if len(chosen) == len(places) else whole.keep(chosen)
                    pieces = self._pieces_of(group_idx, num_blocks, together)
                    batches.append(batch._replace(pieces=pieces, has_neighbouring_slots=together))
        return batches

    def _check_sizes(self, group_idx: GroupIdx, num_blocks: int, num_slots: int) -> int:
        """The bytes of a chunk, if the slots are as many as they take."""
        groups = len(self._caches.group_refs)
        if not 0 <= group_idx < groups or not self._caches.group_refs[group_idx]:
            raise InvalidTransferError(f"group {group_idx} of {groups} keeps nothing that could be moved")
        chunk_bytes = num_blocks * self._caches.page_size_bytes(group_idx)
        needed = -(-chunk_bytes // self._slot_bytes)
        if num_slots != needed or not num_blocks:
            raise InvalidTransferError(
                f"a chunk of {num_blocks} blocks of group {group_idx} has {chunk_bytes} bytes, which take {needed} "
                f"slots of {self._slot_bytes}, not {num_slots}"
            )
        return chunk_bytes

    def _pieces_of(self, group_idx: GroupIdx, num_blocks: int, together: bool) -> tuple[Piece, ...]:
        key = (group_idx, num_blocks, together)
        if key not in self._pieces:
            self._pieces[key] = tuple(self._cut(group_idx, num_blocks, together))
        return self._pieces[key]

    def _cut(self, group_idx: GroupIdx, num_blocks: int, together: bool) -> Iterator[Piece]:
        """Cuts a chunk where a ref begins and, unless its slots are neighbours, where a slot does."""
        page_bytes = self._caches.page_size_bytes(group_idx)
        refs = self._caches.group_refs[group_idx]
        starts = self._caches.ref_starts(group_idx)
        slot_bytes = num_blocks * page_bytes if together else self._slot_bytes
        end = num_blocks * page_bytes
        cuts = {block * page_bytes + start for block in range(num_blocks) for start in starts}
        for begin, stop in pairwise(sorted({*cuts, *range(0, end, slot_bytes), end})):
            block, within = divmod(begin, page_bytes)
            ref_idx = max(i for i, start in enumerate(starts) if start <= within)
            ref = refs[ref_idx]
            yield Piece(
                block=block,
                tensor_idx=ref.tensor_idx,
                row_stride=int(self._caches.tensors[ref.tensor_idx].tensor.stride(0)),
                row_offset=ref.offset + within - starts[ref_idx],
                slot=begin // slot_bytes,
                slot_offset=begin % slot_bytes,
                num_bytes=stop - begin,
            )


Lists = Sequence[Sequence[int]]


def _alike(chunks: Sequence[ChunkCopy]) -> Iterator[tuple[Sequence[int], GroupIdx, Lists, Lists]]:
    """Chunks of one group that have equally many rows and equally many slots: their places, the group, rows and slots
    of each. Most jobs are of one kind, which is found without looking at chunks one by one."""
    if not chunks:
        return
    group_idxs, rows, slots, _ = zip(*chunks, strict=True)
    row_counts, slot_counts = list(map(len, rows)), list(map(len, slots))
    if len(set(group_idxs)) == len(set(row_counts)) == len(set(slot_counts)) == 1:
        yield range(len(chunks)), group_idxs[0], rows, slots
        return
    places: dict[tuple[GroupIdx, int, int], list[int]] = defaultdict(list)
    for place, kind in enumerate(zip(group_idxs, row_counts, slot_counts, strict=True)):
        places[kind].append(place)
    for (group_idx, _, _), members in places.items():
        yield members, group_idx, [rows[place] for place in members], [slots[place] for place in members]


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
