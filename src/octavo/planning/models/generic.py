"""An architecture that no family knows is guessed from the usual keys, or refused."""

from octavo.planning.models.attention_families import full_every, read_full, read_windowed
from octavo.planning.models.latent import read_latent
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers

_USUAL_KEYS = ("num_hidden_layers", "num_attention_heads")
_UNGUESSABLE_KEYS = (
    "attn_layer_indices",
    "attn_type_list",
    "block_types",
    "compress_ratios",
    "conv_L_cache",
    "cross_attention_layers",
    "decoder_layers",
    "encoder_layers",
    "hybrid_override_pattern",
    "index_head_dim",
    "layers_block_type",
    "linear_attn_config",
    "linear_num_key_heads",
    "mamba_d_state",
    "num_kv_shared_layers",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
)
"""Signs of layers that keep something other than a key and a value for each token."""
_UNGUESSABLE_NAMES = (
    *("delta", "griffin", "hybrid", "hyena", "linear", "lightning", "lstm", "mamba", "retnet", "rwkv"),
    "bert",
)
"""Names of such layers, which are also those of the models that have them; and that of encoders, which keep nothing."""


def read_unknown(model: Model) -> Layers:
    """Reads attention from the usual keys. A note names them."""
    view = model.view
    odd = [key for key in _UNGUESSABLE_KEYS if view.has(key)]
    if view.flag("is_encoder_decoder"):
        odd.append("is_encoder_decoder")
    if odd:
        raise model.unknown(f"unknown architecture, and {', '.join(odd)} cannot be guessed at")
    names = f"{model.architecture} {view.find_word('model_type')}".lower()
    if named := [name for name in _UNGUESSABLE_NAMES if name in names]:
        raise model.unknown(f"unknown architecture, and what layers of a model called {named[0]} keep is no guess")
    missing = [key for key in _USUAL_KEYS if not view.has(key)]
    if missing or not (view.has("head_dim") or view.has("hidden_size") or view.has("kv_lora_rank")):
        lacking = ", ".join(missing) or "head_dim or hidden_size"
        raise model.unknown(f"unknown architecture, and the config lacks {lacking} to guess from")
    layers, what, keys = _guess(model)
    used = [key for key in (*_USUAL_KEYS, *keys) if view.has(key)]
    model.notes.append(
        f"Unknown architecture {model.architecture}: read as {what} from {', '.join(used)}; "
        "if that is wrong, describe the layers yourself: octavo plan --layers spec.yaml."
    )
    return layers


def _guess(model: Model) -> tuple[Layers, str, tuple[str, ...]]:
    view, heads = model.view, ("num_key_value_heads", "head_dim", "hidden_size")
    if view.has("kv_lora_rank"):
        return read_latent(model), "latent attention", ("kv_lora_rank", "qk_rope_head_dim")
    if view.has("layer_types"):
        return read_full(model), "attention with the layer types given", ("layer_types", *heads, "sliding_window")
    is_off = view.has("use_sliding_window") and not view.flag("use_sliding_window")
    if not view.has("sliding_window") or is_off:
        return read_full(model), "full attention", heads
    keys = ("sliding_window", "sliding_window_pattern", *heads)
    if view.has("sliding_window_pattern"):
        read = full_every(view.count("sliding_window_pattern"))
        return read(model), "sliding windows with full attention at intervals", keys
    return read_windowed(model), "a sliding window in every layer", keys
