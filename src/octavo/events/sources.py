"""`EventSource`: makes messages of the changes of a cache on one medium."""

from collections.abc import Iterable, Sequence

import numpy as np

from octavo.events.changes import CacheChanges, StoredRun
from octavo.events.messages import AllBlocksCleared, AnyEvent, BlockRemoved, BlockStored, ExternalHash
from octavo.hashing import PLAIN, ExtraKeys, RequestIdentity
from octavo.ids import BlockHash, GroupIdx
from octavo.specs import KVCacheSpec

_BYTES_OF_EXTERNAL_HASH = 8


def external_hashes(hashes: Sequence[BlockHash]) -> list[ExternalHash]:
    """Hashes as events carry them: the low 64 bits of each as an integer."""
    if not hashes:
        return []
    words = len(hashes[0]) // _BYTES_OF_EXTERNAL_HASH
    joined = b"".join(hashes)
    if not words or len(joined) != words * _BYTES_OF_EXTERNAL_HASH * len(hashes):  # not all of one algorithm's length
        return [int.from_bytes(name[-_BYTES_OF_EXTERNAL_HASH:], "big") for name in hashes]
    low: list[ExternalHash] = np.frombuffer(joined, dtype=">u8")[words - 1 :: words].tolist()
    return low


class EventSource:
    """Makes messages of the changes of a cache on one medium."""

    def __init__(
        self,
        specs: Sequence[KVCacheSpec],
        *,
        medium: str,
        hash_block_size: int,
        with_tokens: bool = True,
    ) -> None:
        self._specs = specs
        self._medium = medium
        self._hash_block_size = hash_block_size
        self._with_tokens = with_tokens

    def messages(self, changes: CacheChanges) -> list[AnyEvent]:
        """The events of one step: AllBlocksCleared if it was cleared, one removal for each group, then the stores."""
        events: list[AnyEvent] = [AllBlocksCleared()] if changes.was_cleared else []
        events += [self._removed(group_idx, hashes) for group_idx, hashes in changes.removed.items()]
        events += map(self._stored, changes.stored)
        return events

    def held(self, group_idx: GroupIdx, hashes: Sequence[BlockHash]) -> BlockStored:
        """Tells of blocks that are there, without their tokens and parents, which were told when they came."""
        spec = self._specs[group_idx]
        return BlockStored(
            block_hashes=external_hashes(hashes),
            parent_block_hash=None,
            token_ids=[],
            block_size=spec.block_size,
            lora_id=None,
            medium=self._medium,
            lora_name=None,
            group_idx=group_idx,
            kv_cache_spec_kind=spec.kind,
            kv_cache_spec_sliding_window=getattr(spec, "sliding_window", None),
        )

    def _removed(self, group_idx: GroupIdx, hashes: Sequence[BlockHash]) -> BlockRemoved:
        return BlockRemoved(
            block_hashes=external_hashes(hashes),
            medium=self._medium,
            group_idx=group_idx,
        )

    def _stored(self, run: StoredRun) -> BlockStored:
        spec, identity = self._specs[run.group_idx], run.sequence.identity
        has_tokens = self._with_tokens and spec.indexes_decoder_tokens
        span = slice(run.blocks[0] * spec.block_size, (run.blocks[-1] + 1) * spec.block_size)
        parent = None if run.parent_hash is None else external_hashes([run.parent_hash])[0]
        return BlockStored(
            block_hashes=external_hashes(run.hashes),
            parent_block_hash=parent,
            token_ids=list(run.sequence.tokens[span]) if has_tokens else [],
            block_size=spec.block_size,
            lora_id=None,
            medium=self._medium,
            lora_name=identity.lora_name,
            extra_keys=None if identity is PLAIN else self._extra_keys(identity, run.blocks, spec.block_size),
            group_idx=run.group_idx,
            kv_cache_spec_kind=spec.kind,
            kv_cache_spec_sliding_window=getattr(spec, "sliding_window", None),
        )

    def _extra_keys(
        self, identity: RequestIdentity, blocks: Sequence[int], block_size: int
    ) -> list[tuple[object, ...] | None] | None:
        ratio = block_size // self._hash_block_size
        keys = [
            untagged(identity.extra_keys_of_blocks(range(k * ratio, (k + 1) * ratio), self._hash_block_size))
            for k in blocks
        ]
        return keys if any(keys) else None


def untagged(keys_of_blocks: Iterable[ExtraKeys]) -> tuple[object, ...] | None:
    """Extra keys as events carry them: without the name of their source, and a key of one value as that value."""
    values = dict.fromkeys(
        key[1] if len(key) == 2 or key[0] == "lora" else key[1:] for k in keys_of_blocks for key in k
    )
    return tuple(values) or None
