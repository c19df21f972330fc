"""The messages: what changed in a cache, where, and for which group. Their wire form is vLLM's (see `wire`).

Hashes are whatever the publisher sends: 64-bit integers, or bytes. `group_idx` 0 is the first group, and None is no
group; they are never the same.
"""

from typing import Any, TypeAlias

import msgspec

ExternalHash: TypeAlias = int | bytes
"""A block's hash as events carry it: the low 64 bits of the digest as an integer, or the digest itself."""

MEDIUM_GPU = "GPU"
MEDIUM_CPU = "CPU"
MEDIUM_STORAGE = "STORAGE"


class KVCacheEvent(msgspec.Struct, omit_defaults=True, tag=True):
    """What all events have in common: the tag that names their type."""


class BlockStored(KVCacheEvent):
    """Blocks of one group and one sequence that are there now.

    In groups that keep only some blocks, `block_hashes` are a subset of those of the `token_ids` span, and may be
    none: never pair them by position.
    """

    block_hashes: list[ExternalHash]
    parent_block_hash: ExternalHash | None
    """Of the block before the span; None at the start of a sequence."""
    token_ids: list[int]
    """Of the whole span; empty where the publisher leaves them out."""
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    """For each block of the span, what besides tokens went into its hash, without the tags of its sources."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None

    def __hash__(self) -> int:
        return hash((type(self), *map(_hashable, msgspec.structs.astuple(self))))


class BlockRemoved(KVCacheEvent):
    """Blocks of one group whose last copy on this medium is gone."""

    block_hashes: list[ExternalHash]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None

    def __hash__(self) -> int:
        return hash((type(self), *map(_hashable, msgspec.structs.astuple(self))))


class AllBlocksCleared(KVCacheEvent):
    """The publisher forgot everything."""

    def __hash__(self) -> int:
        return hash(type(self))


AnyEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    """The events of one step of one engine, in order."""

    ts: float
    events: list[AnyEvent]
    data_parallel_rank: int | None = None


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
