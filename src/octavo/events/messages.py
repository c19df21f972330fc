"""The messages: what changed in a cache, where, and for which group. Their wire form is vLLM's (see `wire`).

Hashes are whatever the publisher sends: 64-bit integers, or bytes. `group_idx` 0 is the first group, and None is no
group; they are never the same.

The types are what a decoder holds a peer to, so they bound whatever a peer could claim: an array's length is compared
with its bound before anything is allocated. The one thing left unchecked is the sign of a token id, which nothing here
computes with, and which would cost 7% of decoding.
"""

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from octavo.ids import GroupIdx

MAX_EVENTS = 1 << 16
MAX_HASHES = 1 << 20
MAX_TOKENS = 1 << 22
MAX_EXTRA_KEYS_OF_BLOCK = 1 << 10
"""The longest lists that are ever read; `wire.WireLimits` may ask for less."""

MEDIUM_GPU = "GPU"
MEDIUM_CPU = "CPU"
MEDIUM_STORAGE = "STORAGE"

ExternalHash: TypeAlias = Annotated[int, Meta(ge=0)] | bytes
"""A block's hash as events carry it: the low 64 bits of the digest as an integer, or the digest itself."""

_Natural: TypeAlias = Annotated[int, Meta(ge=0)]
_Group: TypeAlias = Annotated[GroupIdx, Meta(ge=0)]
_Hashes: TypeAlias = Annotated[list[ExternalHash], Meta(max_length=MAX_HASHES)]
_Tokens: TypeAlias = Annotated[list[int], Meta(max_length=MAX_TOKENS)]

if TYPE_CHECKING:
    ExtraKeysOfBlock: TypeAlias = tuple[Any, ...]
    """What besides tokens went into a block's hash: names, salts, digests, and pairs such as (identifier, offset)."""
else:
    # A decoder that is told Any would follow any nesting and believe any length. These are two levels, and hashable.
    # Bytes are left out, as msgspec cannot tell them from strings in a union; `wire` reads them by another way.
    _Scalar = str | int | float | bool | None
    _Key = _Scalar | Annotated[tuple[_Scalar, ...], Meta(max_length=MAX_EXTRA_KEYS_OF_BLOCK)]
    ExtraKeysOfBlock = Annotated[tuple[_Key, ...], Meta(max_length=MAX_EXTRA_KEYS_OF_BLOCK)]


# gc=False: events refer to lists, strings and numbers, never to each other, so there are no cycles to look for.
class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """What all events have in common: the tag that names their type."""


class BlockStored(KVCacheEvent):
    """Blocks of one group and one sequence that are there now.

    In groups that keep only some blocks, `block_hashes` are a subset of those of the `token_ids` span, and may be
    none: never pair them by position.
    """

    block_hashes: _Hashes
    parent_block_hash: ExternalHash | None
    """Of the block before the span; None at the start of a sequence."""
    token_ids: _Tokens
    """Of the whole span; empty where the publisher leaves them out."""
    block_size: _Natural
    """Tokens of a block; 0 where the publisher does not say (vLLM's offload tiers)."""
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: Annotated[list[ExtraKeysOfBlock | None], Meta(max_length=MAX_HASHES)] | None = None
    """For each of `block_hashes`, what besides tokens went into it, without the tags of its sources."""
    group_idx: _Group | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: _Natural | None = None
    locality: str | None = None
    """LOCAL or REMOTE, as seen from the publisher."""
    ownership: str | None = None
    """The tier that has the blocks, where a medium has several."""
    session_id: str | None = None
    """The session whose request stored the blocks; they may be shared."""

    def __hash__(self) -> int:
        return _hash(self)


class BlockRemoved(KVCacheEvent):
    """Blocks of one group whose last copy on this medium is gone."""

    block_hashes: _Hashes
    medium: str | None
    group_idx: _Group | None = None
    locality: str | None = None
    ownership: str | None = None

    def __hash__(self) -> int:
        return _hash(self)


class AllBlocksCleared(KVCacheEvent):
    """The publisher forgot everything."""

    def __hash__(self) -> int:
        return _hash(self)


AnyEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The events of one step of one engine, in order."""

    ts: float
    events: Annotated[list[AnyEvent], Meta(max_length=MAX_EVENTS)]
    data_parallel_rank: _Natural | None = None


def _hash(event: KVCacheEvent) -> int:
    return hash((type(event), *map(_hashable, msgspec.structs.astuple(event))))


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
