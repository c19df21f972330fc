"""Prompts as eviction policies see them: what each store brings, in the scheduler's order, and what is promised.

    a prompt   full attention   0 ............ 15 | 16 ........... 31 | ...     all chunks
               window                       14 15 |             30 31 | ...     the last two before each point
               state                           15 |                31 | ...     the last one before each point

Hybrids have a point every 16 chunks. With full attention alone only the end of the prompt is promised, as writers do.
There is a store for each promise.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.specs import CacheDType, FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec

CHUNK_TOKENS = 16
FULL = FullAttentionSpec(block_size=CHUNK_TOKENS, num_kv_heads=1, head_size=8)
WINDOW = SlidingWindowSpec(block_size=CHUNK_TOKENS, num_kv_heads=1, head_size=8, sliding_window=2 * CHUNK_TOKENS)
STATE = MambaSpec(block_size=CHUNK_TOKENS, shapes=((1024,),), dtypes=(CacheDType.FLOAT32,))
STATE_SLOTS = 8
"""A state weighs as much as eight chunks of attention."""


class Store(NamedTuple):
    """What is new up to a point, and its promise."""

    chunks: list[StoredChunk]
    promise: PromisedPoint

    @property
    def num_slots(self) -> int:
        return sum([chunk.num_slots for chunk in self.chunks])


class Prompt(NamedTuple):
    """Its stores, and what requests that resume at its points use."""

    stores: list[Store]
    used: list[list[OffloadKey]]
    """By point: the chunks that a resume there needs, group by group."""

    @property
    def keys(self) -> list[OffloadKey]:
        return [chunk.key for store in self.stores for chunk in store.chunks]

    def longest_there(self, are_there: Callable[[list[OffloadKey]], bool]) -> list[OffloadKey] | None:
        """What a resume needs at the last point of which all chunks are there; None if there is no such point."""
        return next(filter(are_there, reversed(self.used)), None)

    @property
    def num_slots(self) -> int:
        return sum([store.num_slots for store in self.stores])


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The groups of a model, and what a prompt of it brings."""

    name: str
    specs: Sequence[KVCacheSpec]
    chunks_per_point: int = 16
    chunks_per_prompt: int = 256

    @cached_property
    def groups(self) -> tuple[GroupOffloadConfig, ...]:
        return tuple(
            GroupOffloadConfig(spec=spec, blocks_per_chunk=1, page_size_bytes=spec.page_size_bytes)
            for spec in self.specs
        )

    @property
    def slot_bytes(self) -> int:
        return FULL.page_size_bytes

    def prompt(self) -> Prompt:
        """A prompt that shares nothing with others."""
        hashes = [BlockHash(os.urandom(32)) for _ in range(self.chunks_per_prompt)]
        keys = [[make_offload_key(hash_, GroupIdx(group)) for hash_ in hashes] for group in range(len(self.specs))]
        prompt = Prompt([], [])
        for end in range(self.chunks_per_point, len(hashes) + 1, self.chunks_per_point):
            chunks, used = [], []
            for spec, own in zip(self.specs, keys, strict=True):
                start = end - self._num_new(spec)
                parents = [own[start - 1] if start else None, *own[start : end - 1]]
                slots = STATE_SLOTS if spec is STATE else 1
                chunks += [
                    StoredChunk(key, slots, index, parent)
                    for index, key, parent in zip(range(start, end), own[start:end], parents, strict=True)
                ]
                used += own[0 if spec is FULL else start : end]
            promised_tokens = (end - self.chunks_per_point) * CHUNK_TOKENS
            prompt.stores.append(Store(chunks, PromisedPoint(end * CHUNK_TOKENS, hashes[end - 1], promised_tokens)))
            prompt.used.append(used)
        return prompt

    def _num_new(self, spec: KVCacheSpec) -> int:
        """The chunks that a point needs and the point before it does not."""
        return self.chunks_per_point if spec is FULL else {WINDOW: 2, STATE: 1}[spec]


FULL_ALONE = Geometry(name="full", specs=(FULL,), chunks_per_point=256)
HYBRIDS = (
    Geometry(name="window + full", specs=(FULL, WINDOW)),
    Geometry(name="state + full", specs=(FULL, STATE)),
    Geometry(name="window + state + full", specs=(FULL, WINDOW, STATE)),
)
GEOMETRIES = (FULL_ALONE, *HYBRIDS)
