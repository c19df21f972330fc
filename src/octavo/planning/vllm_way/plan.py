"""How vLLM divides the memory among its groups, and the figures that it reports.

All groups draw block ids from one pool. An id costs the bytes of the widest group, whichever group takes it:

    bytes_per_block = max over groups of (sum of its layers' pages)
    a request takes   the sum over groups of its blocks
    at once           num_blocks / that sum
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from octavo.errors import NotEnoughMemoryError, PlanError
from octavo.planning.vllm_way.block_size import layers_as_vllm_sizes_them
from octavo.planning.vllm_way.block_tables import Group
from octavo.planning.vllm_way.grouping import groups_as_vllm_makes_them
from octavo.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVCacheSpecRegistry,
    MambaSpec,
    RequestLimits,
    SlidingWindowSpec,
    ceil_div,
)
from octavo.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmGroup:
    """Layers that share a block table in vLLM. `kind` is how vLLM manages them: a window may be kept as if full."""

    kind: str
    layer_names: tuple[str, ...]
    block_size: int
    page_size_bytes: int
    """One block of all its layers, their padding included. A group with fewer layers than the widest leaves the
    rest of `VllmPlan.bytes_per_block` empty."""
    useful_page_bytes: int
    """The same without padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmPlan:
    """vLLM's plan for the layers."""

    groups: tuple[VllmGroup, ...]
    bytes_per_block: int
    """Bytes of the pool that one block id costs, whichever group holds it."""
    num_blocks: int
    """Ids in the pool. vLLM keeps one of them as its null block, and counts it nevertheless."""
    tokens: int
    """vLLM's "KV cache size" in tokens: requests at once, times their length."""
    requests_at_once: float
    """vLLM's "maximum concurrency" for requests of `max_model_len` tokens."""
    blocks_per_request: tuple[int, ...]
    """The most ids of each group that vLLM lets one request of `max_model_len` tokens take."""
    waste_fraction: float
    """Share of the ids' bytes that is not useful, when all are taken by requests of `max_model_len` tokens: padding
    of pages, layers missing in short groups, tokens that grown blocks round up to, windows kept as if full."""


def plan_like_vllm(
    layers: Mapping[str, KVCacheSpec],
    *,
    memory_bytes: int,
    limits: RequestLimits,
    block_size: int = 16,
    steps_in_flight: int = 1,
    spare_states: int = 0,
) -> VllmPlan:
    """vLLM's plan for these layers on a CUDA device with prefix caching; PlanError where vLLM refuses them.

    `block_size` is where vLLM starts from (its `--block-size`), whatever the layers say; packed ones keep their own. A
    step in flight keeps blocks of windows and chunks alive: one step by default, as in Octavo's own plan, so that the
    two compare; vLLM schedules asynchronously on CUDA unless told otherwise, so there it reports what 2 gives here.
    `spare_states` is 1 where the kernels write a checkpoint from inside a prefill (in 0.32 Mamba 2's do, gated delta
    nets' do not); a spec does not say, so the default favours vLLM.
    """
    KVCacheSpecRegistry.check_kv_cache_spec_registry(layers)
    limits = replace(limits, max_step_tokens=limits.max_step_tokens * steps_in_flight)
    groups = groups_as_vllm_makes_them(layers_as_vllm_sizes_them(layers, block_size))
    blocks_per_request = tuple(_blocks_of_request(group, limits, spare_states) for group in groups)
    if not any(blocks_per_request):
        raise PlanError("none of these layers keeps anything between steps, so there is nothing to plan")

    bytes_per_block = max(_page_bytes(group) for group in groups)
    num_blocks = memory_bytes // bytes_per_block
    _check_one_request_fits(sum(blocks_per_request), num_blocks, bytes_per_block, limits)
    requests_at_once = num_blocks / sum(blocks_per_request)
    useful = sum(spec.max_blocks_per_request(limits) * spec.unpadded_page_size_bytes for spec in layers.values())
    return VllmPlan(
        groups=tuple(_describe(group) for group in groups),
        bytes_per_block=bytes_per_block,
        num_blocks=num_blocks,
        tokens=int(requests_at_once * limits.max_model_len),
        requests_at_once=requests_at_once,
        blocks_per_request=blocks_per_request,
        waste_fraction=max(0.0, 1 - useful / (sum(blocks_per_request) * bytes_per_block)),
    )


def _page_bytes(group: Group) -> int:
    return sum(spec.page_size_bytes for spec in group.values())


def _describe(group: Group) -> VllmGroup:
    kinds = {spec.kind for spec in group.values()}
    first = next(iter(group.values()))
    kind = kinds.pop() if len(kinds) == 1 else KVCacheSpecRegistry.get_uniform_type_base_spec(first).kind
    return VllmGroup(
        kind=kind,
        layer_names=tuple(group),
        block_size=first.block_size,
        page_size_bytes=_page_bytes(group),
        useful_page_bytes=sum(spec.unpadded_page_size_bytes for spec in group.values()),
    )


def _blocks_of_request(group: Group, limits: RequestLimits, spare_states: int) -> int:
    return max(_blocks_of_layer(spec, limits, spare_states) for spec in set(group.values()))


def _blocks_of_layer(spec: KVCacheSpec, limits: RequestLimits, spare_states: int) -> int:
    """The most blocks that vLLM lets a request of the longest length hold. Octavo's own bounds differ."""
    longest = limits.max_model_len
    match spec:
        case MambaSpec():  # the running states, and the one that was cached at the last boundary
            return 2 + spec.num_speculative_tokens + spare_states
        case SlidingWindowSpec():  # + 1: the window may begin inside a block
            tokens = spec.sliding_window - 1 + limits.max_step_tokens
            return ceil_div(min(tokens, longest), spec.block_size) + 1
        case ChunkedLocalAttentionSpec():
            tokens = spec.attention_chunk_size + limits.max_step_tokens
            return ceil_div(min(tokens, longest), spec.block_size)
        case CrossAttentionSpec():
            return ceil_div(limits.max_encoder_tokens, spec.block_size)
        case FullAttentionSpec():
            return ceil_div(longest, spec.block_size)
        case _:
            return spec.max_blocks_per_request(limits)


def _check_one_request_fits(blocks: int, num_blocks: int, bytes_per_block: int, limits: RequestLimits) -> None:
    if blocks > num_blocks - 1:  # the null block is nobody's
        raise NotEnoughMemoryError(
            f"vLLM needs {format_bytes((blocks + 1) * bytes_per_block)} for one request of {limits.max_model_len:,} "
            f"tokens ({blocks:,} blocks of {format_bytes(bytes_per_block)}, and its null block), but only "
            f"{format_bytes(num_blocks * bytes_per_block)} of blocks fit; give more memory or a shorter max_model_len"
        )
