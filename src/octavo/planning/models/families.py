"""The table of families: model_type -> reader, and the defaults that transformers' class would fill in.

Only those defaults stand here that published configs are known to leave out. Sizes that every config has
(num_hidden_layers, hidden_size) have none: a file without them is damaged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo.planning.models.attention_families import (
    full_every,
    read_full,
    read_llama4,
    read_mimo_v2,
    read_minimax_m3,
    read_multi_query,
    read_qwen,
    read_qwen_moe,
    read_windowed,
)
from octavo.planning.models.compressed import read_deepseek_v4, read_deepseek_v41
from octavo.planning.models.delta_families import (
    read_kimi_linear,
    read_ling,
    read_minimax,
    read_minimax_m2,
    read_olmo_hybrid,
    read_qwen_delta,
)
from octavo.planning.models.encoder_decoder import read_whisper
from octavo.planning.models.gemma import read_gemma3n, read_gemma4
from octavo.planning.models.latent import read_indexed_latent, read_latent, read_longcat, read_mistral_large4
from octavo.planning.models.mamba_families import (
    read_bamba,
    read_falcon_h1,
    read_jamba,
    read_lfm2,
    read_lfm3,
    read_mamba1,
    read_mamba2,
    read_nemotron_h,
    read_zamba2,
)
from octavo.planning.models.model import Reader
from octavo.planning.models.pooled_keys import read_glm5_next, read_qwen4_exp
from octavo.planning.models.window_state_families import read_phi4_flash, read_plamo2, read_recurrent_gemma, read_zaya


@dataclass(frozen=True, slots=True)
class Family:
    """How configs of one model_type are read."""

    read: Reader
    defaults: Mapping[str, object] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Keys that it spells in its own way, by the usual ones."""
    has_mamba2_state: bool = False


def find_family(model_type: str) -> Family | None:
    """The family of a model_type; that of a text part (`gemma3_text`) is its model's."""
    return FAMILIES.get(model_type.removesuffix("_text"))


