"""From an engine's cache tensors to canonical ones, without copying a byte.

layer   -> runs             a contiguous part of every block (`layer_layout`)
runs    -> tensors, refs    rows that several runs share, and each group's parts of them (`rows`)

An engine over Octavo's pool registers its sheets (`register_sheets`): one copy moves a page of all layers. An engine
with tensors of its own registers those by layer (`register_kv_caches`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Self

import torch

from octavo.errors import BlockSizeError, CacheLayoutError
from octavo.ids import enumerate_groups
from octavo.planning import KVCacheConfig
from octavo.specs import require_positive
from octavo.transfer.canonical import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor
from octavo.transfer.layer_layout import BlockRun, runs_of_tensor
from octavo.transfer.rows import rows_of_storage, share_rows

LayerCache = torch.Tensor | Sequence[torch.Tensor]
"""What an engine has for a layer: one tensor, or several that make up its blocks together (recurrent state)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredGroup:
    """What the plan says about one group."""

    layers: Mapping[str, int]
    """Content bytes of one block by layer, padding not included; empty for a group that keeps nothing."""
    num_blocks: int
    block_size: int
    block_dim: int | None = None
    """The dimension of its tensors that counts blocks; None finds it."""

    def __post_init__(self) -> None:
        require_positive(self, "num_blocks", "block_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRegistration:
    """What the plan says about all groups, whosever plan it is."""

    groups: tuple[RegisteredGroup, ...]
    hash_block_size: int

    def __post_init__(self) -> None:
        require_positive(self, "hash_block_size")
        fits_all = gcd(*(group.block_size for group in self.groups))
        for group_idx, group in enumerate_groups(self.groups):
            if group.block_size % self.hash_block_size:
                raise BlockSizeError(
                    f"block_size = {group.block_size} of group {group_idx} is not a multiple of hash_block_size = "
                    f"{self.hash_block_size}, so no chunk of it could be named; {fits_all} or a divisor of it fits "
                    "all groups (hybrid models in vLLM: --enable-prefix-caching aligns their block sizes)"
                )

    @classmethod
    def of_plan(cls, plan: KVCacheConfig) -> Self:
        """The registration of an Octavo plan, for an engine that registers layer by layer. See `register_sheets`."""
        groups = []
        for group in plan.groups:
            pages = plan.class_of(group)
            layers = {name: spec.unpadded_page_size_bytes for name, spec in group.spec.specs.items()}
            groups.append(
                RegisteredGroup(
                    layers=layers if pages else {},
                    num_blocks=pages.num_blocks if pages else 1,
                    block_size=group.block_size,
                )
            )
        return cls(groups=tuple(groups), hash_block_size=plan.hash_block_size)


def register_kv_caches(kv_caches: Mapping[str, LayerCache], config: CacheRegistration) -> CanonicalKVCaches:
    """The canonical caches over an engine's own tensors; CacheLayoutError where they cannot be expressed.

    Layers that no group names are left out: they see another layer's cache.
    """
    return share_rows([_runs_of_group(kv_caches, group) for group in config.groups])


def register_sheets(pool: torch.Tensor, plan: KVCacheConfig) -> CanonicalKVCaches:
    """The canonical caches of Octavo's own pool: a tensor per page class, and one run per block.

    A run goes from a page's first layer to its last, with what aligns the layers between; what pads the page to a part
    of a sheet is left out.
    """
    needed = plan.num_sheets * plan.sheet_bytes
    if not pool.is_contiguous() or pool.numel() * pool.element_size() < needed:
        raise CacheLayoutError(
            f"the pool, shape {tuple(pool.shape)}, strides {pool.stride()}, {pool.dtype}, is not one piece of at least "
            f"{plan.num_sheets} sheets of {plan.sheet_bytes} bytes: it holds {pool.numel() * pool.element_size()} of "
            f"{needed}. Allocate what the plan says"
        )
    tensors = tuple(
        CanonicalKVCacheTensor(
            tensor=rows_of_storage(
                pool.untyped_storage(),
                start=int(pool.storage_offset()) * pool.element_size(),
                num_rows=pages.num_blocks,
                row_bytes=pages.page_bytes,
                stride=pages.page_bytes,
            ),
            page_size_bytes=pages.page_bytes,
        )
        for pages in plan.page_classes
    )
    refs = tuple(
        ()
        if group.page_class is None
        else (CanonicalKVCacheRef(tensor_idx=group.page_class, page_size_bytes=group.page_bytes),)
        for group in plan.groups
    )
    return CanonicalKVCaches(tensors=tensors, group_refs=refs)


def _runs_of_group(kv_caches: Mapping[str, LayerCache], group: RegisteredGroup) -> list[BlockRun]:
    """The runs of a group's layers, in order; a run that two layers see stands once."""
    runs: dict[tuple[int, ...], BlockRun] = {}
    for layer, page_size_bytes in group.layers.items():
        if layer not in kv_caches:
            raise CacheLayoutError(f"layer {layer!r} is in the plan, but no cache was registered for it")
        for run in _runs_of_layer(layer, kv_caches[layer], page_size_bytes, group):
            runs.setdefault(run.place, run)
    return list(runs.values())


def _runs_of_layer(layer: str, cache: LayerCache, page_size_bytes: int, group: RegisteredGroup) -> list[BlockRun]:
    tensors = [cache] if isinstance(cache, torch.Tensor) else list(cache)
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        kinds = ", ".join(type(tensor).__name__ for tensor in tensors) or "nothing"
        raise CacheLayoutError(f"layer {layer!r}: a cache is a tensor or a list of some, not {kinds}")
    if len(tensors) == 1:
        return runs_of_tensor(
            layer, tensors[0], num_blocks=group.num_blocks, page_size_bytes=page_size_bytes, block_dim=group.block_dim
        )
    runs = [
        run
        for tensor in tensors
        for run in runs_of_tensor(
            layer, tensor, num_blocks=group.num_blocks, page_size_bytes=None, block_dim=group.block_dim or 0
        )
    ]
    content = sum(run.num_bytes for run in runs)
    span = max(run.start + run.num_bytes for run in runs) - min(run.start for run in runs)
    if page_size_bytes not in (content, span):  # the plan may count what aligns one tensor after another
        raise CacheLayoutError(
            f"layer {layer!r}, {len(tensors)} tensors of shapes {[tuple(t.shape) for t in tensors]}, strides "
            f"{[t.stride() for t in tensors]}: a block holds {content} bytes, the plan says {page_size_bytes}"
        )
    return runs
