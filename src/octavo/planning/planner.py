"""Makes a `KVCacheConfig` of specs and bytes, or refuses with the numbers and the remedy."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import gcd

from octavo.errors import BlockSizeError, NotEnoughMemoryError, PlanError
from octavo.planning.capacity import blocks_of_request, grows_with_context, longest_context_that_fits
from octavo.planning.grouping import group_layers
from octavo.planning.kv_cache_config import KVCacheConfig, KVCacheGroupSpec, PageClass
from octavo.planning.sheets import PageDemand, cut_sheets
from octavo.specs import (
    KVCacheSpec,
    KVCacheSpecRegistry,
    RequestLimits,
    UniformTypeKVCacheSpecs,
    ceil_div,
    resume_granularity,
)
from octavo.units import format_bytes

DEFAULT_ALIGNMENT_BYTES = 256
CHECKPOINT_SHARE_OF_ATTENTION = 4
"""Attention cache grows at least this many times as fast as the checkpoints beside it."""


def plan_kv_cache(
    layers: Mapping[str, KVCacheSpec],
    *,
    memory_bytes: int,
    limits: RequestLimits,
    hash_block_size: int | None = None,
    alignment_bytes: int = DEFAULT_ALIGNMENT_BYTES,
    draft_layers: Collection[str] = (),
    null_block: bool = False,
    checkpoint_interval_tokens: int | None = None,
    shorten_context: bool = False,
) -> KVCacheConfig:
    """The memory plan for these layers.

    `draft_layers` names the layers of a draft model; they get groups of their own. `null_block` reserves a row in
    every class for kernels that point unused table entries somewhere. `hash_block_size` defaults to the largest
    that fits all groups, `checkpoint_interval_tokens` to what `default_checkpoint_interval` says. Where one request
    of the longest context does not fit, `shorten_context` plans for the longest that does instead of refusing.
    """
    if not layers:
        raise PlanError("there are no layers to plan for")
    unknown = set(draft_layers) - set(layers)
    if unknown:
        raise PlanError(f"draft layers that are not among the layers: {', '.join(sorted(unknown))}")
    KVCacheSpecRegistry.check_kv_cache_spec_registry(layers)
    groups = [
        _place_layers(spec, limits, alignment_bytes, is_draft=is_draft, null_block=null_block)
        for is_draft in (False, True)
        for spec in group_layers({n: s for n, s in layers.items() if (n in draft_layers) is is_draft}, limits)
    ]
    hash_block_size = _check_hash_block_size(groups, hash_block_size)
    paged = [group for group in groups if group.spec.max_blocks_per_request(limits) + group.reserved_blocks > 0]
    if not paged:
        raise PlanError("none of these layers keeps anything between steps, so there is nothing to plan")
    pool_units = max(memory_bytes // alignment_bytes, *(group.page_bytes // alignment_bytes for group in paged))
    cut = cut_sheets([_demand(group, alignment_bytes, limits) for group in paged], pool_units)
    sheet_bytes = cut.sheet_units * alignment_bytes
    num_sheets = memory_bytes // sheet_bytes
    classes = sorted(set(cut.pages_per_sheet))
    for group, pages_per_sheet in zip(paged, cut.pages_per_sheet, strict=True):
        groups[groups.index(group)] = replace(group, page_class=classes.index(pages_per_sheet))
    granularity = resume_granularity([group.spec for group in groups])
    config = KVCacheConfig(
        groups=tuple(groups),
        page_classes=tuple(
            PageClass(page_bytes=sheet_bytes // k, pages_per_sheet=k, num_blocks=num_sheets * k) for k in classes
        ),
        sheet_bytes=sheet_bytes,
        num_sheets=num_sheets,
        memory_bytes=memory_bytes,
        alignment_bytes=alignment_bytes,
        hash_block_size=hash_block_size,
        resume_granularity=granularity,
        checkpoint_interval_tokens=checkpoint_interval_tokens
        or default_checkpoint_interval(groups, granularity, limits),
        asked_interval_tokens=checkpoint_interval_tokens,
        limits=limits,
    )
    return _fit_one_request(config, shorten_context=shorten_context)


def default_checkpoint_interval(
    groups: Sequence[KVCacheGroupSpec], granularity: int, limits: RequestLimits
) -> int | None:
    """The distance at which checkpoints weigh a quarter of the attention cache that grows between two of them, or more,
    so that they cut no long prompt into short pieces.

    None where no attention cache grows: then any interval would outweigh the rest.
    """
    checkpoint_bytes = sum(group.page_bytes for group in groups if group.spec.holds_checkpoints)
    bytes_per_token = sum(group.page_bytes / group.block_size for group in groups if grows_with_context(group))
    if not checkpoint_bytes or not bytes_per_token:
        return None
    tokens = int(CHECKPOINT_SHARE_OF_ATTENTION * checkpoint_bytes / bytes_per_token) + 1
    return max(ceil_div(tokens, granularity) * granularity, limits.shortest_piece(limits.max_model_len, granularity))


def _place_layers(
    spec: UniformTypeKVCacheSpecs, limits: RequestLimits, alignment_bytes: int, *, is_draft: bool, null_block: bool
) -> KVCacheGroupSpec:
    if alignment_bytes < 1 or alignment_bytes % spec.alignment_bytes:
        raise PlanError(
            f"alignment_bytes = {alignment_bytes} is not a multiple of {spec.alignment_bytes}, which the "
            f"element types of group {spec.kind} need"
        )
    offsets, end = {}, 0
    for name, layer in spec.specs.items():
        offsets[name] = end
        end += ceil_div(layer.page_size_bytes, alignment_bytes) * alignment_bytes
    needs_null_row = null_block and spec.max_blocks_per_request(limits) > 0
    return KVCacheGroupSpec(
        spec=spec,
        layer_offsets=offsets,
        page_bytes=end,
        page_class=None,
        reserved_blocks=spec.reserved_blocks + needs_null_row,
        is_draft=is_draft,
    )


def _demand(group: KVCacheGroupSpec, alignment_bytes: int, limits: RequestLimits) -> PageDemand:
    return PageDemand(
        page_units=group.page_bytes // alignment_bytes,
        pages_per_request=group.spec.max_blocks_per_request(limits),
    )


def _check_hash_block_size(groups: Sequence[KVCacheGroupSpec], hash_block_size: int | None) -> int:
    fits_all = gcd(*(group.block_size for group in groups))
    if hash_block_size is None:
        return fits_all
    for group in groups:
        if hash_block_size < 1 or group.block_size % hash_block_size:
            raise BlockSizeError(
                f"block_size = {group.block_size} of group {group.kind} is not a multiple of "
                f"hash_block_size = {hash_block_size}; {fits_all} or a divisor of it fits all groups"
            )
    return hash_block_size


def _fit_one_request(config: KVCacheConfig, *, shorten_context: bool) -> KVCacheConfig:
    context = config.limits.max_model_len
    needed = config.sheets_for(blocks_of_request(config, context))
    if needed <= config.num_sheets:
        return config
    longest = longest_context_that_fits(config)
    if longest and shorten_context:
        return replace(config, limits=replace(config.limits, max_model_len=longest))
    remedy = f"the longest context that fits is {longest:,} tokens" if longest else "not even one block of each fits"
    raise NotEnoughMemoryError(
        f"{format_bytes(config.memory_bytes)} cannot hold one request of {context:,} tokens, which needs "
        f"{format_bytes(needed * config.sheet_bytes)}; {remedy}. Give more memory or plan for a shorter context."
    )
