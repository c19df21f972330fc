"""vLLM's groups: one where all layers can share a block table, else pages of one size and groups of one length.

    all alike, or of one type       one group, whatever the layers' page sizes
    else                            every page as large as the largest (more tokens per block, or padding),
                                    buckets of equal specs, each cut into groups of as many layers as the smallest has

That is for a layout with layers outermost, which vLLM takes on CUDA unless a kernel asks for another (see `packing`).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from octavo.errors import PlanError
from octavo.planning.vllm_way.block_tables import Group, can_share_block_table
from octavo.planning.vllm_way.packing import are_packed, packed_groups
from octavo.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    ceil_div,
)


def groups_as_vllm_makes_them(layers: Mapping[str, KVCacheSpec]) -> list[Group]:
    """The groups, in vLLM's order, with vLLM's final block and page sizes. Raises PlanError if vLLM refuses."""
    _refuse_what_is_not_modelled(layers)
    if not layers:
        return []
    if can_share_block_table(layers):
        return [dict(layers)]
    if are_packed(layers):
        return packed_groups(layers)
    try:
        unified = _with_one_page_size(layers)
    except PlanError:
        if (fallback := _full_allocation_fallback(layers)) is not None:
            return [fallback]
        raise
    return _groups_of_equal_length(unified)


def _refuse_what_is_not_modelled(layers: Mapping[str, KVCacheSpec]) -> None:
    for name, spec in layers.items():
        if isinstance(spec, HiddenStateCacheSpec):
            raise PlanError(f"layer {name}: vLLM's placement of hidden-state layers is not modelled; leave them out")


def _with_one_page_size(layers: Mapping[str, KVCacheSpec]) -> Group:
    page = max(spec.page_size_bytes for spec in layers.values())
    return {name: _with_page_size(name, spec, page) for name, spec in layers.items()}


def _with_page_size(name: str, spec: KVCacheSpec, page: int) -> KVCacheSpec:
    own = spec.page_size_bytes
    if own == page:
        return spec
    if isinstance(spec, MambaSpec):
        return replace(spec, page_size_padded=page)
    if page % own == 0:
        return spec.with_block_size(spec.block_size * (page // own))
    if isinstance(spec, AttentionSpec) and not isinstance(spec, MLAAttentionSpec):
        return replace(spec, page_size_padded=page)
    raise PlanError(
        f"vLLM refuses these layers: the page of {name} ({own} bytes) does not divide the largest page "
        f"({page} bytes), and it pads no latent attention"
    )


def _groups_of_equal_length(layers: Mapping[str, KVCacheSpec]) -> list[Group]:
    """Cut each bucket of equal specs to the length of the smallest bucket; short groups waste the missing layers.

    Where the largest bucket is less than half as large again as the smallest, the largest sets the length.
    """
    buckets: dict[KVCacheSpec, list[str]] = defaultdict(list)
    for name, spec in layers.items():
        buckets[spec].append(name)
    lengths = [len(names) for names in buckets.values()]
    length = max(lengths) if max(lengths) < 1.5 * min(lengths) else min(lengths)

    groups: list[Group] = []
    for spec, names in buckets.items():
        num_groups = ceil_div(len(names), length)
        # Every num_groups-th layer, so that each stage of a pipeline has its share of each group.
        groups += [dict.fromkeys(names[i::num_groups], spec) for i in range(num_groups)]
    return groups


def _full_allocation_fallback(layers: Mapping[str, KVCacheSpec]) -> Group | None:
    """One group where plain windows stand beside latent attention: their blocks are kept as if they were full.

    None where that does not give one type either; `layers` have pages that cannot be made equal.
    """
    specs = list(layers.values())
    latent = next((spec for spec in specs if isinstance(spec, MLAAttentionSpec)), None)
    if latent is None or any(isinstance(spec, SlidingWindowMLASpec | ChunkedLocalAttentionSpec) for spec in specs):
        return None
    promoted = {
        name: _as_full(spec, latent.block_size) if isinstance(spec, SlidingWindowSpec) else spec
        for name, spec in layers.items()
    }
    return promoted if can_share_block_table(promoted) else None


def _as_full(window: SlidingWindowSpec, block_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=block_size,
        num_kv_heads=window.num_kv_heads,
        head_size=window.head_size,
        head_size_v=window.head_size_v,
        dtype=window.dtype,
    )
