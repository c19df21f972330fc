"""The kinds that keep something of tokens: full, latent, windowed and chunked attention, and circular buffers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from octavo.errors import SpecError
from octavo.specs.base import (
    KVCacheSpec,
    RequestLimits,
    ResumePoint,
    blocks_holding,
    ceil_div,
    require_not_negative,
    require_positive,
)
from octavo.specs.dtypes import CacheDType


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """What all attention keeps: a key and a value vector for each token and head."""

    num_kv_heads: int
    head_size: int
    dtype: CacheDType = CacheDType.BFLOAT16
    """Or a name that `CacheDType.parse` knows, which becomes one."""
    head_size_v: int | None = None
    """Elements of a value vector; None where it is as long as the key."""

    def __post_init__(self) -> None:
        require_positive(self, "num_kv_heads", "head_size")
        if self.head_size_v is not None:
            require_not_negative(self, "head_size_v")
        object.__setattr__(self, "dtype", CacheDType.parse(self.dtype))
        super().__post_init__()

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in this layer."""
        value_size = self.head_size if self.head_size_v is None else self.head_size_v
        return self.num_kv_heads * (self.dtype.vector_bytes(self.head_size) + self.dtype.vector_bytes(value_size))

    @property
    def unpadded_page_size_bytes(self) -> int:
        return self.block_size * self.token_bytes

    @property
    def alignment_bytes(self) -> int:
        return self.dtype.alignment_bytes


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    """Attention to the whole past: every block is needed to go on."""

    kind: ClassVar[str] = "full_attention"

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        return blocks_holding(0, point.num_tokens, self.block_size)

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return ceil_div(limits.max_model_len, self.block_size)


@dataclass(frozen=True, kw_only=True)
class MLAAttentionSpec(FullAttentionSpec):
    """Latent attention: one vector per token that stands for all heads, replicated on every rank.

    An indexer of a sparse model is one too: same blocks, a vector of another size.
    """

    kind: ClassVar[str] = "mla_attention"

    num_kv_heads: int = 1
    head_size_v: int | None = 0
    tokens_per_state: int = 1
    """Tokens that share one stored vector (compressed latents)."""
    state_bytes: int | None = None
    """Bytes of one stored vector where a packed format fixes them (656 for DeepSeek's fp8 with scales)."""

    def __post_init__(self) -> None:
        require_positive(self, "block_size", "tokens_per_state")
        if self.state_bytes is not None:
            require_positive(self, "state_bytes")
        if self.block_size % self.tokens_per_state:
            raise SpecError(
                f"{type(self).__name__}: block_size = {self.block_size} is not a multiple of "
                f"tokens_per_state = {self.tokens_per_state}; a block would cut a stored vector"
            )
        super().__post_init__()

    @property
    def unpadded_page_size_bytes(self) -> int:
        return self.block_size // self.tokens_per_state * (self.state_bytes or self.token_bytes)


@dataclass(frozen=True, kw_only=True)
class HiddenStateCacheSpec(MLAAttentionSpec):
    """The hidden state of every token, for a reader outside the model. It is kept as full attention is, but its layers
    never join an attention group, because that reader has a block table of its own."""

    kind: ClassVar[str] = "hidden_state"

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(isinstance(spec, HiddenStateCacheSpec) for spec in specs.values())


@dataclass(frozen=True, kw_only=True)
class SinkFullAttentionSpec(FullAttentionSpec):
    """Full attention over learned sink tokens too: `sink_len` tokens whose blocks all requests share for ever."""

    kind: ClassVar[str] = "sink_full_attention"

    sink_len: int

    def __post_init__(self) -> None:
        require_positive(self, "sink_len")
        super().__post_init__()

    @property
    def reserved_blocks(self) -> int:
        return ceil_div(self.sink_len, self.block_size)

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        """Sinks stand at the head of the block table, so layers share one only when they have equally many."""
        return all(isinstance(s, SinkFullAttentionSpec) and s.sink_len == self.sink_len for s in specs.values())


