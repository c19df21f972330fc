"""Canonical caches: any engine's KV caches as rows of bytes.

    tensor   int8 (num_blocks, page_size_bytes), a strided view of the engine's own memory: row i is block i
    ref      bytes [offset, offset + page_size_bytes) of every row of one tensor
    group    its refs, in order: what a block of the group consists of

Groups whose blocks lie over each other share tensors. Padding belongs to no ref, so it is never moved.
"""

from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

import numpy as np
import torch

from octavo.errors import CacheLayoutError
from octavo.ids import GroupIdx, enumerate_groups


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanonicalKVCacheTensor:
    """Memory of an engine, one row per block."""

    tensor: torch.Tensor
    page_size_bytes: int

    def __post_init__(self) -> None:
        tensor = self.tensor
        if tensor.dtype != torch.int8 or tensor.dim() != 2 or tensor.shape[1] != self.page_size_bytes:
            raise CacheLayoutError(
                f"a canonical tensor is int8 (num_blocks, {self.page_size_bytes}), "
                f"not {tensor.dtype} {tuple(tensor.shape)}"
            )
        if tensor.stride(1) != 1 or (tensor.shape[0] > 1 and tensor.stride(0) < self.page_size_bytes):
            raise CacheLayoutError(
                f"strides {tensor.stride()} do not keep rows of {self.page_size_bytes} bytes whole and apart"
            )

    @property
    def num_blocks(self) -> int:
        return self.tensor.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalKVCacheRef:
    """Where one run of bytes of a group's blocks lies."""

    tensor_idx: int
    page_size_bytes: int
    """Of content: the row may hold more, for other layers or as padding."""
    offset: int = 0
    """Of the run within the row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanonicalKVCaches:
    """The tensors, and for each group what its blocks consist of."""

    tensors: tuple[CanonicalKVCacheTensor, ...]
    group_refs: tuple[tuple[CanonicalKVCacheRef, ...], ...]
    """By group; empty for a group that keeps nothing."""

    def __post_init__(self) -> None:
        if len({entry.tensor.device for entry in self.tensors}) > 1:
            devices = sorted({str(entry.tensor.device) for entry in self.tensors})
            raise CacheLayoutError(f"the caches of one rank lie on several devices: {', '.join(devices)}")
        for group_idx, refs in enumerate_groups(self.group_refs):
            for ref in refs:
                self._check_ref(group_idx, ref)
            if len({self.tensors[ref.tensor_idx].num_blocks for ref in refs}) > 1:
                raise CacheLayoutError(f"the tensors of group {group_idx} have different numbers of blocks")
            _check_apart(group_idx, refs)
            self._check_tensors_apart(group_idx, refs)

    def _check_ref(self, group_idx: GroupIdx, ref: CanonicalKVCacheRef) -> None:
        if not 0 <= ref.tensor_idx < len(self.tensors):
            raise CacheLayoutError(f"group {group_idx} names tensor {ref.tensor_idx} of {len(self.tensors)}")
        row_bytes = self.tensors[ref.tensor_idx].page_size_bytes
        if ref.offset < 0 or ref.page_size_bytes < 1 or ref.offset + ref.page_size_bytes > row_bytes:
            raise CacheLayoutError(
                f"group {group_idx} names {ref.page_size_bytes} bytes at {ref.offset} of rows of {row_bytes} bytes"
            )

    def _check_tensors_apart(self, group_idx: GroupIdx, refs: tuple[CanonicalKVCacheRef, ...]) -> None:
        """Rows of different strides that meet, whichever they are."""
        for one, other in combinations(refs, 2):
            if one.tensor_idx != other.tensor_idx and _do_meet(self._rows(one), self._rows(other)):
                raise CacheLayoutError(
                    f"group {group_idx} names bytes twice: blocks in tensors {one.tensor_idx} and {other.tensor_idx} "
                    f"overlap"
                )

    def _rows(self, ref: CanonicalKVCacheRef) -> "_Rows":
        tensor = self.tensors[ref.tensor_idx].tensor
        return _Rows(tensor.data_ptr() + ref.offset, tensor.stride(0), tensor.shape[0], ref.page_size_bytes)

    @property
    def device(self) -> torch.device:
        return self.tensors[0].tensor.device if self.tensors else torch.device("cpu")

    def page_size_bytes(self, group_idx: GroupIdx) -> int:
        """Bytes of one block of the group as it is offloaded."""
        return sum(ref.page_size_bytes for ref in self.group_refs[group_idx])

    def num_blocks(self, group_idx: GroupIdx) -> int:
        refs = self.group_refs[group_idx]
        return self.tensors[refs[0].tensor_idx].num_blocks if refs else 0

    def ref_starts(self, group_idx: GroupIdx) -> tuple[int, ...]:
        """Where each ref's bytes begin within a block as it is offloaded."""
        sizes = [ref.page_size_bytes for ref in self.group_refs[group_idx]]
        return tuple(accumulate(sizes, initial=0))[:-1]


def _check_apart(group_idx: GroupIdx, refs: tuple[CanonicalKVCacheRef, ...]) -> None:
    """A load that wrote bytes twice would leave what came last."""
    ordered = sorted(refs, key=lambda ref: (ref.tensor_idx, ref.offset))
    for one, next_one in pairwise(ordered):
        if one.tensor_idx == next_one.tensor_idx and one.offset + one.page_size_bytes > next_one.offset:
            raise CacheLayoutError(
                f"group {group_idx} names bytes of tensor {one.tensor_idx} twice: {one.page_size_bytes} at "
                f"{one.offset} and {next_one.page_size_bytes} at {next_one.offset}"
            )


class _Rows(NamedTuple):
    """Where a ref's bytes lie in memory."""

    start: int
    stride: int
    num_rows: int
    num_bytes: int

    @property
    def end(self) -> int:
        return self.start + (self.num_rows - 1) * self.stride + self.num_bytes


def _do_meet(one: _Rows, other: _Rows) -> bool:
    if not one.num_rows or one.end <= other.start or other.end <= one.start:
        return False
    starts = np.concatenate([rows.start + rows.stride * np.arange(rows.num_rows) for rows in (one, other)])
    ends = starts + np.repeat([one.num_bytes, other.num_bytes], [one.num_rows, other.num_rows])
    order = np.argsort(starts)
    return bool((ends[order][:-1] > starts[order][1:]).any())
