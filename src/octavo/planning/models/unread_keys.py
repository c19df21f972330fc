"""Keys that no reader looked at and that may change what layers keep: a config that has one is refused."""

from collections.abc import Iterable

from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.settings import shown
from octavo.specs import AttentionSpec

_INTERVALS = ("pattern", "interval", "every_n")
"""Parts of key names that tell which layers differ. A list of all layers' types says the same."""
_DIFFERENCES = ("swa", "chunk", "hybrid")
"""Parts of key names that tell how they differ."""
_OTHER_HEADS = ("attention_group", "key_value", "kv", "multi_query", "query_group")
"""In an unknown family: key-value heads under another name than the usual one."""
_OTHER_LAYERS = ("layer_group", "lightning", "linear_att", "loop", "share_kv", "use_cla", "ut_steps")
"""In an unknown family: layers of other kinds, layers that share a cache, or that run twice."""
_HEAD_SIZES = ("head_dim", "head_size", "kv_channels")
_OTHER_THINGS = (
    "activation_sparsity",
    "architectures",
    "audio",
    "bias",
    "chunk_input",
    "chunk_size_feed_forward",
    "expert",
    "image",
    "kv_cache",
    "mlp",
    "moe",
    "mtp",
    "qkv",
    "rope",
    "token",
    "vision",
)
_SCANS = frozenset({"chunk_size", "mamba_chunk_size"})
"""Chunks of a recurrent layer's scan, which are not cached."""
_LISTS_OF_LAYERS = ("attn_type_list", "hybrid_layer_pattern", "layer_types", "layers_block_type")


def refuse_unread_keys(model: Model, layers: Layers, *, is_known: bool) -> None:
    """Raises UnknownArchitectureError for the first such keys. The reader of a known family may use a list of all
    layers instead, and knows the names of heads."""
    if is_known and any(model.view.has(key) for key in _LISTS_OF_LAYERS):
        return
    odd = _odd_layouts(model) if is_known else {*_odd_layouts_of_unknown(model), *_odd_heads(model, layers)}
    if odd:
        listed = ", ".join(f"{key} = {shown(model.view.values[key])}" for key in sorted(odd))
        raise model.unknown(f"no reader knows {listed}, which may say what layers keep")


def _odd_layouts(model: Model) -> set[str]:
    return {key for key, _ in _unread(model) if key not in _SCANS and _has(key, (*_INTERVALS, *_DIFFERENCES))}


def _odd_layouts_of_unknown(model: Model) -> set[str]:
    signs = (*(() if model.view.has("layer_types") else _INTERVALS), *_DIFFERENCES, *_OTHER_LAYERS)
    return {
        key
        for key, value in _unread(model)
        if _has(key, signs)
        or (isinstance(value, list) and len(value) == model.num_layers)
        or (isinstance(value, dict) and _has(key, ("attn", "attention")))
    }


def _odd_heads(model: Model, layers: Layers) -> set[str]:
    """Keys that give the heads another number or size than was read. Of latents only one size counts, and it was."""
    sizes = [spec.head_size for spec in layers.values() if isinstance(spec, AttentionSpec)]
    is_latent = model.view.has("kv_lora_rank")
    odd = set()
    for key, value in _unread(model):
        if key.lower().endswith(_HEAD_SIZES):
            is_odd = not is_latent and value not in sizes
        else:
            is_odd = _has(key, _OTHER_HEADS) and value != model.view.values.get("num_key_value_heads")
        if is_odd:
            odd.add(key)
    return odd


def _unread(model: Model) -> Iterable[tuple[str, object]]:
    view = model.view
    for key, value in view.values.items():
        if value and isinstance(key, str) and key not in view.asked and not _has(key, _OTHER_THINGS):
            yield key, value


def _has(key: str, signs: Iterable[str]) -> bool:
    return any(sign in key.lower() for sign in signs)
