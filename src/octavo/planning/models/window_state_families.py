"""Families that mix sliding windows with recurrent state: RecurrentGemma, PLaMo 2, Phi-4-flash, Zaya."""

from itertools import cycle, islice

from octavo.planning.models.attention import attention_spec, read_heads
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.planning.models.recurrent import jamba_state, mamba2_state, ssm_dtype
from octavo.specs import CacheDType, MambaSpec

_BLOCK_WORDS = {"recurrent": "recurrent", "attention": "sliding_attention"}
_ZAYA_WORDS = {"hybrid": "full_attention", "hybrid_sliding": "sliding_attention"}


def read_recurrent_gemma(model: Model) -> Layers:
    """RecurrentGemma: two gated linear recurrences to one window, or as `block_types` repeats."""
    view = model.view
    blocks = view.find_words("block_types")
    if not blocks:
        raise view.problem("block_types", "is missing or empty: what are the layers?")
    words = model.checked_words(
        "block_types",
        tuple(_BLOCK_WORDS.get(word, word) for word in islice(cycle(blocks), model.num_layers)),
        frozenset(_BLOCK_WORDS.values()),
    )
    width = model.per_rank(view.find_count("lru_width") or view.count("hidden_size"), "lru_width")
    state = MambaSpec(
        block_size=model.target.block_size,
        shapes=((view.count("conv1d_width", minimum=2) - 1, width), (width,)),
        dtypes=(model.target.model_dtype, ssm_dtype(model, CacheDType.FLOAT32)),
    )
    return _layers(model, words, state, {"sliding_window": view.count("attention_window_size")})


def read_zaya(model: Model) -> Layers:
    """Zaya: attention in every layer, whose queries and keys are convolved, and half of whose values come one token
    late."""
    view, heads = model.view, read_heads(model)
    words = model.layer_words("layer_types", default=lambda _: "hybrid", known=_ZAYA_WORDS.keys())
    num_heads = model.per_rank(view.count("num_attention_heads"), "num_attention_heads") + heads.num_kv_heads
    reach = view.count("cca_time0") + view.count("cca_time1") - 2
    state = MambaSpec(
        block_size=model.target.block_size,
        shapes=((reach, num_heads * heads.head_size), (heads.num_kv_heads * heads.head_size // 2,)),
        dtypes=(model.target.model_dtype,) * 2,
    )
    layers: Layers = {}
    for index, word in enumerate(words):
        layers[f"layers.{index}.attn"] = attention_spec(model, heads, _ZAYA_WORDS[word])
        layers[f"layers.{index}.conv"] = state
    return layers


def read_plamo2(model: Model) -> Layers:
    """PLaMo 2: Mamba 2, with attention once in every `mamba_step` layers, mostly to a window."""
    view = model.view
    step, full = view.count("mamba_step", minimum=2), view.find_counts("full_attention_idx") or ()
    has_state = view.flag("mamba_enabled")

    def word(index: int) -> str:
        if has_state and index % step != step // 2:
            return "recurrent"
        return "full_attention" if index in full else "sliding_attention"

    num_heads, head_size = view.count("mamba_num_heads"), view.count("hidden_size_per_head")
    state = mamba2_state(
        model,
        intermediate_size=num_heads * head_size,
        num_heads=num_heads,
        head_size=head_size,
        num_groups=1,
        state_size=view.count("mamba_d_state"),
        conv_kernel=view.count("mamba_d_conv", minimum=2),
        convolves_groups=False,
    )
    changes: dict[str, object] = {"head_dim": head_size, "sliding_window": view.count("attention_window_size")}
    return _layers(model, tuple(word(index) for index in range(model.num_layers)), state, changes)


def read_phi4_flash(model: Model) -> Layers:
    """Phi-4-flash: Mamba and windows in turn, then one full layer, whose cache and state the second half shares."""
    view = model.view
    half, step = model.num_layers // 2, view.count("mb_per_layer", minimum=2)
    windows = view.values.get("sliding_window")
    if isinstance(windows, list):  # one for each layer, null where there is none
        given = [window for window in windows if isinstance(window, int) and not isinstance(window, bool)]
        view = view.overlaid(ConfigView({"sliding_window": given[0] if given else None}, source=view.source))

    def word(index: int) -> str:
        if index % step == 0:
            return "recurrent"
        return "sliding_attention" if index < half else "full_attention"

    state = jamba_state(model)
    owners = tuple(word(index) for index in range(min(half + 2, model.num_layers)))
    return _layers(model, owners, state, {"sliding_window": view.count("sliding_window")})


def _layers(model: Model, words: tuple[str, ...], state: MambaSpec, changes: dict[str, object]) -> Layers:
    view = model.view.overlaid(ConfigView(changes, source=model.view.source))
    heads = read_heads(model, view)
    specs = {word: attention_spec(model, heads, word, view) for word in set(words) - {"recurrent"}}
    return {
        f"layers.{index}.{'mamba' if word == 'recurrent' else 'attn'}": specs.get(word, state)
        for index, word in enumerate(words)
    }