_QWEN_WINDOW = {"sliding_window": 4096, "max_window_layers": 28}
_QWEN3 = Family(read_qwen, {"head_dim": 128, "num_key_value_heads": 32, **_QWEN_WINDOW})
_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
_COMPRESSED = {"head_dim": 512, "index_head_dim": 128, "sliding_window": 128}
_INDEXED = Family(read_indexed_latent, {**_LATENT, "index_head_dim": 128})
_GATED_DELTA = {
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_BAMBA = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
_GEMMA = {"num_attention_heads": 8, "head_dim": 256}
_GEMMA3 = Family(
    full_every(6), {**_GEMMA, "num_key_value_heads": 4, "sliding_window": 4096, "max_position_embeddings": 131072}
)
_GEMMA4 = Family(
    read_gemma4,
    {
        **_GEMMA,
        "num_key_value_heads": 4,
        "sliding_window": 512,
        "global_head_dim": 512,
        "num_kv_shared_layers": 0,
        "max_position_embeddings": 131072,
    },
)

_MIMO = {"head_dim": 192, "v_head_dim": 128, "num_key_value_heads": 4, "sliding_window": 129}
_MINIMAX_M3 = Family(read_minimax_m3, {"head_dim": 128, "num_key_value_heads": 4, "index_head_dim": 128})
_MINIMAX = Family(read_minimax, {"num_key_value_heads": 8})

_GPT = {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd"}
_MPT = {"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "hidden_size": "d_model"}

FAMILIES: Mapping[str, Family] = {
    # Attention in every layer
    "gpt2": Family(read_full, names=_GPT),
    "gptj": Family(read_full, names=_GPT),
    "codegen": Family(read_full, names=_GPT),
    "gpt_bigcode": Family(read_multi_query, {"multi_query": True}, names=_GPT),
    "bloom": Family(read_full, names=_GPT),
    "mpt": Family(read_full, names=_MPT),
    "falcon": Family(read_multi_query, {"multi_query": True}, names={"num_key_value_heads": "num_kv_heads"}),
    "llama": Family(read_full),
    "granite": Family(read_full),
    "olmo2": Family(read_full),
    "gemma": Family(read_full, {"head_dim": 256, "num_key_value_heads": 16}),
    "glm4_moe": Family(read_full, {"num_key_value_heads": 8}),
    "qwen3_vl": Family(read_full, {"head_dim": 128, "num_key_value_heads": 32}),
    "qwen3_vl_moe": Family(read_full, {"num_key_value_heads": 16}),
    "mistral": Family(read_windowed, {"num_key_value_heads": 8, "sliding_window": 4096}),
    "mixtral": Family(read_windowed, {"num_key_value_heads": 8}),
    "phi3": Family(read_windowed),
    "qwen2": Family(read_qwen, {"num_key_value_heads": 32, **_QWEN_WINDOW}),
    "qwen2_vl": Family(read_qwen, {"num_key_value_heads": 8, **_QWEN_WINDOW}),
    "qwen2_5_vl": Family(read_qwen, {"num_key_value_heads": 8, **_QWEN_WINDOW}),
    "qwen3": _QWEN3,
    "qwen3_moe": Family(read_qwen_moe, {"num_key_value_heads": 4, "sliding_window": 4096}),
    # Windows or chunks between full layers
    "gemma2": Family(full_every(2), {**_GEMMA, "num_key_value_heads": 4, "sliding_window": 4096}),
    "gemma3": _GEMMA3,
    "gemma3n": Family(
        read_gemma3n, {**_GEMMA, "num_key_value_heads": 2, "sliding_window": 512, "num_kv_shared_layers": 15}
    ),
    "gemma4": _GEMMA4,
    "gemma4_unified": Family(
        read_gemma4, {**_GEMMA4.defaults, "sliding_window": 1024, "max_position_embeddings": 262144}
    ),
    "cohere2": Family(full_every(4), {"sliding_window": 4096}),
    "olmo3": Family(full_every(4), {"sliding_window": 4096}),
    "gpt_oss": Family(full_every(2), {"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128}),
    "llama4": Family(
        read_llama4,
        {"head_dim": 128, "num_key_value_heads": 8, "attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    ),
    "laguna": Family(read_full, {"head_dim": 128, "num_key_value_heads": 8, "sliding_window": 512}),
    "mimo_v2": Family(read_mimo_v2, _MIMO),
    "mimo_v2_flash": Family(read_mimo_v2, _MIMO),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl": _MINIMAX_M3,
    # Latents
    "deepseek_v2": Family(read_latent, _LATENT),
    "deepseek_v3": Family(read_latent, _LATENT),
    "kimi_k2": Family(read_latent, _LATENT),
    "deepseek_v32": _INDEXED,
    "glm_moe_dsa": _INDEXED,
    "hy_v4": Family(read_indexed_latent, {**_INDEXED.defaults, "index_topk_freq": 4}),
    "mistral_large4": Family(read_mistral_large4, {**_INDEXED.defaults, "no_rope_layer_interval": 4}),
    "longcat_flash": Family(read_longcat, _LATENT),
    "axk2": Family(read_indexed_latent, {"kv_lora_rank": 128, "qk_rope_head_dim": 32, "index_head_dim": 128}),
    "deepseek_v4": Family(read_deepseek_v4, _COMPRESSED),
    "deepseek_v41": Family(read_deepseek_v41, _COMPRESSED),
    # Recurrent state
    "mamba": Family(read_mamba1, {"expand": 2, "state_size": 16, "conv_kernel": 4}),
    "falcon_mamba": Family(read_mamba1, {"expand": 2, "state_size": 16, "conv_kernel": 4}),
    "mamba2": Family(
        read_mamba2,
        {"num_heads": 128, "head_dim": 64, "state_size": 128, "expand": 2, "conv_kernel": 4, "n_groups": 8},
        has_mamba2_state=True,
    ),
    # Recurrent state and attention
    "qwen3_next": Family(read_qwen_delta, {**_GATED_DELTA, "num_key_value_heads": 2}),
    "qwen3_5": Family(read_qwen_delta, {**_GATED_DELTA, "num_key_value_heads": 4}),
    "qwen3_5_moe": Family(read_qwen_delta, {**_GATED_DELTA, "num_key_value_heads": 2}),
    "olmo_hybrid": Family(read_olmo_hybrid, {"linear_conv_kernel_dim": 4}),
    "kimi_linear": Family(
        read_kimi_linear,
        {**_LATENT, "linear_head_dim": 128, "linear_num_heads": 32, "linear_conv_kernel_dim": 4},
    ),
    "glm5_next": Family(
        read_glm5_next,
        {
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 0,
            "index_head_dim": 128,
            "index_kpool": 16,
            "linear_head_dim": 128,
            "linear_num_heads": 64,
            "linear_conv_kernel_dim": 4,
        },
    ),
    "qwen4_exp": Family(
        read_qwen4_exp,
        {
            **_GATED_DELTA,
            "num_key_value_heads": 2,
            "ple_conv_kernel_size": 4,
            "ngram_size": 3,
            "hc_count": 4,
        },
    ),
    "jamba": Family(
        read_jamba,
        {
            "num_key_value_heads": 8,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
        },
    ),
    "bamba": Family(read_bamba, {**_BAMBA, "num_key_value_heads": 8}, has_mamba2_state=True),
    "granitemoehybrid": Family(read_bamba, _BAMBA, has_mamba2_state=True),
    "falcon_h1": Family(
        read_falcon_h1, {**_BAMBA, "num_key_value_heads": 8, "mamba_d_ssm": 1024}, has_mamba2_state=True
    ),
    "zamba2": Family(
        read_zamba2,
        {"mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8},
        has_mamba2_state=True,
    ),
    "nemotron_h": Family(
        read_nemotron_h,
        {
            "num_key_value_heads": 8,
            "head_dim": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
        },
        has_mamba2_state=True,
    ),
    "lfm2": Family(read_lfm2, {"num_key_value_heads": 8, "conv_L_cache": 3}),
    "lfm2_moe": Family(read_lfm2, {"num_key_value_heads": 8, "conv_L_cache": 3}),
    "lfm3": Family(
        read_lfm3,
        {"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 256, "conv_L_cache": 7},
    ),
    "bailing_hybrid": Family(read_ling),
    "bailing_moe_linear": Family(read_ling),
    "minimax": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minimax_m2": Family(read_minimax_m2, {"num_key_value_heads": 8, "head_dim": 128}),
    "recurrent_gemma": Family(
        read_recurrent_gemma,
        {
            "num_attention_heads": 10,
            "attention_window_size": 2048,
            "conv1d_width": 4,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
    ),
    "plamo2": Family(
        read_plamo2,
        {
            "hidden_size_per_head": 128,
            "attention_window_size": 2048,
            "mamba_d_state": 64,
            "mamba_d_conv": 4,
            "mamba_num_heads": 64,
            "mamba_step": 2,
            "mamba_enabled": True,
        },
        has_mamba2_state=True,
    ),
    "phi4flash": Family(
        read_phi4_flash,
        {
            "num_key_value_heads": 4,
            "sliding_window": 2047,
            "mb_per_layer": 2,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
        },
    ),
    "zaya": Family(read_zaya, {"num_key_value_heads": 2, "cca_time0": 2, "cca_time1": 2}),
    # An encoder beside the decoder
    "whisper": Family(read_whisper, {"max_source_positions": 1500}),
}
