"""Recurrent state: Mamba, gated delta nets, short convolutions. One page holds the whole past at one boundary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from octavo.errors import SpecError
from octavo.specs.base import KVCacheSpec, RequestLimits, ResumePoint, ceil_div, require_not_negative
from octavo.specs.dtypes import CacheDType


@dataclass(frozen=True, kw_only=True)
class MambaSpec(KVCacheSpec):
    """The recurrent state of one layer: a list of tensors, each with its own type.

    `block_size` is the distance of the boundaries at which a checkpoint may be taken, not of those at which one
    is: that is a policy's choice, so small blocks cost nothing here.
    """

    kind: ClassVar[str] = "mamba"
    holds_checkpoints: ClassVar[bool] = True

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[CacheDType, ...]
    num_speculative_tokens: int = 0
    is_replicated: bool = field(default=False, metadata={"decides_bytes": False})
    """Whether each rank keeps the whole state, and not its share. What a chunk holds follows from the shapes."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        require_not_negative(self, "num_speculative_tokens")
        if not self.shapes or len(self.shapes) != len(self.dtypes):
            raise SpecError(
                f"{name}: {len(self.shapes)} shapes and {len(self.dtypes)} dtypes; "
                "give one dtype for each of at least one shape"
            )
        object.__setattr__(self, "dtypes", tuple(map(CacheDType.parse, self.dtypes)))
        if any(not isinstance(size, int) or size < 1 for shape in self.shapes for size in shape):
            raise SpecError(f"{name}: shapes {self.shapes} hold a size below 1, or one that is no whole number")
        super().__post_init__()

    @property
    def tensor_offsets(self) -> tuple[int, ...]:
        """Where each tensor starts within the page; each is aligned for its type."""
        return self._layout()[0]

    @property
    def unpadded_page_size_bytes(self) -> int:
        return self._layout()[1]

    def _layout(self) -> tuple[tuple[int, ...], int]:
        offsets, end = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            start = ceil_div(end, dtype.alignment_bytes) * dtype.alignment_bytes
            offsets.append(start)
            end = start + dtype.array_bytes(prod(shape))
        return tuple(offsets), end

    @property
    def alignment_bytes(self) -> int:
        return max(dtype.alignment_bytes for dtype in self.dtypes)

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        if point.num_tokens == 0:
            return ()
        last = ceil_div(point.num_tokens, self.block_size)
        return (range(last - 1, last),)

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        """The running states, and the checkpoint that is being read at the start or written at a boundary."""
        return 2 + self.num_speculative_tokens

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(
            isinstance(spec, MambaSpec) and spec.num_speculative_tokens == self.num_speculative_tokens
            for spec in specs.values()
        )
