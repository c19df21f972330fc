"""The models of `octavo demo`, and the length of its document. Made without torch, so the demo can begin at once."""

from collections.abc import Mapping
from typing import Any

DOCUMENT_TOKENS = 3010
"""With this length a recurrent state is kept shortly before the end of each turn."""

_SHAPE: Mapping[str, Any] = {"hidden_size": 256, "intermediate_size": 1024, "max_position_embeddings": 8192}
_DELTA_HEADS = {"linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64}
_LATENTS = {"kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}

KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "full attention": ("llama", {**_SHAPE, "num_hidden_layers": 8}),
    "window + full": (
        "gemma3",
        {
            **_SHAPE,
            "num_hidden_layers": 12,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
            "sliding_window": 512,
            "head_dim": 64,
        },
    ),
    "state + full": (
        "qwen3_next",
        {
            **_SHAPE,
            **_DELTA_HEADS,
            "num_hidden_layers": 8,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
            "head_dim": 64,
            "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 512,
        },
    ),
    "latent": ("deepseek_v3", {**_SHAPE, **_LATENTS, "moe_intermediate_size": 256}),
    "sinks + window": ("gpt_oss", {**_SHAPE, "intermediate_size": 256, "head_dim": 32, "sliding_window": 256}),
}
"""By the kinds of its layers: a model's family, and sizes large enough for its prefill to take time."""
