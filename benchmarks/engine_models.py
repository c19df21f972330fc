"""Seeded models of about 30M parameters, of three kinds: what the engine's benchmarks serve."""

import logging
from pathlib import Path
from typing import Any

import transformers

from octavo.engine import save_tiny_model

SHAPE: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 8192,
    "initializer_range": 0.02,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("qwen3", {}),
    "window + full": (
        "gemma3",
        {
            "sliding_window": 128,
            "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
            "query_pre_attn_scalar": 64,
        },
    ),
    "state + full": (
        "qwen3_5",
        {
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
            "linear_num_value_heads": 8,
            "linear_num_key_heads": 4,
            "linear_key_head_dim": 64,
            "linear_value_head_dim": 64,
        },
    ),
}
"""By the kinds of their layers: family, and what its config has beside the common shape."""


def save_model(kind: str, folder: Path, **overrides: Any) -> None:
    """A folder with a model of this kind. Hugging Face is silent from now on."""
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    family, own = KINDS[kind]
    save_tiny_model(family, folder, **{**SHAPE, **own, **overrides})
