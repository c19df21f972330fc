"""What each layer of a model keeps, and the specs that tell the planner."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from octavo.engine.cache import StateKey
from octavo.engine.models.record_shape import RecordShape
from octavo.engine.torch_dtypes import cache_dtype
from octavo.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    ceil_div,
)

_MIN_STATE_BLOCK_TOKENS = 128
"""A checkpoint weighs as much as dozens of attention blocks, and cutting a prompt more finely slows computing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGeometry:
    """Block sizes, in tokens."""

    attention_block_size: int = 16
    state_block_size: int | None = None
    """Tokens between boundaries at which recurrent state may be kept. None: a multiple of the model's chunks."""
    num_speculative_tokens: int = 0

    def state_block_for(self, tokens_per_chunk: int) -> int:
        """The block size of recurrent state in a model with this chunk size."""
        return self.state_block_size or ceil_div(_MIN_STATE_BLOCK_TOKENS, tokens_per_chunk) * tokens_per_chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The keys and values of one layer."""

    reach: Literal["full", "window", "chunk", "latent"]
    num_kv_heads: int
    key_size: int
    value_size: int
    """Zero where keys are values too."""
    dtype: torch.dtype
    reach_tokens: int
    """The length of the window or of the chunk of attention."""

    def spec(self, block_size: int) -> AttentionSpec:
        dtype = cache_dtype(self.dtype)
        if self.reach == "latent":
            return MLAAttentionSpec(block_size=block_size, head_size=self.key_size + self.value_size, dtype=dtype)
        if not self.value_size:
            return SlidingWindowMLASpec(
                block_size=block_size, head_size=self.key_size, dtype=dtype, sliding_window=self.reach_tokens
            )
        shape = {
            "block_size": block_size,
            "num_kv_heads": self.num_kv_heads,
            "head_size": self.key_size,
            "head_size_v": self.value_size,
        }
        match self.reach:
            case "full":
                return FullAttentionSpec(**shape, dtype=dtype)
            case "window":
                return SlidingWindowSpec(**shape, dtype=dtype, sliding_window=self.reach_tokens)
            case "chunk":
                return ChunkedLocalAttentionSpec(**shape, dtype=dtype, attention_chunk_size=self.reach_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerShape:
    """The keys of one layer's indexer, which chooses what attention sees."""

    key_size: int
    dtype: torch.dtype
    tokens_per_key: int = 1
    open_size: int = 0
    """What is kept of each token until its key is made, if several tokens share one."""

    def spec(self, block_size: int) -> MLAAttentionSpec:
        return MLAAttentionSpec(
            block_size=self._whole_pools(block_size),
            head_size=self.key_size,
            dtype=cache_dtype(self.dtype),
            tokens_per_state=self.tokens_per_key,
        )

    def open_spec(self, block_size: int) -> CircularBufferSpec:
        return CircularBufferSpec(
            block_size=self._whole_pools(block_size),
            num_kv_heads=1,
            head_size=self.open_size,
            dtype=cache_dtype(self.dtype),
            tokens_per_state=self.tokens_per_key,
        )

    def _whole_pools(self, block_size: int) -> int:
        """No block ends within tokens that share a key."""
        return ceil_div(block_size, self.tokens_per_key) * self.tokens_per_key


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One tensor of a layer's recurrent state, under the name by which the model asks for it."""

    name: Literal["conv", "recurrent"]
    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTokens:
    """The last tokens before those of a step, which a layer asks for as if they were a state. No page holds them."""

    key: StateKey
    number: int
    filler: int
    """Stands before the first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLayer:
    """What one layer keeps: attention, state, both or nothing (a layer that shares another's keys and values)."""

    index: int
    attention: AttentionShape | None
    states: tuple[StateTensor, ...]
    indexer: IndexerShape | None
    earlier: EarlierTokens | None
    records: Mapping[str, RecordShape]
    """By the name that its compressors use."""

    @property
    def attention_name(self) -> str:
        return f"layers.{self.index}.attention"

    @property
    def indexer_name(self) -> str:
        return f"layers.{self.index}.indexer"

    @property
    def open_name(self) -> str:
        return f"{self.indexer_name}.open"

    @property
    def state_name(self) -> str:
        return f"layers.{self.index}.state"

    def names_of_records(self, name: str) -> tuple[str, str]:
        """Of the records, and of the tokens that wait for theirs."""
        of_records = f"layers.{self.index}.{name}"
        return of_records, f"{of_records}.open"

    def specs(self, geometry: CacheGeometry, tokens_per_chunk: int) -> dict[str, KVCacheSpec]:
        specs: dict[str, KVCacheSpec] = {}
        if self.attention is not None:
            specs[self.attention_name] = self.attention.spec(geometry.attention_block_size)
        if self.indexer is not None:
            specs[self.indexer_name] = self.indexer.spec(geometry.attention_block_size)
            if self.indexer.open_size:
                specs[self.open_name] = self.indexer.open_spec(geometry.attention_block_size)
        for name, records in self.records.items():
            specs |= zip(self.names_of_records(name), records.specs(geometry.attention_block_size), strict=True)
        if self.states:
            specs[self.state_name] = MambaSpec(
                block_size=geometry.state_block_for(tokens_per_chunk),
                shapes=tuple(state.shape for state in self.states),
                dtypes=tuple(cache_dtype(state.dtype) for state in self.states),
                num_speculative_tokens=geometry.num_speculative_tokens,
            )
        return specs
