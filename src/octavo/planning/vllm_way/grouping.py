"""vLLM's groups: one where all layers can share a block table, else pages of one size and groups of one length.

    all alike, or of one type       one group, whatever the layers' page sizes
    else                            every page as large as the largest (more tokens per block, or padding),
                                    buckets of equal specs, each cut into groups of as many layers as the smallest has

Modelled for a layout with layers outermost, which vLLM takes on CUDA unless a backend asks for another. DeepSeek V4's
does (blocks outermost, layers of several page sizes packed into one block): such models are refused here.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from octavo.errors import PlanError
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

Group = dict[str, KVCacheSpec]


def groups_as_vllm_makes_them(layers: Mapping[str, KVCacheSpec]) -> list[Group]:
    """The groups, in vLLM's order, with vLLM's final block and page sizes. Raises PlanError if vLLM refuses."""
    _refuse_what_is_not_modelled(layers)
    if not layers:
        return []
    if _can_share_block_table(layers):
        return [dict(layers)]
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
        if isinstance(spec, MLAAttentionSpec) and spec.tokens_per_state > 1:
            raise PlanError(
                f"layer {name}: vLLM packs compressed latents ({spec.tokens_per_state} tokens per state) in blocks of "
                "their own layout, which is not modelled; compare without them"
            )


def _can_share_block_table(layers: Mapping[str, KVCacheSpec]) -> bool:
    """Whether vLLM gives all of `layers` one block table. It asks the first layer only."""
    specs = list(layers.values())
    first = specs[0]
    if len({spec.block_size for spec in specs}) > 1:
        return False
    match first:
        case MambaSpec():  # pages of one size too, unlike Octavo's rule
            return first.is_uniform_with_collection(layers) and len({spec.page_size_bytes for spec in specs}) == 1
        case FullAttentionSpec():  # sinks too
            return all(isinstance(spec, FullAttentionSpec) for spec in specs)
        case SlidingWindowSpec():  # latent windows too, where the first is not one
            base = SlidingWindowMLASpec if isinstance(first, SlidingWindowMLASpec) else SlidingWindowSpec
            return all(isinstance(spec, base) and spec.sliding_window == first.sliding_window for spec in specs)
        case _:
            return first.is_uniform_with_collection(layers)


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
    return promoted if _can_share_block_table(promoted) else None


def _as_full(window: SlidingWindowSpec, block_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=block_size,
        num_kv_heads=window.num_kv_heads,
        head_size=window.head_size,
        head_size_v=window.head_size_v,
        dtype=window.dtype,
    )
