"""Chunks as requests ask for them, and as a policy sees them.

The garbage collector does not follow them (`gc=False`): a store has hundreds, and no cycle can lead through bytes and
numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from octavo.chunks.keys import OffloadKey
from octavo.chunks.tenants import NO_TENANT
from octavo.ids import BlockHash

ALL_BLOCKS = -1
"""As `held_blocks`: every block of the chunk."""


class WantedChunk(msgspec.Struct, frozen=True, gc=False):
    """One chunk that a store or a promotion is to bring into host memory."""

    key: OffloadKey
    position: int
    """Its index among the chunks of its group in the sequence."""
    parent: OffloadKey | None
    """The chunk before it in its group; None for the first."""
    held_blocks: int = ALL_BLOCKS
    """The blocks that are wanted, as a bit mask: 0b101 is the first and the third. A store that replaces a chunk drops
    all other blocks."""
    tenant: bytes = NO_TENANT
    """Whose request it is."""


class StoredChunk(msgspec.Struct, frozen=True, gc=False):
    """One chunk, as a policy sees it when it enters a tier."""

    key: OffloadKey
    num_slots: int
    """What evicting it makes free. Chunks of one group may differ, where only some of their blocks were kept."""
    position: int
    """Its index among the chunks of its group in the sequence."""
    parent: OffloadKey | None
    """The chunk before it in its group, whether or not that is kept anywhere; None for the first."""


class PromisedPoint(NamedTuple):
    """A boundary at which the writer promises that requests can resume.

    What a resume there needs follows from the groups' specs: for each group, chunks that are ancestors of
    `make_offload_key(block_hash, group)`, itself included, or all chunks of an encoder.
    """

    num_tokens: int
    block_hash: BlockHash
    """The hash of the block that ends there: of every group that has a block that ends there."""
    promised_tokens: int = 0
    """Up to where the same request has promised before. Only what lies beyond is asked for anew."""


def stored_chunks(chunks: Sequence[WantedChunk], counts: Sequence[int]) -> list[StoredChunk]:
    """The same as a policy sees them, with these many slots each."""
    return [
        StoredChunk(chunk.key, num_slots, chunk.position, chunk.parent)
        for chunk, num_slots in zip(chunks, counts, strict=True)
    ]
