"""The output of a model's reader: every layer's spec, in model order."""

from dataclasses import dataclass

from octavo.specs import KVCacheSpec

MAX_LAYERS = 10_000
"""The most layers that a model may declare; ten times what any published model has."""

Layers = dict[str, KVCacheSpec]
"""`"layers.0.attn"` -> spec. A layer that keeps two things has two entries, one that keeps nothing has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLayers:
    """The layers of one model as one rank holds them."""

    architecture: str
    layers: Layers
    max_model_len: int | None
    max_encoder_tokens: int
    has_mamba2_state: bool = False
    """Whether its recurrent layers are Mamba 2, whose kernels can write a checkpoint within a prefill."""
    weight_bytes: int | None = None
    """The weights of all ranks together; None if neither the files nor the config tell."""
    notes: tuple[str, ...] = ()
    """Guesses and defaults, one plain sentence each."""