@dataclass(frozen=True, kw_only=True)
class TQFullAttentionSpec(FullAttentionSpec):
    """Full attention whose keys and values are quantised together into one packed slot per token and head.

    `slot_bytes` is the whole slot: codes of both vectors, norms and scales.
    """

    slot_bytes: int
    dtype: CacheDType = CacheDType.UINT8

    def __post_init__(self) -> None:
        require_positive(self, "slot_bytes")
        super().__post_init__()

    @property
    def token_bytes(self) -> int:
        return self.num_kv_heads * self.slot_bytes


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    """Attention to the last `sliding_window` tokens, the current one included."""

    kind: ClassVar[str] = "sliding_window"

    sliding_window: int

    def __post_init__(self) -> None:
        require_positive(self, "sliding_window")
        super().__post_init__()

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        first = max(0, point.num_tokens - self.sliding_window + 1)
        return blocks_holding(first, point.num_tokens, self.block_size)

    @property
    def always_needs_last_block(self) -> bool:
        return self.sliding_window > 1

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return _most_blocks(self.sliding_window, limits, self.block_size)

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(
            isinstance(spec, SlidingWindowSpec)
            and not isinstance(spec, SlidingWindowMLASpec)
            and spec.sliding_window == self.sliding_window
            for spec in specs.values()
        )


@dataclass(frozen=True, kw_only=True)
class SlidingWindowMLASpec(SlidingWindowSpec):
    """A sliding window over latents."""

    kind: ClassVar[str] = "sliding_window_mla"

    num_kv_heads: int = 1
    head_size_v: int | None = 0

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(
            isinstance(spec, SlidingWindowMLASpec) and spec.sliding_window == self.sliding_window
            for spec in specs.values()
        )


@dataclass(frozen=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """Attention within chunks of `attention_chunk_size` tokens: a token sees its own chunk's past."""

    kind: ClassVar[str] = "chunked_local_attention"

    attention_chunk_size: int

    def __post_init__(self) -> None:
        require_positive(self, "attention_chunk_size")
        super().__post_init__()

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        first = point.num_tokens // self.attention_chunk_size * self.attention_chunk_size
        return blocks_holding(first, point.num_tokens, self.block_size)

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return _most_blocks(self.attention_chunk_size, limits, self.block_size)

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(
            isinstance(spec, ChunkedLocalAttentionSpec) and spec.attention_chunk_size == self.attention_chunk_size
            for spec in specs.values()
        )


@dataclass(frozen=True, kw_only=True)
class CircularBufferSpec(AttentionSpec):
    """The raw keys of tokens that share a record which is still to be made. Each request has one block, whatever its
    length: token t lies at `t % block_size`. A block has room for a record and for draft tokens after it, which may be
    refused. Where no record is open a resume needs nothing, so nothing is ever kept."""

    kind: ClassVar[str] = "circular_buffer"

    head_size_v: int | None = 0
    tokens_per_state: int
    """Tokens that share a record."""

    def __post_init__(self) -> None:
        require_positive(self, "block_size", "tokens_per_state")
        if self.block_size % self.tokens_per_state:
            raise SpecError(
                f"{type(self).__name__}: block_size = {self.block_size} is not a multiple of "
                f"tokens_per_state = {self.tokens_per_state}; a record would be open where a block ends"
            )
        super().__post_init__()

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        first = point.num_tokens // self.tokens_per_state * self.tokens_per_state
        return blocks_holding(first, point.num_tokens, self.block_size)

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return 1

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(isinstance(spec, CircularBufferSpec) for spec in specs.values())


def _most_blocks(reach_tokens: int, limits: RequestLimits, block_size: int) -> int:
    """The most blocks of a request whose tokens see so many, themselves included: those of a step and what its first
    token sees. One more, as what it sees may begin inside a block."""
    tokens = reach_tokens - 1 + limits.max_step_tokens
    return min(ceil_div(limits.max_model_len, block_size), ceil_div(tokens, block_size) + 1)
