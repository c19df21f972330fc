"""Families that mix attention with linear attention: Qwen3-Next, Qwen3.5, OLMo-hybrid, Kimi-Linear, MiniMax, Ling."""

from collections.abc import Callable

from octavo.planning.models.attention import attention_spec, read_heads
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.latent import latent_spec
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.planning.models.recurrent import gated_delta_state, lightning_state
from octavo.specs import KVCacheSpec, MambaSpec

_WORDS = frozenset({"full_attention", "linear_attention"})


def read_qwen_delta(model: Model) -> Layers:
    """Qwen3-Next and Qwen3.5: every `full_attention_interval`-th layer is attention."""
    interval = model.view.count("full_attention_interval")
    words = model.layer_words(
        "layer_types",
        default=lambda index: "linear_attention" if (index + 1) % interval else "full_attention",
        known=_WORDS,
    )
    state = qwen_state(model)
    return _mixed(words, attention_spec(model, read_heads(model), "full_attention"), state)


def read_olmo_hybrid(model: Model) -> Layers:
    """OLMo-hybrid: as many delta heads as attention heads, and values twice as long as keys, unless given."""
    words = model.layer_words(
        "layer_types",
        default=lambda index: "full_attention" if index % 4 == 3 else "linear_attention",
        known=_WORDS,
    )
    if "full_attention" not in words:
        words = (*words[:-1], "full_attention")
    view = model.view
    num_k_heads = view.find_count("linear_num_key_heads") or view.count("num_attention_heads")
    k_head_size = view.find_count("linear_key_head_dim") or view.count("hidden_size") * 3 // (4 * num_k_heads)
    state = gated_delta_state(
        model,
        num_k_heads=num_k_heads,
        num_v_heads=view.find_count("linear_num_value_heads") or view.count("num_attention_heads"),
        k_head_size=k_head_size,
        v_head_size=view.find_count("linear_value_head_dim") or 2 * k_head_size,
        conv_kernel=view.count("linear_conv_kernel_dim", minimum=2),
    )
    _note_state_dtype(model)
    return _mixed(words, attention_spec(model, read_heads(model), "full_attention"), state)


def read_kimi_linear(model: Model) -> Layers:
    """Kimi-Linear: Kimi delta attention, with latent attention in between."""
    own = kimi_sizes(model)
    full_layers = _kimi_full_layers(model, own)
    words = model.layer_words("layer_types", default=lambda index: _kimi_word(index, full_layers), known=_WORDS)
    return _mixed(words, latent_spec(model), kimi_state(model, own))


def read_ling(model: Model) -> Layers:
    """Ling and Ring with linear attention: the last layer of each group is attention, and so are those after the last
    whole group. Kimi delta attention has a convolution; lightning attention, which is older, has none."""
    view = model.view
    size, heads = view.count("layer_group_size"), read_heads(model)
    num_grouped = model.num_layers // size * size
    words = tuple(
        "full_attention" if (index + 1) % size == 0 or index >= num_grouped else "linear_attention"
        for index in range(model.num_layers)
    )
    attention = latent_spec(model) if view.has("kv_lora_rank") else attention_spec(model, heads, "full_attention")
    conv_kernel = view.find_count("short_conv_kernel_size", minimum=2)
    if conv_kernel is None:
        return _mixed(words, attention, lightning_state(model, heads.head_size))
    num_heads = view.count("num_attention_heads")
    state = gated_delta_state(
        model,
        num_k_heads=num_heads,
        num_v_heads=num_heads,
        k_head_size=heads.head_size,
        v_head_size=heads.head_size,
        conv_kernel=conv_kernel,
    )
    return _mixed(words, attention, state)


def read_minimax(model: Model) -> Layers:
    """MiniMax Text-01 and M1: lightning attention, whose state is a matrix per head, between full layers."""
    return _minimax_layers(model, lambda index: "linear_attention" if index % 2 else "full_attention")


def read_minimax_m2(model: Model) -> Layers:
    """MiniMax M2: full layers, unless `attn_type_list` says otherwise."""
    return _minimax_layers(model, lambda _: "full_attention")


def _minimax_layers(model: Model, default: Callable[[int], str]) -> Layers:
    words = model.numbered_words("attn_type_list", ("linear_attention", "full_attention"))
    if words is None:
        words = model.layer_words(
            "layer_types",
            default=default,
            known=_WORDS,
        )
    heads = read_heads(model)
    return _mixed(words, attention_spec(model, heads, "full_attention"), lightning_state(model, heads.head_size))


def qwen_state(model: Model) -> MambaSpec:
    view = model.view
    _note_state_dtype(model)
    return gated_delta_state(
        model,
        num_k_heads=view.count("linear_num_key_heads"),
        num_v_heads=view.count("linear_num_value_heads"),
        k_head_size=view.count("linear_key_head_dim"),
        v_head_size=view.count("linear_value_head_dim"),
        conv_kernel=view.count("linear_conv_kernel_dim", minimum=2),
    )


def kimi_sizes(model: Model) -> ConfigView:
    """The sizes of Kimi delta attention: in a part of their own where the published checkpoint wrote the config."""
    view = model.view
    nested = view.find_part("linear_attn_config")
    if nested is not None:
        return nested
    flat = {
        "num_heads": view.find_count("linear_num_heads"),
        "head_dim": view.find_count("linear_head_dim"),
        "short_conv_kernel_size": view.find_count("linear_conv_kernel_dim", minimum=2),
    }
    return ConfigView(flat, source=view.source, path="linear_")


def kimi_state(model: Model, own: ConfigView) -> MambaSpec:
    num_heads, head_size = own.count("num_heads"), own.count("head_dim")
    return gated_delta_state(
        model,
        num_k_heads=num_heads,
        num_v_heads=num_heads,
        k_head_size=head_size,
        v_head_size=head_size,
        conv_kernel=own.count("short_conv_kernel_size", minimum=2),
    )


def _kimi_full_layers(model: Model, own: ConfigView) -> tuple[int, ...] | None:
    """The layers with latents, counted from 1. The published code asks for the others, `kda_layers`."""
    delta, full = own.find_counts("kda_layers"), own.find_counts("full_attn_layers")
    if delta is None:
        return full
    others = tuple(number for number in range(1, model.num_layers + 1) if number not in delta)
    if full is not None and sorted(full) != list(others):
        raise own.problem("full_attn_layers", f"and kda_layers do not share layers 1 to {model.num_layers} out")
    return others


def _kimi_word(index: int, full_layers: tuple[int, ...] | None) -> str:
    is_full = index + 1 in full_layers if full_layers is not None else index > 0 and index % 4 == 0
    return "full_attention" if is_full else "linear_attention"


def _mixed(words: tuple[str, ...], attention: KVCacheSpec, state: MambaSpec) -> Layers:
    layers: Layers = {}
    for index, word in enumerate(words):
        if word == "full_attention":
            layers[f"layers.{index}.attn"] = attention
        else:
            layers[f"layers.{index}.linear_attn"] = state
    return layers


def _note_state_dtype(model: Model) -> None:
    if (
        model.target.state_dtype is None
        and not model.view.has("mamba_ssm_dtype")
        and not model.view.has("mamba_ssm_cache_dtype")
    ):
        model.notes.append(
            "The config does not name the type of the recurrent state: float32 is assumed, as transformers keeps it; "
            "vLLM on a GPU keeps it in the model's type unless --mamba-ssm-cache-dtype says otherwise."
        )
