"""Families with attention only, and how far each of their layers looks."""

from dataclasses import replace

from octavo.planning.models.attention import (
    ATTENTION_WORDS,
    Heads,
    attention_layers,
    attention_spec,
    kv_heads_per_rank,
    read_heads,
)
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.model import Model, Reader
from octavo.planning.models.model_layers import Layers
from octavo.specs import MLAAttentionSpec

_M3_SPARSE = "minimax_m3_sparse"


def read_full(model: Model) -> Layers:
    """Full attention in every layer, unless layer_types says otherwise."""
    words = model.layer_words("layer_types", default=lambda _: "full_attention", known=ATTENTION_WORDS)
    return attention_layers(model, words)


def read_windowed(model: Model) -> Layers:
    """A sliding window in every layer where the config has one (Mistral, Mixtral, Phi-3)."""
    word = "full_attention" if model.view.find_count("sliding_window") is None else "sliding_attention"
    return attention_layers(model, model.layer_words("layer_types", default=lambda _: word, known=ATTENTION_WORDS))


def read_qwen(model: Model) -> Layers:
    """Qwen 2 and 3: windows above `max_window_layers`, and only where they are switched on."""
    has_window = model.view.flag("use_sliding_window") and model.view.find_count("sliding_window") is not None
    first_windowed = model.view.count("max_window_layers", minimum=0) if has_window else model.num_layers
    words = model.layer_words(
        "layer_types",
        default=lambda index: "sliding_attention" if index >= first_windowed else "full_attention",
        known=ATTENTION_WORDS,
    )
    return attention_layers(model, words)


def read_qwen_moe(model: Model) -> Layers:
    """Qwen 3 MoE: one switch turns windows on in every layer."""
    return read_windowed(model) if model.view.flag("use_sliding_window") else read_full(model)


def full_every(interval: int) -> Reader:
    """The reader of a family whose every `interval`-th layer is full attention and the others have a window."""

    def read(model: Model) -> Layers:
        step = model.view.find_count("sliding_window_pattern") or interval
        words = model.layer_words(
            "layer_types",
            default=lambda index: "sliding_attention" if (index + 1) % step else "full_attention",
            known=ATTENTION_WORDS,
        )
        return attention_layers(model, words)

    return read


def read_multi_query(model: Model) -> Layers:
    """StarCoder and Falcon: one key and value head in each layer, unless the config says otherwise. Later Falcons
    (`new_decoder_architecture`) give a number of them."""
    view = model.view
    if view.flag("new_decoder_architecture"):
        return read_full(model)
    num_heads = view.count("num_attention_heads")
    num_kv_heads = 1 if view.flag("multi_query") else num_heads
    heads = Heads(
        num_kv_heads=kv_heads_per_rank(model, num_heads, num_kv_heads),
        head_size=view.count("hidden_size") // num_heads,
    )
    return dict.fromkeys(
        (f"layers.{index}.attn" for index in range(model.num_layers)), attention_spec(model, heads, "full_attention")
    )


def read_llama4(model: Model) -> Layers:
    """Llama 4: layers with rotary positions look at their chunk only, those without at everything."""
    interval = model.view.count("no_rope_layer_interval")
    uses_rope = model.layer_counts("no_rope_layers")  # 1 means RoPE, whatever the key's name says

    def word(index: int) -> str:
        is_local = uses_rope[index] if uses_rope else (index + 1) % interval
        return "chunked_attention" if is_local else "full_attention"

    words = model.layer_words("layer_types", default=word, known=ATTENTION_WORDS)
    if model.view.find_count("attention_chunk_size") is None:
        words = ("full_attention",) * len(words)
    return attention_layers(model, words)


def read_mimo_v2(model: Model) -> Layers:
    """MiMo-V2: windows between full layers, values shorter than keys, and other heads where a window is."""
    view = model.view
    words = model.numbered_words("hybrid_layer_pattern", ("full_attention", "sliding_attention"))
    if words is None:
        words = model.layer_words(
            "layer_types",
            default=lambda index: "full_attention" if index == 0 or (index + 1) % 6 == 0 else "sliding_attention",
            known=ATTENTION_WORDS,
        )
    changes: dict[str, object] = {}
    if (before := view.find_count("sliding_window_size")) is not None:
        changes["sliding_window"] = before + 1  # as published, it counts the tokens before the current one
    for key in ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim"):
        if (count := view.find_count(f"swa_{key}")) is not None:
            changes[key] = count
    if "num_key_value_heads" not in changes:  # transformers leaves it out when it saves a config
        changes["num_key_value_heads"] = 2 * view.count("num_key_value_heads")
    windowed = view.overlaid(ConfigView(changes, source=view.source))
    specs = {
        "full_attention": attention_spec(model, _mimo_heads(model, view), "full_attention"),
        "sliding_attention": attention_spec(model, _mimo_heads(model, windowed), "sliding_attention", windowed),
    }
    return {f"layers.{index}.attn": specs[word] for index, word in enumerate(words)}


def read_minimax_m3(model: Model) -> Layers:
    """MiniMax M3: full layers, and sparse ones, whose indexer keeps a key per token beside."""
    sparse = model.view.find_part("sparse_attention_config") or ConfigView({}, source=model.view.source)
    has_indexer = model.layer_counts("sparse_attention_freq", sparse) or (0,) * model.num_layers
    words = model.layer_words(
        "layer_types",
        default=lambda index: _M3_SPARSE if has_indexer[index] else "full_attention",
        known=frozenset({"full_attention", _M3_SPARSE}),
    )
    attention = attention_spec(model, read_heads(model), "full_attention")
    key_size = sparse.find_count("sparse_index_dim") or model.view.count("index_head_dim")
    key = MLAAttentionSpec(block_size=model.target.block_size, head_size=key_size, dtype=model.target.model_dtype)
    layers: Layers = {}
    for index, word in enumerate(words):
        layers[f"layers.{index}.attn"] = attention
        if word == _M3_SPARSE:
            layers[f"layers.{index}.indexer"] = key
    return layers


def _mimo_heads(model: Model, view: ConfigView) -> Heads:
    return replace(read_heads(model, view), head_size_v=view.find_count("v_head_dim"))
