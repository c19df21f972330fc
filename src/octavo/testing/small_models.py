"""Models with small blocks and small pages, of all the shapes that the design names."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.errors import NotEnoughMemoryError
from octavo.planning import KVCacheConfig, plan_kv_cache
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

SMALL_LIMITS = RequestLimits(max_model_len=96, max_step_tokens=24, max_encoder_tokens=11)


@dataclass(frozen=True, kw_only=True)
class SmallModel:
    """The layers of a model, with small blocks and small pages."""

    layers: Mapping[str, KVCacheSpec]
    draft_layers: Collection[str]
    null_block: bool
    limits: RequestLimits
    hash_block_size: int | None
    checkpoint_interval_tokens: int | None

    def plan(self, spare: float) -> KVCacheConfig:
        """A plan with memory for one longest request, and this share more."""
        return self._plan(int(self._smallest_memory() * (1 + spare)))

    def _smallest_memory(self) -> int:
        memory = 1024
        while True:
            try:
                self._plan(memory)
            except NotEnoughMemoryError:
                memory += max(64, memory // 16)
            else:
                return memory

    def _plan(self, memory_bytes: int) -> KVCacheConfig:
        return plan_kv_cache(
            self.layers,
            memory_bytes=memory_bytes,
            limits=self.limits,
            draft_layers=self.draft_layers,
            null_block=self.null_block,
            hash_block_size=self.hash_block_size,
            checkpoint_interval_tokens=self.checkpoint_interval_tokens,
            alignment_bytes=16,
        )


def full(block_size: int = 4, heads: int = 1) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=heads, head_size=4)


def window(length: int, block_size: int = 4, heads: int = 1) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=block_size, num_kv_heads=heads, head_size=4, sliding_window=length)


def state(block_size: int = 4, speculative: int = 0, elements: int = 64) -> MambaSpec:
    return MambaSpec(
        block_size=block_size,
        shapes=((elements,),),
        dtypes=(CacheDType.FLOAT32,),
        num_speculative_tokens=speculative,
    )


def cross(block_size: int = 4, heads: int = 1) -> CrossAttentionSpec:
    return CrossAttentionSpec(block_size=block_size, num_kv_heads=heads, head_size=4)


def sinks(length: int, block_size: int = 4) -> SinkFullAttentionSpec:
    return SinkFullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=4, sink_len=length)


def chunked(length: int, block_size: int = 4) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=4, attention_chunk_size=length)


def circular(tokens_per_state: int = 4, block_size: int = 8) -> CircularBufferSpec:
    """With room for the drafts that a naive engine tries."""
    return CircularBufferSpec(block_size=block_size, num_kv_heads=1, head_size=8, tokens_per_state=tokens_per_state)


def small_model(
    *layers: KVCacheSpec,
    drafts: Sequence[KVCacheSpec] = (),
    null_block: bool = False,
    limits: RequestLimits = SMALL_LIMITS,
    hash_block_size: int | None = None,
    checkpoint_interval_tokens: int | None = None,
) -> SmallModel:
    """A model of these layers, and those of a draft model."""
    names = {f"layers.{i}": layer for i, layer in enumerate(layers)}
    draft_names = {f"draft.{i}": layer for i, layer in enumerate(drafts)}
    return SmallModel(
        layers=names | draft_names,
        draft_layers=tuple(draft_names),
        null_block=null_block,
        limits=limits,
        hash_block_size=hash_block_size,
        checkpoint_interval_tokens=checkpoint_interval_tokens,
    )


MODEL_EXAMPLES: Mapping[str, SmallModel] = {
    "full only": small_model(full(8)),
    "full, with two layers and a null row": small_model(full(4), full(4, heads=2), null_block=True),
    "window + full": small_model(window(13), full()),
    "window + full, other block sizes": small_model(window(10, block_size=12), full(4, heads=2)),
    "window + full, steps shorter than a block": small_model(
        window(10, block_size=8, heads=2), full(8), limits=replace(SMALL_LIMITS, max_step_tokens=4)
    ),
    "several windows + full": small_model(window(5), window(20, heads=3), full(8)),
    "state + full": small_model(state(), full(), checkpoint_interval_tokens=24),
    "state + full, large blocks": small_model(state(block_size=12), full(4, heads=2)),
    "state + window + full": small_model(state(elements=100), window(9, heads=3), full(heads=2)),
    "state + window + full, all sizes": small_model(
        state(8), window(9, block_size=12, heads=2), full(4), hash_block_size=2
    ),
    "state alone": small_model(state()),
    "1 speculative state": small_model(state(speculative=1), full()),
    "2 speculative states": small_model(state(speculative=2), full(heads=2), checkpoint_interval_tokens=8),
    "3 speculative states": small_model(state(8, speculative=3), window(7), full()),
    "latent": small_model(
        MLAAttentionSpec(block_size=8, head_size=8), MLAAttentionSpec(block_size=8, head_size=4, tokens_per_state=4)
    ),
    "latent windows": small_model(
        SlidingWindowMLASpec(block_size=4, head_size=8, sliding_window=9), MLAAttentionSpec(block_size=8, head_size=8)
    ),
    "latent and what goes into it": small_model(
        MLAAttentionSpec(block_size=8, head_size=4, tokens_per_state=4), circular(), state(8)
    ),
    "sinks": small_model(sinks(6), window(9)),
    "chunked-local": small_model(chunked(10), full(8)),
    "cross-attention": small_model(full(), cross()),
    "cross-attention, other block sizes": small_model(full(8), window(9), cross(heads=3), hash_block_size=4),
    "encoder-only + full": small_model(full(), EncoderOnlyAttentionSpec(block_size=4, num_kv_heads=1, head_size=4)),
    "draft": small_model(full(), drafts=[full(heads=2)]),
    "draft with a window beside a state": small_model(full(), state(), drafts=[window(9)]),
    "blocks of 48 with hashes of 16": small_model(full(48), window(20, block_size=16, heads=2), hash_block_size=16),
    "a window of one token": small_model(window(1), full()),
}
"""The models with which a device cache is tested."""
