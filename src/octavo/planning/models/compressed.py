"""DeepSeek V4: a window of the last tokens in every layer, and in most a compressed cache of all.

    every layer    window                  a record per token
    ratio 4        attn, indexer           a record and an indexer's key per 4 tokens
                   compressor (of both)    what goes into the next one: numbers of the last 8 tokens
    ratio 128      attn                    a record per 128 tokens
                   compressor              numbers of the last 128 tokens

The kernels fix the sizes of blocks and records, whatever sizes and types are asked for.
"""

from collections.abc import Iterator
from dataclasses import replace

from octavo.planning.models.latent import indexer_key_bytes
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.specs import AttentionSpec, CacheDType, MLAAttentionSpec, SlidingWindowMLASpec, ceil_div

_BLOCK_TOKENS, _WINDOW_BLOCK_TOKENS = 256, 64
_RECORD_VALUES, _RECORD_BYTES = 512, 584
"""448 fp8 values, 64 rotary bfloat16 values, and their scales."""
_PAGE_ALIGNMENT = 576
_INDEXED, _HEAVY = 4, 128
_RATIO_OF_WORD = {
    "sliding_attention": 0,
    "compressed_sparse_attention": _INDEXED,
    "heavily_compressed_attention": _HEAVY,
}
_COMPRESSOR_BLOCK_TOKENS = {_INDEXED: 4, _HEAVY: 8}
_OVERLAP = {_INDEXED: 2, _HEAVY: 1}
"""How many records a token goes into."""


def read_deepseek_v4(model: Model) -> Layers:
    view = model.view
    model.per_rank(view.count("num_attention_heads"), "num_attention_heads")
    if view.count("head_dim") != _RECORD_VALUES:
        raise view.problem("head_dim", f"= {view.count('head_dim')}, but the packed record holds {_RECORD_VALUES}")
    if model.target.kv_dtype is not CacheDType.FP8_E4M3:
        model.notes.append(
            f"keys and values are packed fp8 records of {_RECORD_BYTES} bytes; the kernels take no others"
        )
    layers: Layers = {}
    for index, ratio in enumerate(_ratios(model)):
        layers |= {f"layers.{index}.{name}": _with_aligned_page(spec) for name, spec in _caches(model, ratio)}
    return layers


def _ratios(model: Model) -> tuple[int, ...]:
    """By layer: how many tokens share a record; 0 or 1 where nothing is compressed."""
    view = model.view
    rates = view.find_part("compress_rates")
    for word, ratio in _RATIO_OF_WORD.items():
        if rates is not None and ratio and rates.find_count(word) not in (None, ratio):
            raise rates.problem(word, f"= {rates.count(word)}; the kernels know {ratio} only")
    ratios = view.find_counts("compress_ratios")
    if ratios is None:
        words = model.layer_words("layer_types", default=_usual_word, known=_RATIO_OF_WORD.keys())
        return tuple(_RATIO_OF_WORD[word] for word in words)
    if len(ratios) < model.num_layers:
        raise view.problem("compress_ratios", f"has {len(ratios)} entries for {model.num_layers} layers")
    for index, ratio in enumerate(ratios):
        if ratio not in (0, 1, _INDEXED, _HEAVY):
            raise model.unknown(f"compress_ratios[{index}] = {ratio} is none of 0, 1, {_INDEXED}, {_HEAVY}")
    return ratios[: model.num_layers]  # then come those of draft layers


def _usual_word(index: int) -> str:
    return "compressed_sparse_attention" if index > 2 and index % 2 else "heavily_compressed_attention"


def _caches(model: Model, ratio: int) -> Iterator[tuple[str, AttentionSpec]]:
    """What one layer keeps."""
    window = model.view.count("sliding_window")
    yield (
        "window",
        SlidingWindowMLASpec(
            block_size=_WINDOW_BLOCK_TOKENS, head_size=_RECORD_BYTES, dtype=CacheDType.UINT8, sliding_window=window
        ),
    )
    if ratio <= 1:
        return
    yield "attn", _compressed(model, _RECORD_BYTES, ratio)
    yield "compressor", _compressor(_RECORD_VALUES, ratio)
    if ratio == _INDEXED:
        yield "indexer", _compressed(model, indexer_key_bytes(model), ratio)
        yield "indexer.compressor", _compressor(model.view.count("index_head_dim"), ratio)


def _compressed(model: Model, record_bytes: int, ratio: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(
        block_size=ceil_div(model.target.block_size, _BLOCK_TOKENS) * _BLOCK_TOKENS,
        head_size=record_bytes,
        dtype=CacheDType.UINT8,
        tokens_per_state=ratio,
    )


def _compressor(num_values: int, ratio: int) -> SlidingWindowMLASpec:
    """Of each token that some record is still to come of: a value and a score for each number of the record."""
    return SlidingWindowMLASpec(
        block_size=_COMPRESSOR_BLOCK_TOKENS[ratio],
        head_size=2 * _OVERLAP[ratio] * num_values,
        dtype=CacheDType.FLOAT32,
        sliding_window=_OVERLAP[ratio] * ratio,
    )


def _with_aligned_page(spec: AttentionSpec) -> AttentionSpec:
    return replace(spec, page_size_padded=ceil_div(spec.page_size_bytes, _PAGE_ALIGNMENT) * _PAGE_ALIGNMENT)
