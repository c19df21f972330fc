"""How large chunks are: bytes and slots, by group and held blocks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.chunks.keys import GROUP_BYTES, OffloadKey, get_offload_group_idx, make_offload_key
from octavo.chunks.wanted import ALL_BLOCKS, WantedChunk
from octavo.errors import InputError
from octavo.ids import BlockHash, GroupIdx
from octavo.specs import KVCacheSpec, ceil_div

MOST_BLOCKS_PER_CHUNK = 63
"""Masks of held blocks are kept as signed 64-bit numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffloadConfig:
    """What is constant about one group's chunks."""

    spec: KVCacheSpec
    """Its rule says which chunks a resume point needs."""
    blocks_per_chunk: int
    page_size_bytes: int
    """Bytes of one block as it is offloaded."""

    def __post_init__(self) -> None:
        if self.blocks_per_chunk > MOST_BLOCKS_PER_CHUNK:
            raise InputError(
                f"blocks_per_chunk = {self.blocks_per_chunk} of a group of kind {self.spec.kind}: at most "
                f"{MOST_BLOCKS_PER_CHUNK} blocks can be one chunk"
            )

    @property
    def tokens_per_chunk(self) -> int:
        return self.spec.block_size * self.blocks_per_chunk

    @property
    def chunk_bytes(self) -> int:
        return self.page_size_bytes * self.blocks_per_chunk


class ChunkSizes:
    """Bytes and slots of chunks, by group and held blocks."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], slot_bytes: int) -> None:
        self._groups = groups
        self._endings = {make_offload_key(BlockHash(b""), GroupIdx(index)) for index in range(len(groups))}
        self._slot_bytes = slot_bytes
        self._is_one_slot = all(group.chunk_bytes <= slot_bytes for group in groups)

    def masks(self, chunks: Sequence[WantedChunk]) -> list[int]:
        """The wanted blocks of each; ALL_BLOCKS if none is left out."""
        masks = [chunk.held_blocks for chunk in chunks]
        if masks.count(ALL_BLOCKS) == len(masks):
            return masks
        return [self.mask(chunk) for chunk in chunks]

    def mask(self, chunk: WantedChunk) -> int:
        if chunk.held_blocks == ALL_BLOCKS:
            return ALL_BLOCKS
        whole = (1 << self._groups[get_offload_group_idx(chunk.key)].blocks_per_chunk) - 1
        assert 0 < chunk.held_blocks <= whole, f"held_blocks = {chunk.held_blocks:b} of a chunk with {whole:b}"
        return ALL_BLOCKS if chunk.held_blocks == whole else chunk.held_blocks

    def of_groups(self, keys: Iterable[OffloadKey]) -> list[OffloadKey]:
        """The keys whose group there is. A medium may tell others, which no engine has written."""
        return [key for key in keys if key[-GROUP_BYTES:] in self._endings]

    def possible(self, keys: Sequence[OffloadKey], masks: list[int]) -> list[int]:
        """The masks that a medium tells, with 0 for those that no chunk of this group can have."""
        if masks.count(ALL_BLOCKS) + masks.count(0) == len(masks):
            return masks
        most = [1 << group.blocks_per_chunk for group in self._groups]
        return [
            mask if mask == ALL_BLOCKS or 0 < mask < most[get_offload_group_idx(key)] else 0
            for key, mask in zip(keys, masks, strict=True)
        ]

    def num_bytes(self, key: OffloadKey, mask: int) -> int:
        group = self._groups[get_offload_group_idx(key)]
        return group.chunk_bytes if mask == ALL_BLOCKS else mask.bit_count() * group.page_size_bytes

    def num_slots(self, keys: Sequence[OffloadKey], masks: Sequence[int]) -> list[int]:
        if self._is_one_slot:
            return [1] * len(keys)
        return [ceil_div(self.num_bytes(key, mask), self._slot_bytes) for key, mask in zip(keys, masks, strict=True)]
