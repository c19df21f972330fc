"""DeepSeek V4 and V4.1: a window of the last tokens in every layer, and in most a compressed cache of all.

    every layer    window                  a record per token
    V4, ratio 4    attn, indexer           a record and an indexer's key per 4 tokens
                   compressor (of both)    what goes into the next one: numbers of the last 8 tokens
    ratio 128      attn                    a record per 128 tokens
                   compressor              numbers of the last 128 tokens
    V4.1, sources  attn, indexer           a record and a key per 1 or 2 tokens, for the layers that follow too
                   compressor              numbers of the token that waits for the second

The kernels fix the sizes of blocks and records, whatever sizes and types are asked for.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from octavo.planning.models.latent import indexer_key_bytes
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.specs import (
    AttentionSpec,
    CacheDType,
    CircularBufferSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    ceil_div,
)

_BLOCK_TOKENS, _WINDOW_BLOCK_TOKENS = 256, 64
_V41_BLOCK_TOKENS, _V41_WINDOW_BLOCK_TOKENS = 64, 32
_RECORD_VALUES, _RECORD_BYTES = 512, 584
"""448 fp8 values, 64 rotary bfloat16 values, and their scales. V4.1 has records of 528 bytes on Blackwell."""
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
_V41_BUFFER_TOKENS = 8


def read_deepseek_v4(model: Model) -> Layers:
    _check_records(model)
    layers: Layers = {}
    for index, ratio in enumerate(_ratios(model)):
        layers |= {f"layers.{index}.{name}": _with_aligned_page(spec) for name, spec in _caches(model, ratio)}
    return layers


def read_deepseek_v41(model: Model) -> Layers:
    """As Hopper's kernels keep it. A layer that is no source reads the caches of the last one before it."""
    _check_records(model)
    view = model.view
    sources = view.find_counts("kv_source_layer_ids") or ()
    indexers = view.find_counts("index_source_layer_ids") or ()
    layers: Layers = {}
    for index, ratio in enumerate(_listed_ratios(model, (0, 1, 2)) or (0,) * model.num_layers):
        if ratio and min(sources, default=index + 1) > index:
            raise view.problem("kv_source_layer_ids", f"names no layer up to {index}, where compress_ratios is {ratio}")
        caches = _caches_of_source(model, ratio, has_indexer=index in indexers) if ratio and index in sources else {}
        layers |= {f"layers.{index}.{name}": spec for name, spec in caches.items()}
        layers[f"layers.{index}.window"] = _with_aligned_page(_window(model, _V41_WINDOW_BLOCK_TOKENS))
    return layers


def _check_records(model: Model) -> None:
    view = model.view
    model.per_rank(view.count("num_attention_heads"), "num_attention_heads")
    if view.count("head_dim") != _RECORD_VALUES:
        raise view.problem("head_dim", f"= {view.count('head_dim')}, but the packed record holds {_RECORD_VALUES}")
    if model.target.kv_dtype is not CacheDType.FP8_E4M3:
        model.notes.append(
            f"keys and values are packed fp8 records of {_RECORD_BYTES} bytes; the kernels take no others"
        )


def _ratios(model: Model) -> tuple[int, ...]:
    """By layer: how many tokens share a record; 0 or 1 where nothing is compressed."""
    rates = model.view.find_part("compress_rates")
    for word, ratio in _RATIO_OF_WORD.items():
        if rates is not None and ratio and rates.find_count(word) not in (None, ratio):
            raise rates.problem(word, f"= {rates.count(word)}; the kernels know {ratio} only")
    if (ratios := _listed_ratios(model, (0, 1, _INDEXED, _HEAVY))) is not None:
        return ratios
    words = model.layer_words("layer_types", default=_usual_word, known=_RATIO_OF_WORD.keys())
    return tuple(_RATIO_OF_WORD[word] for word in words)


def _listed_ratios(model: Model, known: Collection[int]) -> tuple[int, ...] | None:
    ratios = model.layer_counts("compress_ratios")
    for index, ratio in enumerate(ratios or ()):
        if ratio not in known:
            raise model.unknown(f"compress_ratios[{index}] = {ratio} is none of {', '.join(map(str, known))}")
    return ratios


def _usual_word(index: int) -> str:
    return "compressed_sparse_attention" if index > 2 and index % 2 else "heavily_compressed_attention"


def _caches(model: Model, ratio: int) -> Iterator[tuple[str, AttentionSpec]]:
    """What one layer of V4 keeps."""
    block_size = ceil_div(model.target.block_size, _BLOCK_TOKENS) * _BLOCK_TOKENS
    yield "window", _window(model, _WINDOW_BLOCK_TOKENS)
    if ratio <= 1:
        return
    yield "attn", _compressed(block_size, _RECORD_BYTES, ratio)
    yield "compressor", _compressor(_RECORD_VALUES, ratio)
    if ratio == _INDEXED:
        yield "indexer", _compressed(block_size, indexer_key_bytes(model), ratio)
        yield "indexer.compressor", _compressor(model.view.count("index_head_dim"), ratio)


def _caches_of_source(model: Model, ratio: int, *, has_indexer: bool) -> Layers:
    """What a layer of V4.1 keeps for those that follow."""
    block_size = ceil_div(model.target.block_size, _V41_BLOCK_TOKENS) * _V41_BLOCK_TOKENS
    caches: Layers = {"attn": _with_aligned_page(_compressed(block_size, _RECORD_BYTES, ratio))}
    if has_indexer:
        caches["indexer"] = _with_aligned_page(_compressed(block_size, indexer_key_bytes(model), ratio))
    if ratio > 1:
        caches["compressor"] = CircularBufferSpec(
            block_size=_V41_BUFFER_TOKENS,
            num_kv_heads=1,
            head_size=2 * _RECORD_VALUES,
            dtype=CacheDType.FLOAT32,
            tokens_per_state=ratio,
        )
    return caches


def _window(model: Model, block_size: int) -> SlidingWindowMLASpec:
    window = model.view.count("sliding_window")
    return SlidingWindowMLASpec(
        block_size=block_size, head_size=_RECORD_BYTES, dtype=CacheDType.UINT8, sliding_window=window
    )


def _compressed(block_size: int, record_bytes: int, ratio: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(
        block_size=block_size, head_size=record_bytes, dtype=CacheDType.UINT8, tokens_per_state=ratio
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
