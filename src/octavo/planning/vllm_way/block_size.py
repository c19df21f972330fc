"""The block size that vLLM's platform settles on, and the layers with it.

A hybrid with recurrent state has one block size and one page size for all its layers. So the attention block grows
until its page holds a state, and the state is padded to that page:

    block = unit * ceil(state_bytes / (unit * attention_bytes_per_token)),   unit = max(block_size, kernel's block)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import lcm

from octavo.errors import BlockSizeError, SpecError
from octavo.planning.vllm_way.packing import are_packed
from octavo.specs import (
    AttentionSpec,
    CircularBufferSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    ceil_div,
)

KERNEL_BLOCK_TOKENS = 16
"""FlashAttention, dense and latent: any multiple of it."""
SPARSE_MLA_BLOCK_TOKENS = 64
"""Sparse latent attention and its indexer."""
INDEXER_BLOCK_STATES = 32
"""An indexer whose keys stand for several tokens each, beside a latent (GLM-5-Next)."""
SPARSE_BLOCK_TOKENS = 128
"""Sparse attention over whole heads, and its indexer (MiniMax M3)."""
HYBRID_MLA_BLOCK_TOKENS = 128
"""Latent attention beside recurrent state."""


def layers_as_vllm_sizes_them(layers: Mapping[str, KVCacheSpec], block_size: int) -> dict[str, KVCacheSpec]:
    """The layers that keep something, with vLLM's block size, and state pages padded to attention's."""
    kept = {name: _normalised(spec) for name, spec in layers.items() if not isinstance(spec, EncoderOnlyAttentionSpec)}
    attention = [spec for spec in kept.values() if isinstance(spec, AttentionSpec)]
    states = [spec for spec in kept.values() if isinstance(spec, MambaSpec)]
    is_packed = are_packed(kept)
    if is_packed and not states:  # their kernels have sizes of their own
        return kept

    block_size = _smallest_for_kernels(attention, block_size)
    state_page = None
    if attention and states:
        token_bytes = _main_attention(attention).with_block_size(block_size).page_size_bytes // block_size
        block_size, state_page = _grown_for_state(attention, states, token_bytes, block_size)
    return {name: _sized(spec, block_size, state_page, is_packed=is_packed) for name, spec in kept.items()}


def _normalised(spec: KVCacheSpec) -> KVCacheSpec:
    """The spec with one form for equal formats: a value as long as its key can be written in two ways."""
    if isinstance(spec, AttentionSpec) and spec.head_size_v is None:
        return replace(spec, head_size_v=spec.head_size)
    return spec


def _main_attention(attention: Iterable[AttentionSpec]) -> AttentionSpec:
    """The layer whose heads the config's keys describe: the first full attention with a key per token, else the first
    at all."""
    attention = list(attention)
    return next((s for s in attention if isinstance(s, FullAttentionSpec) and _tokens_per_state(s) == 1), attention[0])


def _smallest_for_kernels(attention: Sequence[AttentionSpec], block_size: int) -> int:
    unit = _kernel_block_tokens(attention)
    return ceil_div(block_size, unit) * unit


def _kernel_block_tokens(attention: Sequence[AttentionSpec]) -> int:
    latents = {spec.with_block_size(1).page_size_bytes for spec in attention if _is_plain_mla(spec)}
    shares = {_tokens_per_state(spec) for spec in attention} - {1}
    if latents and shares:
        return lcm(SPARSE_MLA_BLOCK_TOKENS, *(INDEXER_BLOCK_STATES * tokens for tokens in shares))
    if latents and any(isinstance(spec, FullAttentionSpec) and not _is_plain_mla(spec) for spec in attention):
        return SPARSE_BLOCK_TOKENS
    return SPARSE_MLA_BLOCK_TOKENS if len(latents) > 1 else KERNEL_BLOCK_TOKENS


def _is_plain_mla(spec: AttentionSpec) -> bool:
    return isinstance(spec, MLAAttentionSpec) and spec.tokens_per_state == 1


def _tokens_per_state(spec: AttentionSpec) -> int:
    """Of what is kept for good."""
    return spec.tokens_per_state if isinstance(spec, MLAAttentionSpec) else 1


def _grown_for_state(
    attention: Sequence[AttentionSpec], states: Iterable[MambaSpec], token_bytes: int, block_size: int
) -> tuple[int, int]:
    """The block size of a hybrid, and the page size that attention and state then share."""
    latent = any(_is_plain_mla(spec) for spec in attention)
    unit = max(block_size, HYBRID_MLA_BLOCK_TOKENS if latent else KERNEL_BLOCK_TOKENS)
    state_bytes = max(spec.unpadded_page_size_bytes for spec in states)
    grown = unit * ceil_div(state_bytes, unit * token_bytes)
    kernel = _kernel_block_tokens(attention)
    grown = max(block_size, ceil_div(grown, kernel) * kernel)
    return grown, grown * token_bytes


def _sized(spec: KVCacheSpec, block_size: int, state_page: int | None, *, is_packed: bool) -> KVCacheSpec:
    if isinstance(spec, CircularBufferSpec):  # without drafts it has room for one record
        return spec.with_block_size(spec.tokens_per_state)
    if is_packed and isinstance(spec, SlidingWindowSpec):
        return spec
    try:
        if isinstance(spec, MambaSpec):
            padded = None if spec.unpadded_page_size_bytes == state_page else state_page
            return replace(spec, block_size=block_size, page_size_padded=padded)
        if isinstance(spec, SlidingWindowSpec):  # it takes whole kernel blocks of its own
            return spec.with_block_size(max(1, block_size // KERNEL_BLOCK_TOKENS) * KERNEL_BLOCK_TOKENS)
        return spec.with_block_size(block_size)
    except SpecError as error:
        raise BlockSizeError(f"vLLM's block size for these layers is {block_size}, but {error}") from error
