"""Families with Mamba or short-convolution layers, alone or beside attention."""

from collections.abc import Mapping

from octavo.planning.models.attention import attention_spec, read_heads
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.planning.models.recurrent import jamba_state, mamba1_state, mamba2_state, short_conv_state
from octavo.specs import CacheDType, KVCacheSpec, MambaSpec

_WORDS = frozenset({"full_attention", "linear_attention"})


def read_mamba1(model: Model) -> Layers:
    """Mamba: a state in every layer, no attention."""
    view = model.view
    state = mamba1_state(
        model,
        intermediate_size=view.find_count("intermediate_size") or view.count("expand") * view.count("hidden_size"),
        state_size=view.count("state_size"),
        conv_kernel=view.count("conv_kernel", minimum=2),
    )
    return {f"layers.{index}.mamba": state for index in range(model.num_layers)}


def read_mamba2(model: Model) -> Layers:
    """Mamba 2: a state in every layer, no attention."""
    view = model.view
    state = mamba2_state(
        model,
        intermediate_size=view.count("expand") * view.count("hidden_size"),
        num_heads=view.count("num_heads"),
        head_size=view.count("head_dim"),
        num_groups=view.count("n_groups"),
        state_size=view.count("state_size"),
        conv_kernel=view.count("conv_kernel", minimum=2),
    )
    return {f"layers.{index}.mamba": state for index in range(model.num_layers)}


def read_jamba(model: Model) -> Layers:
    """Jamba: Mamba 1, with attention once in every `attn_layer_period` layers."""
    view = model.view
    period, offset = view.count("attn_layer_period"), view.count("attn_layer_offset", minimum=0)
    if offset >= period:
        raise view.problem("attn_layer_offset", f"= {offset} must be smaller than attn_layer_period = {period}")
    state = jamba_state(model)
    words = tuple(
        "full_attention" if index % period == offset else "linear_attention" for index in range(model.num_layers)
    )
    return _layers(model, words, state)


def read_bamba(model: Model) -> Layers:
    """Bamba and Granite 4: Mamba 2, with attention in the layers that the config lists."""
    attention = frozenset(model.view.find_counts("attn_layer_indices") or ())
    if any(index >= model.num_layers for index in attention):
        raise model.view.problem("attn_layer_indices", f"names a layer beyond num_hidden_layers = {model.num_layers}")
    words = model.layer_words(
        *(() if attention else ("layer_types", "layers_block_type")),
        default=lambda index: "full_attention" if index in attention else "linear_attention",
        known=_WORDS,
    )
    return _layers(model, words, _bamba_state(model))


def read_falcon_h1(model: Model) -> Layers:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    return _layers(model, ("hybrid",) * model.num_layers, _bamba_state(model))


def read_zamba2(model: Model) -> Layers:
    """Zamba 2: Mamba 2 in every layer, and before some a shared attention block, whose heads are twice as large.

    The block's weights are shared, its cache at each layer is not.
    """
    view = model.view
    words = view.find_words("layers_block_type") or view.find_words("layer_types")
    if words is None:
        raise view.problem("layers_block_type", "is missing, and nothing else says which layers have attention")
    words = model.checked_words("layers_block_type", words, {"hybrid", "linear_attention"})
    num_heads, hidden_size = view.count("n_mamba_heads"), view.count("hidden_size")
    intermediate_size = view.count("mamba_expand") * hidden_size
    state = mamba2_state(
        model,
        intermediate_size=intermediate_size,
        num_heads=num_heads,
        head_size=_quotient(view, "n_mamba_heads", intermediate_size, num_heads),
        num_groups=view.count("mamba_ngroups"),
        state_size=view.count("mamba_d_state"),
        conv_kernel=view.count("mamba_d_conv", minimum=2),
    )
    head_size = view.find_count("attention_head_dim") or 2 * hidden_size // view.count("num_attention_heads")
    return _layers(model, words, state, {"head_dim": head_size})


def read_nemotron_h(model: Model) -> Layers:
    """Nemotron-H: each layer is Mamba 2, attention or a feed-forward block, which keeps nothing."""
    view = model.view
    words = _nemotron_words(model)
    num_heads, head_size = view.count("mamba_num_heads"), view.count("mamba_head_dim")
    state = mamba2_state(
        model,
        intermediate_size=num_heads * head_size,
        num_heads=num_heads,
        head_size=head_size,
        num_groups=view.count("mamba_n_groups", "n_groups"),
        state_size=view.count("ssm_state_size"),
        conv_kernel=view.count("mamba_d_conv", "conv_kernel", minimum=2),
        default_dtype=CacheDType.FLOAT32,
    )
    has_window = view.find_count("sliding_window") is not None
    changed = {"head_dim": view.find_count("attention_head_dim")} if view.has("attention_head_dim") else {}
    return _layers(model, words, state, changed, "sliding_attention" if has_window else "full_attention")


