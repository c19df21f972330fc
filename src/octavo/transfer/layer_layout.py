"""Where the blocks of one layer lie in memory, found from its tensor's shape and strides.

The plan says how many blocks there are and how many bytes of the layer each holds; a shape is only checked against it:

    (num_blocks, ...)              block first: K and V inside (..., 2, ...), latent, state, padded rows
    (2, num_blocks, ...)           K/V split: two runs per block (other counts of parts: say `block_dim`)
    (num_blocks * r, ...)          kernels that cut a block into r smaller ones

What lies inside a block may be in any order, as long as it makes few contiguous runs: pages are opaque bytes.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch

from octavo.errors import CacheLayoutError

MAX_RUNS_PER_BLOCK = 64
"""A block of one tensor that lies in more pieces is refused: each would be a copy of its own."""


class BlockRun(NamedTuple):
    """A contiguous part of every block of a layer: block b has `num_bytes` at `start + b * block_stride`.

    All are in bytes from the beginning of the storage.
    """

    storage: torch.UntypedStorage
    start: int
    block_stride: int
    num_bytes: int
    num_blocks: int

    @property
    def space(self) -> tuple[int, ...]:
        """Runs that differ in it never share rows."""
        return self.storage.data_ptr(), self.block_stride, self.num_blocks

    @property
    def place(self) -> tuple[int, ...]:
        """Equal for runs that are the same bytes."""
        return *self.space, self.start, self.num_bytes

    @property
    def end(self) -> int:
        """Of block 0."""
        return self.start + self.num_bytes


class _Dim(NamedTuple):
    size: int
    stride: int
    """In bytes."""


def runs_of_tensor(
    layer: str, tensor: torch.Tensor, *, num_blocks: int, page_size_bytes: int | None, block_dim: int | None
) -> list[BlockRun]:
    """The runs of a tensor that holds `page_size_bytes` of every block; None: however many its rows hold."""
    found = _Finder(layer, tensor, num_blocks, page_size_bytes)
    if block_dim is not None:
        dims = [block_dim]
    elif tensor.dim() > 1 and tensor.shape[0] == 2:
        dims = [0, 1]
    else:
        dims = [0]
    answers = [runs for dim in dims if (runs := found.runs_along(dim)) is not None]
    if not answers:
        raise found.refusal("; ".join(found.reasons))
    if any([run.place for run in runs] != [run.place for run in answers[0]] for runs in answers[1:]):
        raise found.refusal("dimension 0 or dimension 1 could count the blocks: say which (block_dim)")
    return answers[0]


class _Finder:
    """The search for one tensor's blocks, and why each dimension was not the one that counts them."""

    def __init__(self, layer: str, tensor: torch.Tensor, num_blocks: int, page_size_bytes: int | None) -> None:
        self.layer = layer
        self.tensor = tensor
        self.num_blocks = num_blocks
        self.page_size_bytes = page_size_bytes
        self.reasons: list[str] = []
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise self.refusal(f"it has no strided memory ({tensor.layout}, {tensor.device})")

    def refusal(self, reason: str) -> CacheLayoutError:
        tensor = self.tensor
        strides = tensor.stride() if tensor.layout == torch.strided else "none"
        return CacheLayoutError(
            f"layer {self.layer!r}, shape {tuple(tensor.shape)}, strides {strides}, {tensor.dtype}: {reason}"
        )

    def runs_along(self, block_dim: int) -> list[BlockRun] | None:
        """The runs if this dimension counts blocks; None, and a reason noted, if it cannot."""
        rows_per_block = self._rows_per_block(block_dim)
        if rows_per_block is None:
            return None
        item = self.tensor.element_size()
        dims = [_Dim(size, stride * item) for size, stride in zip(self.tensor.shape, self.tensor.stride(), strict=True)]
        rows = dims.pop(block_dim)
        block_stride = rows.stride * rows_per_block
        inner = [*dims, _Dim(rows_per_block, rows.stride)]
        self._check_apart([*inner, _Dim(self.num_blocks, block_stride)])
        num_bytes, outer = _contiguous_run(inner, item)
        starts = list(_offsets(outer))
        if len(starts) > MAX_RUNS_PER_BLOCK:
            raise self.refusal(
                f"a block lies in {len(starts)} runs of {num_bytes} bytes; at most {MAX_RUNS_PER_BLOCK} can be "
                "moved. Keep the bytes of a block together"
            )
        first = int(self.tensor.storage_offset()) * item
        stride = block_stride if self.num_blocks > 1 else num_bytes
        storage = self.tensor.untyped_storage()
        runs = [BlockRun(storage, first + start, stride, num_bytes, self.num_blocks) for start in starts]
        for run in runs:
            self._check_storage(run)
        return runs

    def _rows_per_block(self, block_dim: int) -> int | None:
        shape = self.tensor.shape
        if not -len(shape) <= block_dim < len(shape):
            raise self.refusal(f"it has no dimension {block_dim} to count blocks")
        if 0 in shape:
            raise self.refusal("it is empty")
        num_rows = shape[block_dim]
        row_bytes = self.tensor.numel() // num_rows * self.tensor.element_size()
        wanted = row_bytes if self.page_size_bytes is None else self.page_size_bytes
        rows_per_block, rest = divmod(wanted, row_bytes)
        if rest or not rows_per_block:
            self.reasons.append(
                f"dimension {block_dim} has {num_rows} rows of {row_bytes} bytes, of which no whole number makes the "
                f"{self.page_size_bytes} bytes of a block"
            )
            return None
        # More rows than needed are fine where a row is a block; where blocks are cut, they would hide padding.
        if num_rows < self.num_blocks * rows_per_block or (
            rows_per_block > 1 and num_rows > self.num_blocks * rows_per_block
        ):
            self.reasons.append(
                f"dimension {block_dim} holds {num_rows / rows_per_block:g} blocks of {row_bytes * rows_per_block} "
                f"bytes, the plan has {self.num_blocks}"
            )
            return None
        return rows_per_block

    def _check_apart(self, dims: Sequence[_Dim]) -> None:
        reach = self.tensor.element_size()
        for dim in sorted(_real(dims), key=lambda dim: dim.stride):
            if dim.stride < reach:
                raise self.refusal("its elements share memory, so blocks cannot be written one by one")
            reach = dim.stride * (dim.size - 1) + reach

    def _check_storage(self, run: BlockRun) -> None:
        have = run.storage.nbytes() - run.start - run.num_bytes
        blocks = 0 if have < 0 else have // run.block_stride + 1
        if blocks < self.num_blocks:
            raise self.refusal(
                f"its storage of {run.storage.nbytes()} bytes holds {blocks} blocks, the plan has {self.num_blocks}. "
                "Allocate what the plan says, or plan with the memory that there is"
            )


def _contiguous_run(dims: Sequence[_Dim], item: int) -> tuple[int, list[_Dim]]:
    """Bytes of the contiguous run that the innermost dimensions make, and the dimensions that repeat it."""
    ordered = sorted(_real(dims), key=lambda dim: dim.stride)
    num_bytes = item
    while ordered and ordered[0].stride == num_bytes:
        num_bytes *= ordered.pop(0).size
    return num_bytes, ordered


def _offsets(dims: Sequence[_Dim]) -> Iterator[int]:
    """Where each repetition begins, ascending."""
    steps = [range(0, dim.size * dim.stride, dim.stride) for dim in reversed(dims)]
    return (sum(place) for place in product(*steps))


def _real(dims: Sequence[_Dim]) -> list[_Dim]:
    return [dim for dim in dims if dim.size > 1]
