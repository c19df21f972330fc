"""Layers that no model here has on a CPU: as Octavo describes them, by name of the case."""

from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from rigs.packed_layers import latent_window, records

BF16, FP32 = CacheDType.BFLOAT16, CacheDType.FLOAT32


def full(heads: int = 8, head_size: int = 128, block_size: int = 16) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=heads, head_size=head_size)


def window(tokens: int, heads: int = 8, head_size: int = 128) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=16, num_kv_heads=heads, head_size=head_size, sliding_window=tokens)


def mla(head_size: int = 576) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=16, head_size=head_size)


def state(*shapes: tuple[int, ...], dtypes: tuple[CacheDType, ...], speculative: int = 0) -> MambaSpec:
    return MambaSpec(block_size=16, shapes=shapes, dtypes=dtypes, num_speculative_tokens=speculative)


def circular(head_size: int) -> CircularBufferSpec:
    return CircularBufferSpec(block_size=8, num_kv_heads=1, head_size=head_size, dtype=FP32, tokens_per_state=8)


def layers(*runs: tuple[int, KVCacheSpec], repeat: int = 1) -> dict[str, KVCacheSpec]:
    """So many layers of each kind, one run after another, the whole pattern `repeat` times."""
    specs = [spec for _ in range(repeat) for count, spec in runs for _ in range(count)]
    return {f"layers.{i}": spec for i, spec in enumerate(specs)}


_INDEXER = MLAAttentionSpec(block_size=16, head_size=132, dtype=CacheDType.UINT8)
_FP8_LATENT = MLAAttentionSpec(block_size=16, head_size=576, dtype=CacheDType.UINT8, state_bytes=656)
_MAMBA2 = state((3, 8448), (128, 64, 128), dtypes=(BF16, BF16))
_KDA = state((3, 4096), (3, 4096), (3, 4096), (32, 128, 128), dtypes=(BF16, BF16, BF16, FP32))
_GDN = state((3, 8192), (32, 128, 128), dtypes=(BF16, FP32))

LAYER_SETS: dict[str, dict[str, KVCacheSpec]] = {
    "latents in fp8 and indexer": layers((1, _INDEXER), (1, _FP8_LATENT), repeat=61),
    "heads and indexer": layers((3, full(4)))
    | {f"sparse.{i}": spec for i, spec in enumerate([full(4), MLAAttentionSpec(block_size=16, head_size=128)] * 57)},
    "kimi-linear-48b": layers((3, _KDA), (1, mla()), repeat=6) | {"last.0": _KDA, "last.1": _KDA, "last.2": mla()},
    "state, window and full": layers((6, _GDN), (3, window(1024, 2, 256)), (1, full(2, 256)), repeat=4),
    "state with speculation": layers(
        (3, state((3, 8192), (32, 128, 128), dtypes=(BF16, FP32), speculative=2)), (1, full(2, 256)), repeat=12
    ),
    "state only": layers((64, _MAMBA2)),
    "two windows and full": layers((3, window(512)), (1, window(4096)), (1, full()), repeat=6),
    "12 windows, 13 full": layers((1, window(128)), (1, full()), repeat=12) | {"draft": full()},
    "page that divides": layers((5, window(1024, 16, 256)), (1, full(4, 512)), repeat=8),
    "page that does not divide": layers((5, window(1024, 8, 96)), (1, full(8, 128)), repeat=8),
    "latent beside a plain window": layers((20, mla()), (2, window(2048, 4, 128))),
    "latent window": layers(
        (2, SlidingWindowMLASpec(block_size=16, head_size=576, sliding_window=512)), (1, mla()), repeat=4
    ),
    "latent window of another size": layers(
        (1, mla()), (1, SlidingWindowMLASpec(block_size=16, head_size=512, sliding_window=128))
    ),
    "one type, pages of two sizes": layers((3, full(8, 128)), (1, full(4, 256)), (1, full(2, 64)), repeat=8),
    "chunks only": layers(
        (8, ChunkedLocalAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, attention_chunk_size=8192))
    ),
    "window only": layers((8, window(4096))),
    "sinks": layers(
        (3, window(128, 8, 64)),
        (1, SinkFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=64, sink_len=4)),
        repeat=4,
    ),
    "whisper-large": layers(
        (1, full(20, 64)), (1, CrossAttentionSpec(block_size=16, num_kv_heads=20, head_size=64)), repeat=32
    ),
}

_FOURTH = [(1, records(4)), (1, records(4, 132)), (1, latent_window(4, 8192)), (1, latent_window(4, 2048))]
_HEAVY = [(1, records(128)), (1, latent_window(8, 4096))]
PACKED: dict[str, dict[str, KVCacheSpec]] = {
    "as many of both ratios": layers(*_FOURTH, *_HEAVY, (2, latent_window(64, 584)), repeat=6),
    "more of the heavy one": layers(*_FOURTH * 2, *_HEAVY * 7, (9, latent_window(64, 584))),
    "the fourth alone": layers(*_FOURTH * 5, (9, latent_window(64, 584))),
    "the heavy one alone": layers(*_HEAVY * 7, (7, latent_window(64, 584))),
    "circular buffers beside a pattern": layers(*_FOURTH * 3, (7, circular(2048))),
    "circular buffers as wide as a block": layers((2, records(128)), (3, circular(4096))),
    "no pattern, narrow latents": layers((5, records(128)), (7, latent_window(4, 584)), (2, latent_window(8, 584))),
}
"""Layers that a kernel wants packed into one block."""

REFUSED: dict[str, dict[str, KVCacheSpec]] = {
    "state, latent and indexer": layers((4, _GDN), (1, mla()), (1, MLAAttentionSpec(block_size=16, head_size=132))),
    "latent and chunks": layers(
        (1, mla()),
        (1, ChunkedLocalAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, attention_chunk_size=8192)),
    ),
}

SAME_BYTES: list[KVCacheSpec] = [
    *dict.fromkeys(spec for case in LAYER_SETS.values() for spec in case.values()),
    full(3, 80, block_size=48),
    FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=192, head_size_v=128),
    FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, dtype=CacheDType.FP8_E4M3),
    MLAAttentionSpec(block_size=256, head_size=512, tokens_per_state=4),
    state((2, 1536), dtypes=(BF16,)),
    state((5120, 3), (5120, 16), dtypes=(FP32, FP32)),
]
"""One layer of each kind and element type. Where a state of 4-byte elements follows an odd number of 2-byte ones,
Octavo aligns it and its page is 2 bytes larger; no model has that."""
