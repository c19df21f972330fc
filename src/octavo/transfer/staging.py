"""A buffer on the device, between its pages and the link to the host.

pages of a group    row 7 | row 3 | row 9        anywhere on the device, in several tensors
staging             [row 7][row 3][row 9]        each block as it is offloaded, one after the other
"""

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import torch

from octavo.ids import GroupIdx, enumerate_groups
from octavo.transfer.canonical import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor
from octavo.transfer.raw_memory import bytes_at

FEW_REFS = 2
"""A kernel each. More of them are moved by one kernel, which needs two to find the places."""
_LEAST_UNIT_BYTES = 256
"""Of what one index of that kernel moves."""
_WORD = torch.int64.itemsize


class Staging:
    """The buffer of one direction. It holds blocks of one group at a time, and one of the largest in any case."""

    def __init__(self, caches: CanonicalKVCaches, num_bytes: int) -> None:
        self._caches = caches
        largest = max((caches.page_size_bytes(group) for group, _ in enumerate_groups(caches.group_refs)), default=0)
        self.buffer = torch.empty(max(num_bytes, largest), dtype=torch.int8, device=caches.device)
        self.caches = _caches_over(self.buffer, caches)
        """The buffer as a cache of the same groups, each alone in it and with its content together."""
        self._units = [_units_of(caches, group_idx) for group_idx, _ in enumerate_groups(caches.group_refs)]

    def capacity(self, group_idx: GroupIdx) -> int:
        """Blocks of the group that fit."""
        return self.caches.num_blocks(group_idx)

    def gather(self, group_idx: GroupIdx, rows: torch.Tensor) -> None:
        """Enqueues the copy of rows of the group to the beginning of staging."""
        for pages, index, staged in self._columns(group_idx, rows, self._blocks(group_idx, len(rows))):
            torch.index_select(pages, 0, index, out=staged)

    def scatter(self, group_idx: GroupIdx, rows: torch.Tensor, staged_rows: torch.Tensor, num_staged: int) -> None:
        """Enqueues the copy of some of the first blocks in staging to rows of the group."""
        blocks = self._blocks(group_idx, num_staged)
        chosen = blocks if len(rows) == num_staged else blocks.index_select(0, staged_rows)
        for pages, index, staged in self._columns(group_idx, rows, chosen):
            pages.index_copy_(0, index, staged)

    def _blocks(self, group_idx: GroupIdx, count: int) -> torch.Tensor:
        page_bytes = self._caches.page_size_bytes(group_idx)
        return self.buffer[: count * page_bytes].view(count, page_bytes)

    def _columns(
        self, group_idx: GroupIdx, rows: torch.Tensor, blocks: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Parts of all pages, which of them the rows are, and their place in these blocks of staging."""
        units = self._units[group_idx]
        if units is not None:
            index = (units.first + rows[:, None] * units.step).view(-1)
            yield units.memory, index, blocks.view(units.memory.dtype).view(-1, units.memory.shape[1])
            return
        refs = zip(self._caches.group_refs[group_idx], self._caches.ref_starts(group_idx), strict=True)
        for ref, start in refs:
            pages = self._caches.tensors[ref.tensor_idx].tensor[:, ref.offset : ref.offset + ref.page_size_bytes]
            pages, staged = as_words(pages, blocks[:, start : start + ref.page_size_bytes])
            yield pages, rows, staged


class _Units(NamedTuple):
    """All tensors of a group as one, since their parts begin and end at multiples of a unit."""

    memory: torch.Tensor
    """Unit by unit, from the first ref's beginning to the last one's end, whatever else lies between them."""
    first: torch.Tensor
    """By unit of a page: where it is in block 0,"""
    step: torch.Tensor
    """and how far from there it is in the next block."""


def _units_of(caches: CanonicalKVCaches, group_idx: GroupIdx) -> _Units | None:
    """None if each ref is to be moved for itself."""
    refs = caches.group_refs[group_idx]
    if len(refs) <= FEW_REFS or not caches.num_blocks(group_idx):
        return None
    tensors = [caches.tensors[ref.tensor_idx].tensor for ref in refs]
    places = [
        (tensor.data_ptr() + ref.offset, tensor.stride(0), ref.page_size_bytes)
        for ref, tensor in zip(refs, tensors, strict=True)
    ]
    origin = min(start for start, _, _ in places)
    end = max(start + (len(tensors[0]) - 1) * stride + size for start, stride, size in places)
    unit = gcd(*(number for start, stride, size in places for number in (start - origin, stride, size)))
    if unit < _LEAST_UNIT_BYTES or unit % _WORD or origin % _WORD:
        return None
    memory = bytes_at(origin, end - origin, caches.device).view(torch.int64).view(-1, unit // _WORD)
    first = [(start - origin) // unit + i for start, _, size in places for i in range(size // unit)]
    step = [stride // unit for _, stride, size in places for _ in range(size // unit)]
    return _Units(memory, *(torch.tensor(values, device=caches.device) for values in (first, step)))


def as_words(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same bytes as int64 where all begin and end at words: kernels move elements, and bytes are slow."""
    bounds = [bound for view in (one, other) for bound in (view.data_ptr(), view.storage_offset())]
    bounds += [number for view in (one, other) for number in (view.shape[-1], *view.stride()[:-1])]
    if any(bound % _WORD for bound in bounds):
        return one, other
    return one.view(torch.int64), other.view(torch.int64)


def _caches_over(buffer: torch.Tensor, caches: CanonicalKVCaches) -> CanonicalKVCaches:
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
