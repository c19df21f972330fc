"""Buffers between a device's pages and the arena: one on the device, and one in host memory, pinned for CUDA.

pages of a group    row 7 | row 3 | row 9        anywhere on the device, in several tensors
staging             [row 7][row 3][row 9]        each block as it is offloaded, one after the other
"""

from collections.abc import Sequence

import torch

from octavo.errors import TransferError
from octavo.ids import GroupIdx, Row, enumerate_groups
from octavo.transfer.canonical import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor


class Staging:
    """The two buffers of one direction. They hold blocks of one group at a time."""

    def __init__(self, caches: CanonicalKVCaches, num_bytes: int) -> None:
        self._caches = caches
        largest = max((caches.page_size_bytes(group) for group, _ in enumerate_groups(caches.group_refs)), default=0)
        if num_bytes < largest:
            raise TransferError(f"staging of {num_bytes} bytes cannot hold the largest block, {largest} bytes")
        self._on_device = torch.empty(num_bytes, dtype=torch.int8, device=caches.device)
        self._on_host = torch.empty(num_bytes, dtype=torch.int8, pin_memory=caches.device.type == "cuda")
        self.host_caches = _caches_over(self._on_host, caches)

    def capacity(self, group_idx: GroupIdx) -> int:
        """Blocks of the group that fit."""
        return self.host_caches.num_blocks(group_idx)

    def gather(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None:
        """Enqueues the copy of rows of the group to the beginning of host staging."""
        index = torch.tensor(rows, dtype=torch.int64, device=self._caches.device)
        for pages, staged in self._columns(group_idx, len(rows)):
            staged.copy_(pages.index_select(0, index))
        used = len(rows) * self._caches.page_size_bytes(group_idx)
        self._on_host[:used].copy_(self._on_device[:used], non_blocking=True)

    def scatter(self, group_idx: GroupIdx, rows: Sequence[Row], indices: Sequence[int]) -> None:
        """Enqueues the copy of blocks at these indices of host staging to rows of the group."""
        num_staged = max(indices) + 1
        used = num_staged * self._caches.page_size_bytes(group_idx)
        self._on_device[:used].copy_(self._on_host[:used], non_blocking=True)
        index = torch.tensor([rows, indices], dtype=torch.int64, device=self._caches.device)
        for pages, staged in self._columns(group_idx, num_staged):
            pages.index_copy_(0, index[0], staged.index_select(0, index[1]))

    def _columns(self, group_idx: GroupIdx, num_staged: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each ref of the group: its part of all rows, and its part of the blocks in staging."""
        page_bytes = self._caches.page_size_bytes(group_idx)
        staging = self._on_device[: num_staged * page_bytes].view(num_staged, page_bytes)
        columns = []
        refs = zip(self._caches.group_refs[group_idx], self._caches.ref_starts(group_idx), strict=True)
        for ref, start in refs:
            pages = self._caches.tensors[ref.tensor_idx].tensor[:, ref.offset : ref.offset + ref.page_size_bytes]
            staged = staging[:, start : start + ref.page_size_bytes]
            columns.append(_as_words(pages, staged))
        return columns


def _caches_over(buffer: torch.Tensor, caches: CanonicalKVCaches) -> CanonicalKVCaches:
    """The buffer as a cache of the same groups, each alone in it and with its content together."""
    tensors: list[CanonicalKVCacheTensor] = []
    group_refs: list[tuple[CanonicalKVCacheRef, ...]] = []
    for group_idx, refs in enumerate_groups(caches.group_refs):
        page_bytes = caches.page_size_bytes(group_idx)
        if refs:
            group_refs.append((CanonicalKVCacheRef(tensor_idx=len(tensors), page_size_bytes=page_bytes),))
            num_blocks = len(buffer) // page_bytes
            blocks = buffer[: num_blocks * page_bytes].view(num_blocks, page_bytes)
            tensors.append(CanonicalKVCacheTensor(tensor=blocks, page_size_bytes=page_bytes))
        else:
            group_refs.append(())
    return CanonicalKVCaches(tensors=tuple(tensors), group_refs=tuple(group_refs))


def _as_words(pages: torch.Tensor, staged: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same bytes as int64 where all begin and end at words: kernels move elements, and bytes are slow."""
    bounds = [bound for view in (pages, staged) for bound in (view.data_ptr(), view.shape[1], view.stride(0))]
    if any(bound % 8 for bound in bounds):
        return pages, staged
    return pages.view(torch.int64), staged.view(torch.int64)
