"""The messages: which blocks of which group changed on which medium. Their wire form is vLLM's (see `wire`).

A hash is a 64-bit integer or bytes, as the publisher sends it. `group_idx` 0 is the first group; None names no group.

The decoder checks peers against these types, so each list has a maximum length, which the decoder compares before it
allocates. It does not check the sign of token ids: nothing here computes with them, and the check costs 7% of decoding.
"""

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from octavo.events.published_plan import PublishedPlan
from octavo.ids import GroupIdx

MAX_EVENTS = 1 << 16
MAX_HASHES = 1 << 20
MAX_TOKENS = 1 << 22
MAX_EXTRA_KEYS_OF_BLOCK = 1 << 10
"""The longest lists that are ever read; `wire.WireLimits` may allow less."""

MEDIUM_GPU = "GPU"
MEDIUM_CPU = "CPU"
MEDIUM_STORAGE = "STORAGE"
SHARED_MEDIA = frozenset({"mooncake", "objects", "redis"})
"""The tiers, as `ownership` names them, whose stores several engines use."""

ExternalHash: TypeAlias = Annotated[int, Meta(ge=0)] | bytes
"""A block's hash as events carry it: the low 64 bits of the digest as an integer, or the digest itself."""

_Natural: TypeAlias = Annotated[int, Meta(ge=0)]
_Group: TypeAlias = Annotated[GroupIdx, Meta(ge=0)]
_Hashes: TypeAlias = Annotated[list[ExternalHash], Meta(max_length=MAX_HASHES)]
_Tokens: TypeAlias = Annotated[list[int], Meta(max_length=MAX_TOKENS)]

if TYPE_CHECKING:
    ExtraKeysOfBlock: TypeAlias = tuple[Any, ...]
    """The parts of a block's hash beside tokens: names, salts, digests, and pairs such as (identifier, offset)."""
else:
    # Any would let a peer nest without bound and claim any length. These types allow two levels, and are hashable.
    # msgspec cannot tell bytes from strings in a union, so `wire` reads extra keys with bytes in another way.
    _Scalar = str | int | float | bool | None
    _Key = _Scalar | Annotated[tuple[_Scalar, ...], Meta(max_length=MAX_EXTRA_KEYS_OF_BLOCK)]
    ExtraKeysOfBlock = Annotated[tuple[_Key, ...], Meta(max_length=MAX_EXTRA_KEYS_OF_BLOCK)]


if TYPE_CHECKING:
    _Plan: TypeAlias = PublishedPlan | None
    _Sequence: TypeAlias = int | None
else:
    _Plan = _Sequence = msgspec.Raw  # `wire` reads them


# gc=False: events refer to lists, strings and numbers, never to each other, so there are no cycles to look for.
class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """The base of all events: it makes msgspec write the type's name as a tag."""


class BlockStored(KVCacheEvent):
    """Blocks of one group and one sequence that were stored on a medium.

    A group that keeps only some blocks names only these in `block_hashes`, while `token_ids` covers the whole span. So
    never pair hashes and tokens by index.
    """

    block_hashes: _Hashes
    parent_block_hash: ExternalHash | None
    """The hash of the block before the span; None at the start of a sequence."""
    token_ids: _Tokens
    """The tokens of the whole span; empty if the publisher leaves them out."""
    block_size: _Natural
    """Tokens of a block, or of a chunk where each hash names a chunk. 0 is unknown (vLLM's offload tiers)."""
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: Annotated[list[ExtraKeysOfBlock | None], Meta(max_length=MAX_HASHES)] | None = None
    """For each of `block_hashes`, the parts of the hash beside tokens, without the tags of their sources."""
    group_idx: _Group | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: _Natural | None = None
    locality: str | None = None
    """LOCAL or REMOTE, as seen from the publisher."""
    ownership: str | None = None
    """The name of the tier that has the blocks, as one medium may have several tiers."""
    session_id: str | None = None
    """The session whose request stored the blocks; other sessions may use them too."""

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
    """The publisher's cache is empty. vLLM means its device only; an Octavo publisher means all media."""

    def __hash__(self) -> int:
        return _hash(self)


AnyEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The events of one step of one engine, in order."""

    ts: float
    events: Annotated[list[AnyEvent], Meta(max_length=MAX_EVENTS)]
    data_parallel_rank: _Natural | None = None
    plan: _Plan = None
    """The publisher's plan, on batches without events. It is a fourth element of the array, which vLLM's readers skip,
    and which `wire` skips in turn if it is something else."""
    whole_since: _Sequence = None
    """All that the publisher holds was told by the messages from this number up to this one; on batches without events.
    A fifth element, read as the fourth is."""


def _hash(event: KVCacheEvent) -> int:
    return hash((type(event), *map(_hashable, msgspec.structs.astuple(event))))


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
