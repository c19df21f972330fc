"""A plan as plain data: what `octavo plan --json` prints, with a schema that does not change silently."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from octavo.planning.capacity import Capacity, Waste, grows_with_context, measure_capacity
from octavo.planning.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from octavo.planning.vllm_way import VllmPlan
from octavo.specs import ChunkedLocalAttentionSpec, KVCacheSpec, SlidingWindowSpec

FORMAT_VERSION: Literal[1] = 1


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """One group of layers that share a block table."""

    kind: str
    layers: int
    window_tokens: int | None
    """How far the group's layers look back: a sliding window, or a chunk of local attention. None for all others."""
    block_size: int
    page_size_bytes: int
    """Bytes of content in one block of all layers, without padding."""
    padded_page_bytes: int
    """Bytes that one block takes of the pool."""
    pages_per_sheet: int
    num_blocks: int
    grows_with_context: bool
    bytes_per_token: float
    """Content per token while the group fills; it stops growing where `grows_with_context` is false."""
    blocks_per_request: int
    bytes_per_request: int
    """Pool bytes of the most blocks that one request of the context length holds."""


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of the same pool for requests with another context."""

    context: int
    requests_at_once: int
    tokens: int
    bytes_per_request: int
    """Pool bytes of the most blocks of all groups that one request holds."""


class VllmGroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """One group of vLLM's plan."""

    kind: str
    layers: int
    block_size: int
    page_size_bytes: int
    useful_page_bytes: int


class VllmReport(msgspec.Struct, frozen=True, kw_only=True):
    """The same layers and memory planned with one page size for all groups."""

    groups: list[VllmGroupReport]
    num_blocks: int
    bytes_per_block: int
    tokens: int
    requests_at_once: float
    waste_fraction: float


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A memory plan of one rank and its capacity."""

    format_version: Literal[1] = FORMAT_VERSION
    model: str
    notes: list[str]
    tensor_parallel_size: int
    weight_bytes: int | None
    """The weights of all ranks together, from files or estimated; None if not known."""
    memory_bytes: int
    context: int
    groups: list[GroupReport]
    sheet_bytes: int
    num_sheets: int
    hash_block_size: int
    resume_granularity: int
    checkpoint_interval_tokens: int | None
    tokens: int
    requests_at_once: int
    contexts: list[ContextReport]
    """Each context that was asked for, the shortest first; the plan is made for the longest."""
    waste_fraction: float
    waste: Waste
    vllm: VllmReport | None = None


def report_plan(
    config: KVCacheConfig,
    *,
    model: str,
    notes: tuple[str, ...] = (),
    tensor_parallel_size: int = 1,
    contexts: Sequence[int] = (),
    weight_bytes: int | None = None,
    vllm: VllmPlan | None = None,
) -> PlanReport:
    """The report of a plan at its longest context, with what it holds at other `contexts` too."""
    capacity = measure_capacity(config)
    return PlanReport(
        model=model,
        notes=list(notes),
        tensor_parallel_size=tensor_parallel_size,
        weight_bytes=weight_bytes,
        memory_bytes=config.memory_bytes,
        context=capacity.context,
        groups=[_report_group(config, capacity, index) for index in range(len(config.groups))],
        sheet_bytes=config.sheet_bytes,
        num_sheets=config.num_sheets,
        hash_block_size=config.hash_block_size,
        resume_granularity=config.resume_granularity,
        checkpoint_interval_tokens=config.checkpoint_interval_tokens,
        tokens=capacity.tokens,
        requests_at_once=capacity.requests_at_once,
        contexts=[_report_context(config, context) for context in sorted({*contexts, capacity.context})],
        waste_fraction=capacity.waste_fraction,
        waste=capacity.waste,
        vllm=None if vllm is None else _report_vllm(vllm),
    )


def _report_context(config: KVCacheConfig, context: int) -> ContextReport:
    capacity = measure_capacity(config, context)
    page_bytes = [pages.page_bytes if (pages := config.class_of(group)) else 0 for group in config.groups]
    return ContextReport(
        context=context,
        requests_at_once=capacity.requests_at_once,
        tokens=capacity.tokens,
        bytes_per_request=sum(n * size for n, size in zip(capacity.blocks_per_request, page_bytes, strict=True)),
    )


def _report_group(config: KVCacheConfig, capacity: Capacity, index: int) -> GroupReport:
    group: KVCacheGroupSpec = config.groups[index]
    pages = config.class_of(group)
    page_bytes = pages.page_bytes if pages else 0
    blocks = capacity.blocks_per_request[index]
    return GroupReport(
        kind=group.kind,
        layers=len(group.layer_names),
        window_tokens=_window_tokens(group.spec.first),
        block_size=group.block_size,
        page_size_bytes=group.unpadded_page_bytes,
        padded_page_bytes=page_bytes,
        pages_per_sheet=pages.pages_per_sheet if pages else 0,
        num_blocks=pages.num_blocks if pages else 0,
        grows_with_context=grows_with_context(group),
        bytes_per_token=group.unpadded_page_bytes / group.block_size,
        blocks_per_request=blocks,
        bytes_per_request=blocks * page_bytes,
    )


def _window_tokens(spec: KVCacheSpec) -> int | None:
    match spec:
        case SlidingWindowSpec():
            return spec.sliding_window
        case ChunkedLocalAttentionSpec():
            return spec.attention_chunk_size
        case _:
            return None


def _report_vllm(plan: VllmPlan) -> VllmReport:
    return VllmReport(
        groups=[
            VllmGroupReport(
                kind=group.kind,
                layers=len(group.layer_names),
                block_size=group.block_size,
                page_size_bytes=group.page_size_bytes,
                useful_page_bytes=group.useful_page_bytes,
            )
            for group in plan.groups
        ],
        num_blocks=plan.num_blocks,
        bytes_per_block=plan.bytes_per_block,
        tokens=plan.tokens,
        requests_at_once=plan.requests_at_once,
        waste_fraction=plan.waste_fraction,
    )
