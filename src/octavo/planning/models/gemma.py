"""Gemma 3n and 4: layers that share what others cached, and layers whose heads differ."""

from octavo.planning.models.attention import ATTENTION_WORDS, attention_layers, attention_spec, read_heads
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers


def read_gemma3n(model: Model) -> Layers:
    """Gemma 3n: every fifth layer is full; the last layers read what earlier ones of their type cached."""
    words = _words(model, interval=5)
    return attention_layers(model, words[: _num_owners(model, words)])


def read_gemma4(model: Model) -> Layers:
    """Gemma 4: full layers have heads of another size and number than those with a window."""
    words = _words(model, interval=6)
    words = (*words[:-1], "full_attention")  # transformers forces the last one
    overrides = _overrides(model, words)
    return {
        f"layers.{index}.attn": attention_spec(model, read_heads(model, overrides.get(index)), word)
        for index, word in enumerate(words[: _num_owners(model, words)])
    }


def _words(model: Model, *, interval: int) -> tuple[str, ...]:
    return model.layer_words(
        "layer_types",
        default=lambda index: "sliding_attention" if (index + 1) % interval else "full_attention",
        known=ATTENTION_WORDS,
    )


def _num_owners(model: Model, words: tuple[str, ...]) -> int:
    """The number of layers with a cache of their own; the others share those."""
    num_shared = model.view.count("num_kv_shared_layers", minimum=0)
    num_owners = len(words) - num_shared
    if num_owners < 1 or not set(words[num_owners:]) <= set(words[:num_owners]):
        raise model.view.problem(
            "num_kv_shared_layers", f"= {num_shared} of {len(words)} layers: some have no earlier layer to share with"
        )
    return num_owners


def _overrides(model: Model, words: tuple[str, ...]) -> dict[int, ConfigView]:
    """For each layer with heads of its own, the view through which it is read."""
    view = model.view
    written = view.find_part("per_layer_config")
    if written is not None:  # transformers 5 saves it, with keys such as "05"
        keys = {key.lstrip("0") or "0": key for key in written.values if isinstance(key, str)}
        parts = {index: written.find_part(keys[str(index)]) for index in range(len(words)) if str(index) in keys}
        return {index: view.overlaid(part) for index, part in parts.items() if part is not None}
    changes: dict[str, object] = {"head_dim": view.find_count("global_head_dim") or view.find_count("head_dim")}
    num_kv_heads = view.find_count("num_global_key_value_heads") if view.flag("attention_k_eq_v") else None
    if num_kv_heads is not None:
        changes["num_key_value_heads"] = num_kv_heads
    global_view = view.overlaid(ConfigView(changes, source=view.source))
    return {index: global_view for index, word in enumerate(words) if word == "full_attention"}
