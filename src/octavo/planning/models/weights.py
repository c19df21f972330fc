"""How large a model's weights are: from its safetensors files, else estimated from its config.

The estimate counts the matrices of embeddings, attention, recurrent layers, feed-forward blocks and experts in the
shapes that nearly all families share. Families with other shapes and quantised models have no estimate: a wrong number
is worse than none.
"""

import json
from math import prod
from pathlib import Path

from octavo.errors import MALFORMED, ModelConfigError
from octavo.planning.models.config_view import MAX_COUNT, ConfigView
from octavo.planning.models.model_layers import Layers
from octavo.settings import read_text_file
from octavo.specs import CacheDType, MambaSpec

_INDEX = "model.safetensors.index.json"
_ODD_FAMILIES = (
    "bailing_",
    "deepseek_v4",
    "gemma3n",
    "gemma4",
    "lfm2",
    "mimo",
    "minimax_m3",
    "nemotron_h",
    "phi4flash",
    "plamo2",
    "qwen4_exp",
    "recurrent_gemma",
    "whisper",
    "zamba2",
    "zaya",
)
"""Beginnings of model types that share blocks, embed per layer, or have matrices of other shapes."""
_NUM_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")


def stored_weight_bytes(folder: Path) -> int | None:
    """Bytes of the weights beside a config; None if there are none."""
    index = folder / _INDEX
    if index.is_file():
        try:
            size = json.loads(read_text_file(index, ModelConfigError))["metadata"]["total_size"]
        except (*MALFORMED, KeyError, TypeError):
            return None
        is_size = isinstance(size, int | float) and not isinstance(size, bool) and 0 < size <= 100 * MAX_COUNT
        return int(size) if is_size else None
    try:
        return sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None
    except OSError:
        return None


def estimated_weight_bytes(view: ConfigView, layers: Layers, dtype: CacheDType) -> int | None:
    """Bytes of the weights by the config, with all ranks' `layers`; None if it cannot tell."""
    if str(view.values.get("model_type", "")).startswith(_ODD_FAMILIES) or view.has("quantization_config"):
        return None
    try:
        return _estimated(view, layers, dtype)
    except ModelConfigError:  # a size in a form that no reader of layers needs
        return None


def _estimated(view: ConfigView, layers: Layers, dtype: CacheDType) -> int | None:
    hidden, vocabulary = view.find_count("hidden_size"), view.find_count("vocab_size")
    num_layers = view.find_count("num_hidden_layers")
    if hidden is None or vocabulary is None or num_layers is None:
        return None
    has_attention = any(not isinstance(spec, MambaSpec) for spec in layers.values())
    if has_attention and not (view.has("intermediate_size") or view.has("moe_intermediate_size")):
        return None
    total = vocabulary * hidden * (1 if view.values.get("tie_word_embeddings") is True else 2)
    for name, spec in layers.items():
        if isinstance(spec, MambaSpec):
            total += _state_layer(spec, hidden, is_convolution=name.endswith(".conv"))
        elif ".indexer" not in name:
            total += _attention_layer(view, hidden)
    experts = [_has_experts(view, index) for index in range(num_layers)]
    total += sum(_experts(view, hidden) if has_experts else _feed_forward(view, hidden) for has_experts in experts)
    return dtype.vector_bytes(total)


def _attention_layer(view: ConfigView, hidden: int) -> int:
    num_heads = view.find_count("num_attention_heads") or 1
    if (rank := view.find_count("kv_lora_rank")) is not None:
        rope = view.find_count("qk_rope_head_dim", minimum=0) or 0
        nope, values = view.find_count("qk_nope_head_dim") or 128, view.find_count("v_head_dim") or 128
        q_rank = view.find_count("q_lora_rank")
        q_size = num_heads * (nope + rope)
        queries = hidden * q_size if q_rank is None else q_rank * (hidden + q_size)
        return queries + hidden * (rank + rope) + rank * num_heads * (nope + values) + num_heads * values * hidden
    num_kv_heads = view.find_count("num_key_value_heads") or num_heads
    size = view.find_count("head_dim") or view.find_count("hidden_size_per_head") or hidden // num_heads
    values = view.find_count("v_head_dim") or size
    return hidden * (num_heads * (size + values) + num_kv_heads * (size + values))


def _state_layer(spec: MambaSpec, hidden: int, *, is_convolution: bool) -> int:
    """The projections from the layer's input to the convolution and a gate, and back."""
    if is_convolution:
        return 4 * hidden * hidden
    state = spec.shapes[-1]
    inner = prod(state[:-1]) if len(state) > 1 else state[0]
    convolved = spec.shapes[0][-1] if len(spec.shapes) > 1 else 3 * inner  # without one: queries, keys and values
    return hidden * (convolved + inner) + inner * hidden


def _has_experts(view: ConfigView, index: int) -> bool:
    if not any(view.find_count(key) for key in _NUM_EXPERTS if not isinstance(view.values.get(key), list)):
        return False
    if index < (view.find_count("first_k_dense_replace", minimum=0) or 0):
        return False
    words = view.values.get("mlp_layer_types")
    if isinstance(words, list):
        return index < len(words) and words[index] == "sparse"
    frequencies = view.values.get("moe_layer_freq")
    if isinstance(frequencies, list):
        return index < len(frequencies) and bool(frequencies[index])
    if (period := view.find_count("expert_layer_period")) is not None:
        return index % period == (view.find_count("expert_layer_offset", minimum=0) or 0)
    step = view.find_count("decoder_sparse_step") or view.find_count("interleave_moe_layer_step") or 1
    return (index + 1) % step == 0


def _experts(view: ConfigView, hidden: int) -> int:
    number = next(count for key in _NUM_EXPERTS if (count := view.find_count(key)))
    size = view.find_count("moe_intermediate_size") or view.find_count("intermediate_size") or 0
    shared = view.find_count("shared_expert_intermediate_size") or view.find_count("shared_intermediate_size")
    num_shared = view.find_count("n_shared_experts", minimum=0) or int(view.has("interleave_moe_layer_step"))
    shared = shared or size * num_shared
    return hidden * (3 * (number * size + shared) + number)


def _feed_forward(view: ConfigView, hidden: int) -> int:
    size = view.find_count("intermediate_size_mlp") or view.find_count("intermediate_size") or 0
    return 3 * hidden * size
