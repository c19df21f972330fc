"""Families with an encoder: their decoder caches its own tokens, and the encoder's output."""

from octavo.planning.models.attention import Heads, attention_spec, kv_heads_per_rank
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.specs import CrossAttentionSpec


def read_whisper(model: Model) -> Layers:
    """Whisper: each decoder layer attends to the text so far, and to the audio. The encoder keeps nothing."""
    view = model.view
    num_layers = model.checked_num_layers("decoder_layers", view.count("decoder_layers"))
    num_heads = view.count("decoder_attention_heads")
    width = view.count("d_model")
    if width % num_heads:
        raise view.problem("d_model", f"= {width} is not a multiple of decoder_attention_heads = {num_heads}")
    heads = Heads(num_kv_heads=kv_heads_per_rank(model, num_heads, num_heads), head_size=width // num_heads)
    own = attention_spec(model, heads, "full_attention")
    cross = CrossAttentionSpec(
        block_size=own.block_size, dtype=own.dtype, num_kv_heads=own.num_kv_heads, head_size=own.head_size
    )
    layers: Layers = {}
    for index in range(num_layers):
        layers[f"layers.{index}.attn"] = own
        layers[f"layers.{index}.cross_attn"] = cross
    return layers


def max_encoder_tokens(model: Model, layers: Layers) -> int:
    """The most encoder tokens of one request; 0 where no layer looks at an encoder."""
    if any(isinstance(spec, CrossAttentionSpec) for spec in layers.values()):
        return model.view.count("max_source_positions")
    return 0
