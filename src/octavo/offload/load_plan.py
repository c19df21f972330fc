"""What to load for a request: the resume point over device and tiers together, group by group; and the copies."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from octavo.chunks import ChunkCopy, LookupResult, OffloadKey, WantedChunk
from octavo.ids import NO_ROW, GroupIdx, Row, enumerate_groups
from octavo.offload.device import DeviceBlocks, HeldPages, OffloadedRequest
from octavo.offload.manager import OffloadingManager
from octavo.offload.manager_values import PreparedLoad
from octavo.offload.offloaded_blocks import (
    ChunkOfBlocks,
    OffloadedBlocks,
    TieredBlocks,
    blocks_in_mask,
    held_mask,
)
from octavo.offload.request_state import RequestGroupState
from octavo.planning import KVCacheConfig
from octavo.specs import BlockAvailability, GroupAvailability, longest_resume


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """One group's part: what the device has, and the chunks that bring the rest."""

    rows_there: Sequence[Row]
    missing_blocks: Sequence[int]
    chunks: Sequence[ChunkOfBlocks]
    """In the order of the sequence. Together they hold all missing blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A resume point beyond the device's own, and what it takes."""

    num_tokens: int
    num_device_tokens: int
    """The resume point of the device alone."""
    groups: tuple[GroupLoad, ...]

    @property
    def chunks(self) -> list[ChunkOfBlocks]:
        return [chunk for group in self.groups for chunk in group.chunks]

    @property
    def is_in_memory(self) -> bool:
        """Whether all of it can be loaded now."""
        return all(chunk.stands is LookupResult.HIT for chunk in self.chunks)

    @property
    def keys_in_memory(self) -> list[OffloadKey]:
        return [chunk.key for chunk in self.chunks if chunk.stands is LookupResult.HIT]

    def chunks_not_in_memory(self, states: Sequence[RequestGroupState]) -> list[WantedChunk]:
        return [
            state.wanted_chunk(chunk.first_block, chunk.num_blocks, chunk.held_blocks)
            for state, part in zip(states, self.groups, strict=True)
            for chunk in part.chunks
            if chunk.stands is not LookupResult.HIT
        ]

    def part_in_memory(self) -> "LoadPlan":
        """The chunks that can be loaded now. They reach no resume point by themselves, but leave less to load."""
        groups = []
        for part in self.groups:
            chunks = [chunk for chunk in part.chunks if chunk.stands is LookupResult.HIT]
            brought = {block for chunk in chunks for block in blocks_in_mask(chunk.first_block, chunk.held_blocks)}
            missing = [block for block in part.missing_blocks if block in brought]
            groups.append(GroupLoad(rows_there=part.rows_there, missing_blocks=missing, chunks=chunks))
        return replace(self, groups=tuple(groups))


def tiered_blocks(
    states: Sequence[RequestGroupState],
    on_device: Sequence[DeviceBlocks],
    manager: OffloadingManager,
    accepts: Collection[LookupResult],
) -> list[TieredBlocks]:
    """Per group: the blocks that device and tiers together have of a request."""
    return [
        TieredBlocks(blocks, OffloadedBlocks(state, manager, accepts))
        for state, blocks in zip(states, on_device, strict=True)
    ]


def availability(config: KVCacheConfig, blocks: Sequence[BlockAvailability]) -> list[GroupAvailability]:
    """All groups' blocks, in the form in which the resume rule asks for them."""
    return [
        GroupAvailability(spec=group.spec.rule, blocks=available, is_draft=group.is_draft)
        for group, available in zip(config.groups, blocks, strict=True)
    ]


def plan_load(request: OffloadedRequest, tiered: Sequence[TieredBlocks], config: KVCacheConfig) -> LoadPlan | None:
    """The loads that take the request beyond the device's own resume point; None if no load does. Changes nothing."""
    num_device_tokens = device_tokens(request, [blocks.device for blocks in tiered], config)
    num_tokens = _resume(request, tiered, config)
    if num_tokens <= num_device_tokens:
        return None
    needed = config.blocks_to_resume(request.resume_point(num_tokens))
    return LoadPlan(
        num_tokens=num_tokens,
        num_device_tokens=num_device_tokens,
        groups=tuple(_group_load(blocks, runs) for blocks, runs in zip(tiered, needed, strict=True)),
    )


def device_tokens(request: OffloadedRequest, blocks: Sequence[DeviceBlocks], config: KVCacheConfig) -> int:
    """The resume point of the device alone."""
    return _resume(request, blocks, config)


def copies_of(
    plan: LoadPlan, prepared: PreparedLoad, pages: HeldPages, page_sizes: Sequence[int]
) -> tuple[list[ChunkCopy], list[tuple[GroupIdx, OffloadKey, list[int]]], int]:
    """The copies for the worker, what each chunk brings, and the sum of bytes. No two chunks bring the same block."""
    copies: list[ChunkCopy] = []
    brings: list[tuple[GroupIdx, OffloadKey, list[int]]] = []
    num_bytes = 0
    chunks = [(group_idx, chunk) for group_idx, part in enumerate_groups(plan.groups) for chunk in part.chunks]
    wanted = [dict(destinations) for destinations in pages.destinations]
    for index, (group_idx, chunk) in enumerate(chunks):
        held: Sequence[int] = (chunk.first_block,)
        if chunk.num_blocks > 1:
            held = blocks_in_mask(chunk.first_block, held_mask(prepared.held_blocks[index], chunk.num_blocks))
        rows = [wanted[group_idx].pop(block, NO_ROW) for block in held]
        copies.append(ChunkCopy(group_idx, rows, prepared.slots[index], prepared.checksums[index]))
        brings.append((group_idx, chunk.key, [block for block, row in zip(held, rows, strict=True) if row >= 0]))
        num_bytes += len(held) * page_sizes[group_idx]
    return copies, brings, num_bytes


def _resume(request: OffloadedRequest, blocks: Sequence[BlockAvailability], config: KVCacheConfig) -> int:
    point = request.resume_point(request.num_tokens)
    return longest_resume(availability(config, blocks), point, granularity=config.resume_granularity).num_tokens


def _group_load(blocks: TieredBlocks, needed: Sequence[range]) -> GroupLoad:
    rows, missing = blocks.rows_and_missing(needed)
    if blocks.offloaded.state.blocks_per_chunk == 1:
        return GroupLoad(
            rows_there=rows, missing_blocks=missing, chunks=list(map(blocks.offloaded.chunk_with, missing))
        )
    chunks: dict[OffloadKey, ChunkOfBlocks] = {}
    covered: set[int] = set()
    for block in missing:
        if block not in covered:
            chunk = blocks.offloaded.chunk_with(block)
            chunks[chunk.key] = chunk
            covered.update(blocks_in_mask(chunk.first_block, chunk.held_blocks))
    return GroupLoad(rows_there=rows, missing_blocks=missing, chunks=list(chunks.values()))
