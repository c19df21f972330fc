"""The key of a chunk: the hash of its last block, then its group."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NewType

from octavo.errors import InputError
from octavo.ids import BlockHash, GroupIdx

OffloadKey = NewType("OffloadKey", bytes)
"""Names a chunk: the hash of the last block in it, then its group in four bytes, big-endian. Bytes, since the garbage
collector follows tuples, and there are millions of keys."""

GROUP_BYTES = 4
_MAX_GROUPS = 1 << 8 * GROUP_BYTES


def make_offload_key(block_hash: BlockHash, group_idx: GroupIdx) -> OffloadKey:
    try:
        return OffloadKey(block_hash + group_idx.to_bytes(GROUP_BYTES, "big"))
    except OverflowError:
        raise InputError(f"group_idx = {group_idx}: a group's index is 0 to {_MAX_GROUPS - 1}") from None


def get_offload_block_hash(key: OffloadKey) -> BlockHash:
    return BlockHash(key[:-GROUP_BYTES])


def get_offload_group_idx(key: OffloadKey) -> GroupIdx:
    return GroupIdx(int.from_bytes(key[-GROUP_BYTES:], "big"))


def group_keys(keys: Iterable[OffloadKey]) -> dict[GroupIdx, list[OffloadKey]]:
    """The keys of each group."""
    groups: defaultdict[bytes, list[OffloadKey]] = defaultdict(list)
    for key in keys:
        groups[key[-GROUP_BYTES:]].append(key)
    return {GroupIdx(int.from_bytes(ending, "big")): of_group for ending, of_group in groups.items()}