def read_lfm2(model: Model) -> Layers:
    """LFM 2: short convolutions, with attention in the layers that the config lists."""
    view = model.view
    full = view.find_counts("full_attn_idxs")
    words = model.layer_words(
        "layer_types",
        default=lambda index: "full_attention" if full is None or index in full else "conv",
        known={"full_attention", "conv"},
    )
    state = short_conv_state(
        model,
        channels=view.find_count("conv_dim") or view.count("hidden_size"),
        conv_kernel=view.count("conv_L_cache", minimum=2),
    )
    return _layers(model, words, state)


def read_lfm3(model: Model) -> Layers:
    """LFM 3: short convolutions, with full attention and windows in turn in every other layer."""
    words = model.layer_words("layer_types", default=_lfm3_word, known={"conv", "full_attention", "sliding_attention"})
    state = short_conv_state(
        model,
        channels=model.view.count("hidden_size"),
        conv_kernel=model.view.count("conv_L_cache", minimum=2),
    )
    return _layers(model, words, state)


def _lfm3_word(index: int) -> str:
    if index % 4 == 2:
        return "full_attention"
    return "sliding_attention" if index and index % 4 == 0 else "conv"


def _nemotron_words(model: Model) -> tuple[str, ...]:
    """A word per layer. Newer configs have no num_hidden_layers: the list says how many there are."""
    view = model.view
    key = next((k for k in ("layers_block_type", "layer_types") if view.has(k)), "hybrid_override_pattern")
    words = view.find_words(key) if key != "hybrid_override_pattern" else _pattern_words(model, key)
    if not words:
        raise view.problem(key, "is missing or empty, and so is layers_block_type: what are the layers?")
    known = {"full_attention", "linear_attention", "moe", "mlp"}
    return model.checked_words(key, words, known, num_layers=view.find_count("num_hidden_layers") or len(words))


def _pattern_words(model: Model, key: str) -> tuple[str, ...]:
    letters = {"M": "linear_attention", "*": "full_attention", "E": "moe", "-": "mlp"}
    pattern = model.view.find_pattern(key) or ""
    for index, letter in enumerate(pattern):
        if letter not in letters:
            raise model.unknown(f"{key}[{index}] = {letter!r} is none of M, *, E and -")
    return tuple(letters[letter] for letter in pattern)


def _bamba_state(model: Model) -> MambaSpec:
    view = model.view
    num_heads = view.count("mamba_n_heads")
    intermediate_size = view.find_count("mamba_d_ssm") or view.count("mamba_expand") * view.count("hidden_size")
    if view.values.get("mamba_d_head") in (None, "auto"):
        head_size = _quotient(view, "mamba_n_heads", intermediate_size, num_heads)
    else:
        head_size = view.count("mamba_d_head")
    return mamba2_state(
        model,
        intermediate_size=intermediate_size,
        num_heads=num_heads,
        head_size=head_size,
        num_groups=view.count("mamba_n_groups"),
        state_size=view.count("mamba_d_state"),
        conv_kernel=view.count("mamba_d_conv", minimum=2),
    )


def _quotient(view: ConfigView, key: str, total: int, parts: int) -> int:
    if total % parts:
        raise view.problem(key, f"= {parts} does not divide the SSM's intermediate size, {total}")
    return total // parts


def _layers(
    model: Model,
    words: tuple[str, ...],
    state: MambaSpec,
    head_changes: Mapping[str, object] | None = None,
    attention_word: str = "full_attention",
) -> Layers:
    """One entry for attention, one for the state, both for a hybrid layer, none for a feed-forward block."""
    looks = {"full_attention": attention_word, "hybrid": attention_word, "sliding_attention": "sliding_attention"}
    attention: dict[str, KVCacheSpec] = {}
    if not looks.keys().isdisjoint(words):
        view = model.view.overlaid(ConfigView(head_changes or {}, source=model.view.source))
        heads = read_heads(model, view)
        attention = {word: attention_spec(model, heads, looks[word]) for word in looks.keys() & set(words)}
    layers: Layers = {}
    for index, word in enumerate(words):
        if word in attention:
            layers[f"layers.{index}.attn"] = attention[word]
        if word in ("linear_attention", "hybrid"):
            layers[f"layers.{index}.mamba"] = state
        elif word == "conv":
            layers[f"layers.{index}.conv"] = state
    return layers
