"""Hypothesis strategies: specs of all kinds, the layers of models of all shapes, and sets of blocks in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from octavo.specs import (
    AttentionSpec,
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    ResumePoint,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
    UniformTypeKVCacheSpecs,
)

BUILTIN_KINDS: tuple[type[KVCacheSpec], ...] = (
    FullAttentionSpec,
    MLAAttentionSpec,
    HiddenStateCacheSpec,
    SinkFullAttentionSpec,
    TQFullAttentionSpec,
    SlidingWindowSpec,
    SlidingWindowMLASpec,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    MambaSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
)

MODEL_SHAPES: Mapping[str, tuple[type[KVCacheSpec], ...]] = {
    "full only": (FullAttentionSpec,),
    "window + full": (SlidingWindowSpec, FullAttentionSpec),
    "several windows + full": (SlidingWindowSpec, SlidingWindowSpec, FullAttentionSpec),
    "state + full": (MambaSpec, FullAttentionSpec),
    "state + window + full": (MambaSpec, SlidingWindowSpec, FullAttentionSpec),
    "latent": (MLAAttentionSpec,),
    "sinks": (SinkFullAttentionSpec,),
    "circular + latent": (CircularBufferSpec, MLAAttentionSpec),
    "chunked-local": (ChunkedLocalAttentionSpec, FullAttentionSpec),
    "cross-attention": (FullAttentionSpec, CrossAttentionSpec),
}
"""Shapes of models, by the kinds of their groups: every part is tested on all of them."""

BLOCK_SIZES: SearchStrategy[int] = st.sampled_from([16, 1, 3, 32, 48, 64, 256, 528])
"""Powers of two, and sizes that come of kernels and page sizes of hybrids."""

_SPANS = st.one_of(st.integers(1, 300), st.sampled_from([512, 1024, 4096, 8192]))


def specs(kind: type[KVCacheSpec], block_sizes: SearchStrategy[int] = BLOCK_SIZES) -> SearchStrategy[KVCacheSpec]:
    """Any spec of one built-in kind, padded or not."""
    return st.builds(_padded, _unpadded_specs(kind, block_sizes), st.none() | st.integers(0, 4096))


def any_spec(block_sizes: SearchStrategy[int] = BLOCK_SIZES) -> SearchStrategy[KVCacheSpec]:
    """Any spec of any built-in kind."""
    return st.one_of([specs(kind, block_sizes) for kind in BUILTIN_KINDS])


@st.composite
def uniform_groups(draw: st.DrawFn, block_sizes: SearchStrategy[int] = BLOCK_SIZES) -> UniformTypeKVCacheSpecs:
    """Attention layers of one kind that share a block table; their pages differ in size."""
    attention_kinds = [kind for kind in BUILTIN_KINDS if issubclass(kind, AttentionSpec)]
    layer = draw(specs(draw(st.sampled_from(attention_kinds)), block_sizes))
    heads = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    layers = {f"layers.{i}": _with_heads(layer, count) for i, count in enumerate(heads)}
    return UniformTypeKVCacheSpecs.of(layers)


@st.composite
def layer_sets(
    draw: st.DrawFn,
    shapes: Sequence[str] = tuple(MODEL_SHAPES),
    block_sizes: SearchStrategy[int] = BLOCK_SIZES,
) -> dict[str, KVCacheSpec]:
    """The layers of a model of one of `MODEL_SHAPES`, by name: its kinds in turn, one to three times."""
    kinds = MODEL_SHAPES[draw(st.sampled_from(shapes))]
    pattern = [draw(specs(kind, block_sizes)) for kind in kinds]
    layers = pattern * draw(st.integers(1, 3))
    return {f"layers.{i}": spec for i, spec in enumerate(layers)}


@st.composite
def resume_points(draw: st.DrawFn, max_tokens: int = 20_000) -> ResumePoint:
    """Any point within any request: in its prompt, at its end, or after it."""
    return ResumePoint(
        num_tokens=draw(st.integers(0, max_tokens)),
        num_prompt_tokens=draw(st.integers(0, max_tokens)),
        num_encoder_tokens=draw(st.just(0) | st.integers(0, max_tokens)),
    )


def request_limits(max_tokens: int = 20_000) -> SearchStrategy[RequestLimits]:
    """Any limits of an engine, from one token up."""
    return st.builds(
        RequestLimits,
        max_model_len=st.integers(1, max_tokens),
        max_step_tokens=st.integers(1, max_tokens),
        max_encoder_tokens=st.integers(0, max_tokens),
    )


@dataclass(frozen=True, slots=True)
class BlockSet:
    """The plainest `BlockAvailability`: a set of blocks."""

    present: frozenset[int]

    def first_missing(self, start: int, stop: int) -> int:
        return next((block for block in range(start, stop) if block not in self.present), stop)

    def available_until(self, stop: int) -> int:
        return max((block + 1 for block in self.present if block < stop), default=0)


@st.composite
def block_sets(draw: st.DrawFn, num_blocks: int) -> BlockSet:
    """Sets of `num_blocks` that may be there: all but a few, runs, or only a few."""
    blocks = st.integers(0, max(0, num_blocks - 1))
    everything = set(range(num_blocks))
    few = draw(st.sets(blocks, max_size=4)) & everything
    match draw(st.sampled_from(["nearly all", "runs", "few"])):
        case "nearly all":
            return BlockSet(frozenset(everything - few))
        case "runs":
            runs = draw(st.lists(st.tuples(blocks, blocks), min_size=1, max_size=3))
            return BlockSet(frozenset(block for run in runs for block in range(min(run), max(run) + 1)) & everything)
        case _:
            return BlockSet(frozenset(few))


def _with_heads(layer: KVCacheSpec, num_kv_heads: int) -> KVCacheSpec:
    assert isinstance(layer, AttentionSpec)
    return replace(layer, num_kv_heads=num_kv_heads, page_size_padded=None)


def _padded(spec: KVCacheSpec, padding_bytes: int | None) -> KVCacheSpec:
    if padding_bytes is None:
        return spec
    return replace(spec, page_size_padded=spec.unpadded_page_size_bytes + padding_bytes)


def _unpadded_specs(kind: type[KVCacheSpec], block_sizes: SearchStrategy[int]) -> SearchStrategy[KVCacheSpec]:
    if kind is MambaSpec:
        return _mamba_specs(block_sizes)
    if issubclass(kind, MLAAttentionSpec):
        return _latent_specs(kind, block_sizes)
    if kind is CircularBufferSpec:
        return _circular_specs(block_sizes)
    sizes = {name: _SPANS for name in _SIZE_FIELDS if name in kind.__dataclass_fields__}
    is_latent = issubclass(kind, SlidingWindowMLASpec)
    return st.builds(
        kind,
        block_size=block_sizes,
        num_kv_heads=st.just(1) if is_latent else st.integers(1, 16),
        head_size=st.sampled_from([64, 80, 128, 256, 576]),
        dtype=st.sampled_from(CacheDType),
        head_size_v=st.just(0) if is_latent else st.none() | st.sampled_from([64, 128]),
        **sizes,
    )


_SIZE_FIELDS = ("sliding_window", "attention_chunk_size", "sink_len", "slot_bytes")


@st.composite
def _latent_specs(draw: st.DrawFn, kind: type[MLAAttentionSpec], block_sizes: SearchStrategy[int]) -> MLAAttentionSpec:
    block_size = draw(block_sizes)
    return kind(
        block_size=block_size,
        head_size=draw(st.sampled_from([128, 132, 576])),
        dtype=draw(st.sampled_from(CacheDType)),
        tokens_per_state=draw(_parts_of(block_size)),
        state_bytes=draw(st.none() | st.just(656)),
    )


@st.composite
def _circular_specs(draw: st.DrawFn, block_sizes: SearchStrategy[int]) -> CircularBufferSpec:
    block_size = draw(block_sizes)
    return CircularBufferSpec(
        block_size=block_size,
        num_kv_heads=draw(st.integers(1, 2)),
        head_size=draw(st.sampled_from([128, 140])),
        dtype=draw(st.sampled_from(CacheDType)),
        tokens_per_state=draw(_parts_of(block_size)),
    )


def _parts_of(block_size: int) -> SearchStrategy[int]:
    return st.sampled_from([size for size in (1, 2, 4, 8) if block_size % size == 0])


@st.composite
def _mamba_specs(draw: st.DrawFn, block_sizes: SearchStrategy[int]) -> MambaSpec:
    shape = st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple)
    tensors = draw(st.lists(st.tuples(shape, st.sampled_from(CacheDType)), min_size=1, max_size=3))
    return MambaSpec(
        block_size=draw(block_sizes),
        shapes=tuple(shape for shape, _ in tensors),
        dtypes=tuple(dtype for _, dtype in tensors),
        num_speculative_tokens=draw(st.integers(0, 4)),
    )
