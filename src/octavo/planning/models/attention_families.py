"""Families of attention only: which of their layers look how far."""

from octavo.planning.models.attention import ATTENTION_WORDS, attention_layers
from octavo.planning.models.model import Model, Reader
from octavo.planning.models.model_layers import Layers


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


def read_llama4(model: Model) -> Layers:
    """Llama 4: layers with rotary positions look at their chunk only, those without at everything."""
    interval = model.view.count("no_rope_layer_interval")
    uses_rope = model.view.find_counts("no_rope_layers") or ()  # 1 means RoPE, whatever the key's name says
    if uses_rope and len(uses_rope) != model.num_layers:
        raise model.view.problem("no_rope_layers", f"has {len(uses_rope)} entries for {model.num_layers} layers")

    def word(index: int) -> str:
        is_local = uses_rope[index] if uses_rope else (index + 1) % interval
        return "chunked_attention" if is_local else "full_attention"

    words = model.layer_words("layer_types", default=word, known=ATTENTION_WORDS)
    if model.view.find_count("attention_chunk_size") is None:
        words = ("full_attention",) * len(words)
    return attention_layers(model, words)
