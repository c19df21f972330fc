"""Rows that runs share: canonical tensors, made of the runs of all layers.

Runs of one stride whose bytes fit into one row are parts of the same rows: layers packed within a block, groups that
lie over each other, padding between. Layers that each have a region of their own are further apart, and get tensors
of their own.

    storage   |r0 r1 pad|r0 r1 pad|...        r0, r1: runs of one or several layers, of one or several groups
    row       <- stride ->
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from octavo.transfer.canonical import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor
from octavo.transfer.layer_layout import BlockRun


def share_rows(runs_by_group: Sequence[Sequence[BlockRun]]) -> CanonicalKVCaches:
    """The caches whose groups consist of these runs. Tensors stand in the order in which groups first use them."""
    runs_by_row = _runs_by_row([run for runs in runs_by_group for run in runs])
    row_of = {run.place: row for row, runs in enumerate(runs_by_row) for run in runs}
    rows_in_use = list(dict.fromkeys(row_of[run.place] for runs in runs_by_group for run in runs))
    tensor_idx_of = {row: idx for idx, row in enumerate(rows_in_use)}

    def ref_of(run: BlockRun) -> CanonicalKVCacheRef:
        row = row_of[run.place]
        return CanonicalKVCacheRef(
            tensor_idx=tensor_idx_of[row],
            page_size_bytes=run.num_bytes,
            offset=run.start - runs_by_row[row][0].start,
        )

    return CanonicalKVCaches(
        tensors=tuple(_tensor_of(runs_by_row[row]) for row in rows_in_use),
        group_refs=tuple(_merge_neighbours(map(ref_of, runs)) for runs in runs_by_group),
    )


def rows_of_storage(
    storage: torch.UntypedStorage, *, start: int, num_rows: int, row_bytes: int, stride: int
) -> torch.Tensor:
    """An int8 view of a storage, whatever the dtype of the tensors that the engine has there."""
    view = torch.empty(0, dtype=torch.int8, device=storage.device)
    return view.set_(storage, start, (num_rows, row_bytes), (stride, 1))


def _runs_by_row(runs: Iterable[BlockRun]) -> list[list[BlockRun]]:
    """The runs that share rows, in ascending order; a row begins where its first run does."""
    by_space: dict[tuple[int, ...], list[BlockRun]] = defaultdict(list)
    for run in runs:
        by_space[run.space].append(run)
    rows: list[list[BlockRun]] = []
    for neighbours in by_space.values():
        row: list[BlockRun] = []
        for run in sorted(neighbours, key=lambda run: (run.start, run.end)):
            if not row or run.end - row[0].start > run.block_stride:
                row = []
                rows.append(row)
            row.append(run)
    return rows


def _tensor_of(row: Sequence[BlockRun]) -> CanonicalKVCacheTensor:
    first = row[0]
    row_bytes = max(run.end for run in row) - first.start
    return CanonicalKVCacheTensor(
        tensor=rows_of_storage(
            first.storage,
            start=first.start,
            num_rows=first.num_blocks,
            row_bytes=row_bytes,
            stride=first.block_stride,
        ),
        page_size_bytes=row_bytes,
    )


def _merge_neighbours(refs: Iterable[CanonicalKVCacheRef]) -> tuple[CanonicalKVCacheRef, ...]:
    """A group's refs in the order of memory; those without a gap between become one copy. Gaps are never moved: what
    lies there may be somebody else's."""
    merged: list[CanonicalKVCacheRef] = []
    for ref in sorted(refs, key=lambda ref: (ref.tensor_idx, ref.offset)):
        last = merged[-1] if merged else None
        if last and last.tensor_idx == ref.tensor_idx and last.offset + last.page_size_bytes == ref.offset:
            merged[-1] = replace(last, page_size_bytes=last.page_size_bytes + ref.page_size_bytes)
        else:
            merged.append(ref)
    return tuple(merged)
