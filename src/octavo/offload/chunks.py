"""Chunks as requests ask for them, and how large they are."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

from octavo.errors import InputError
from octavo.ids import OffloadKey, get_offload_group_idx
from octavo.offload.base import ALL_BLOCKS
from octavo.policies.base import GroupOffloadConfig, StoredChunk
from octavo.specs.base import ceil_div

MOST_BLOCKS_PER_CHUNK = 63
"""Masks of held blocks are kept as signed 64-bit numbers."""


class WantedChunk(NamedTuple):
    """One chunk that somebody wants in host memory, for a store or a promotion."""

    key: OffloadKey
    position: int
    """Its place among the chunks of its group in the sequence."""
    parent: OffloadKey | None
    """The chunk before it in its group; None for the first."""
    held_blocks: int = ALL_BLOCKS
    """Which of its blocks are wanted, as a bit mask. A store that replaces a chunk drops what it does not name."""


_make_stored = cast("Callable[[tuple[object, ...]], StoredChunk]", partial(tuple.__new__, StoredChunk))
"""What the class does, without a call in Python for each of millions."""


def stored_chunks(chunks: Sequence[WantedChunk], counts: Sequence[int]) -> list[StoredChunk]:
    """The same as a policy sees them, with these many slots each."""
    make = _make_stored
    return [make((chunk[0], num_slots, chunk[1], chunk[2])) for chunk, num_slots in zip(chunks, counts, strict=True)]


class ChunkSizes:
    """Bytes and slots of chunks, by group and held blocks."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], slot_bytes: int) -> None:
        for group in groups:
            if group.blocks_per_chunk > MOST_BLOCKS_PER_CHUNK:
                raise InputError(
                    f"blocks_per_chunk = {group.blocks_per_chunk} of a group of kind {group.spec.kind}: at most "
                    f"{MOST_BLOCKS_PER_CHUNK} blocks can be one chunk"
                )
        self._groups = groups
        self._slot_bytes = slot_bytes
        self._is_one_slot = all(group.chunk_bytes <= slot_bytes for group in groups)

    def masks(self, chunks: Sequence[WantedChunk]) -> list[int]:
        """The wanted blocks of each; ALL_BLOCKS if none is left out."""
        masks = [chunk[3] for chunk in chunks]
        if masks.count(ALL_BLOCKS) == len(masks):
            return masks
        return [self.mask(chunk) for chunk in chunks]

    def mask(self, chunk: WantedChunk) -> int:
        if chunk.held_blocks == ALL_BLOCKS:
            return ALL_BLOCKS
        whole = (1 << self._groups[get_offload_group_idx(chunk.key)].blocks_per_chunk) - 1
        assert 0 < chunk.held_blocks <= whole, f"held_blocks = {chunk.held_blocks:b} of a chunk with {whole:b}"
        return ALL_BLOCKS if chunk.held_blocks == whole else chunk.held_blocks

    def num_bytes(self, key: OffloadKey, mask: int) -> int:
        group = self._groups[get_offload_group_idx(key)]
        return group.chunk_bytes if mask == ALL_BLOCKS else mask.bit_count() * group.page_size_bytes

    def num_slots(self, keys: Sequence[OffloadKey], masks: Sequence[int]) -> list[int]:
        if self._is_one_slot:
            return [1] * len(keys)
        return [ceil_div(self.num_bytes(key, mask), self._slot_bytes) for key, mask in zip(keys, masks, strict=True)]
