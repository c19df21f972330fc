"""Families of latent attention (MLA): one vector per token and layer, replicated on every rank."""

from dataclasses import replace

from octavo.planning.models.attention_families import read_full
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.specs import CacheDType, MLAAttentionSpec

DS_MLA_STATE_BYTES = 656
"""vLLM's `fp8_ds_mla`: 512 fp8 values, 4 float32 scales and 64 rotary bfloat16 values in one record."""
INDEXER_SCALE_GROUP = 128
"""Values of an indexer's key that share one float32 scale."""
_INDEXER_LETTERS = {"F": "full", "S": "shared"}


def latent_spec(model: Model) -> MLAAttentionSpec:
    """The latent of one layer."""
    model.per_rank(model.view.count("num_attention_heads"), "num_attention_heads")
    return MLAAttentionSpec(
        block_size=model.target.block_size,
        head_size=model.view.count("kv_lora_rank") + model.view.count("qk_rope_head_dim", minimum=0),
        dtype=model.target.kv_dtype,
    )


def read_latent(model: Model) -> Layers:
    """DeepSeek V2 and V3, Kimi K2: a latent in every layer, unless switched off (DeepSeek-OCR, DeepSeek-VL2 tiny)."""
    if _is_switched_off(model):
        return read_full(model)
    spec = latent_spec(model)
    return {f"layers.{index}.attn": spec for index in range(model.num_layers)}


def _is_switched_off(model: Model) -> bool:
    """The published code looks at the parts of a query head, which are then 0."""
    parts = [model.view.find_count(key, minimum=0) for key in ("qk_nope_head_dim", "qk_rope_head_dim")]
    return parts == [0, 0] or (model.view.has("use_mla") and not model.view.flag("use_mla"))


def read_indexed_latent(model: Model) -> Layers:
    """DeepSeek V3.2, GLM-5 and their like: beside its latent a layer has an indexer, with pages of another size, unless
    it takes the tokens that the indexer of a layer before has chosen."""
    attention, indexer = sparse_latent_spec(model), _indexer_spec(model)
    layers: Layers = {}
    for index, word in enumerate(indexer_words(model)):
        layers[f"layers.{index}.attn"] = attention
        if word == "full":
            layers[f"layers.{index}.indexer"] = indexer
    return layers


def read_mistral_large4(model: Model) -> Layers:
    """Mistral Large 4: every fourth latent has no rotary part, and a layer may read the latents of one before it."""
    view = model.view
    indexer, rotated = _indexer_spec(model), sparse_latent_spec(model)
    plain = replace(latent_spec(model), head_size=view.count("kv_lora_rank"))
    interval = view.count("no_rope_layer_interval")
    uses_rope = model.layer_counts("no_rope_layers")  # 1 means RoPE, whatever the key's name says
    sources = model.layer_counts("kv_source_layers")
    layers: Layers = {}
    for index, word in enumerate(indexer_words(model)):
        if sources is None or sources[index] == index:
            is_rotated = (index + 1) % interval if uses_rope is None else uses_rope[index]
            layers[f"layers.{index}.attn"] = rotated if is_rotated else plain
        if word == "full":
            layers[f"layers.{index}.indexer"] = indexer
    return layers


def read_longcat(model: Model) -> Layers:
    """LongCat Flash: two latents in each layer."""
    spec = latent_spec(model)
    num_layers = model.checked_num_layers("num_layers", model.view.count("num_layers"))
    return {f"layers.{index}.attn.{part}": spec for index in range(num_layers) for part in range(2)}


def indexer_words(model: Model) -> tuple[str, ...]:
    """By layer: "full" if it has an indexer, "shared" if not."""
    pattern = None if model.view.has("indexer_types") else model.view.find_pattern("index_topk_pattern")
    if pattern is not None:
        words = tuple(_INDEXER_LETTERS.get(letter, letter) for letter in pattern)
        return model.checked_words("index_topk_pattern", words, _INDEXER_LETTERS.values())
    every = model.view.find_count("index_topk_freq") or 1
    offset = model.view.find_count("index_skip_topk_offset", minimum=0)
    first = 2 if offset is None else offset
    return model.layer_words(
        "indexer_types",
        default=lambda index: "shared" if max(index - first + 1, 0) % every else "full",
        known=_INDEXER_LETTERS.values(),
    )


def sparse_latent_spec(model: Model) -> MLAAttentionSpec:
    """The latent as sparse kernels read it: fp8 only in their packed record."""
    plain = latent_spec(model)
    if plain.dtype is not CacheDType.FP8_E4M3:
        return plain
    packed_size = 512 + 64
    if plain.head_size != packed_size:
        raise model.view.problem(
            "kv_lora_rank", f"+ qk_rope_head_dim = {plain.head_size}, but the packed fp8 record holds {packed_size}"
        )
    return MLAAttentionSpec(
        block_size=plain.block_size,
        head_size=plain.head_size,
        dtype=CacheDType.UINT8,
        state_bytes=DS_MLA_STATE_BYTES,
    )


def _indexer_spec(model: Model) -> MLAAttentionSpec:
    return MLAAttentionSpec(
        block_size=model.target.block_size, head_size=indexer_key_bytes(model), dtype=CacheDType.UINT8
    )


def indexer_key_bytes(model: Model) -> int:
    """The indexer's fp8 values and their scales, whatever the type of the main cache is."""
    size = model.view.count("index_head_dim")
    if size % INDEXER_SCALE_GROUP:
        raise model.view.problem("index_head_dim", f"= {size} is not a multiple of {INDEXER_SCALE_GROUP}")
    return size + size // INDEXER_SCALE_GROUP * 4
