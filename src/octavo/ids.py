"""Ids of the core, as `NewType`s, so that one is never taken for another."""

from typing import NewType

BlockHash = NewType("BlockHash", bytes)
"""Names a block's tokens, all tokens before it, and whose request they are: see `octavo.hashing`."""

BlockId = NewType("BlockId", int)
"""A row of a group's table of pages on the device."""

GroupIdx = NewType("GroupIdx", int)
"""A group's place in the plan. 0 and None differ: None is "no group"."""

OffloadKey = NewType("OffloadKey", bytes)
"""Names a chunk: the hash of the last block in it, then its group in four bytes, big-endian. Bytes, since the garbage
collector follows tuples, and there are millions of keys."""

_GROUP_BYTES = 4


def make_offload_key(block_hash: BlockHash, group_idx: int) -> OffloadKey:
    return OffloadKey(block_hash + group_idx.to_bytes(_GROUP_BYTES, "big"))


def get_offload_block_hash(key: OffloadKey) -> BlockHash:
    return BlockHash(key[:-_GROUP_BYTES])


def get_offload_group_idx(key: OffloadKey) -> int:
    return int.from_bytes(key[-_GROUP_BYTES:], "big")
