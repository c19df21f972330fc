"""The families that a tiny model can be of, and what each sets in its config. Made without torch, so that a command can
name them at once.

Windows, chunks and chunked scans are short, so that prompts of a hundred tokens cross them.
"""

from collections.abc import Mapping
from typing import Any

VOCAB_SIZE = 384
COMMON_SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
_WINDOW = {"head_dim": 16, "sliding_window": 24}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 20,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
_DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
}
_SHARED_KV = {
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": VOCAB_SIZE,
}

TINY_MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 24}),
    "gemma2": ("Gemma2Config", {**_WINDOW, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0}),
    "gemma3": (
        "Gemma3TextConfig",
        {
            **_WINDOW,
            "num_hidden_layers": 6,
            "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2,
            "query_pre_attn_scalar": 16,
        },
    ),
    "gemma3n": (
        "Gemma3nTextConfig",
        {**_WINDOW, **_SHARED_KV, "activation_sparsity_pattern": [0.0] * 6, "laurel_rank": 8},
    ),
    "gemma4": ("Gemma4TextConfig", {**_WINDOW, **_SHARED_KV, "global_head_dim": 32}),
    "gpt_oss": ("GptOssConfig", {**_WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "llama4": (
        "Llama4TextConfig",
        {
            "head_dim": 16,
            "intermediate_size_mlp": 128,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "attention_chunk_size": 32,
            "no_rope_layers": [1, 1, 1, 0],
            "interleave_moe_layer_step": 2,
            "floor_scale": 16,
        },
    ),
    "deepseek_v3": ("DeepseekV3Config", {**_LATENT, "q_lora_rank": 32}),
    "glm5": (
        "GlmMoeDsaConfig",
        {
            **_LATENT,
            "q_lora_rank": 32,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 24,
            "indexer_types": ["full", "shared"] * 2,
        },
    ),
    "glm5_next": (
        "Glm5NextConfig",
        {
            **_LATENT,
            "num_hidden_layers": 5,
            "qk_rope_head_dim": 0,
            "q_lora_rank": 32,
            "layer_types": [
                "linear_attention",
                "indexed_attention",
                "indexed_attention",
                "linear_attention",
                "indexed_attention",
            ],
            "indexer_types": ["full", "full", "shared", "full", "full"],
            "mlp_layer_types": ["dense"] + ["sparse"] * 4,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 24,
            "index_kpool": 4,
        },
    ),
    "deepseek_v4": (
        "DeepseekV4Config",
        {
            **_WINDOW,
            "num_key_value_heads": 1,
            "partial_rotary_factor": 0.5,
            "q_lora_rank": 32,
            "o_groups": 2,
            "o_lora_rank": 16,
            "layer_types": [
                "sliding_attention",
                "compressed_sparse_attention",
                "heavily_compressed_attention",
                "compressed_sparse_attention",
            ],
            "mlp_layer_types": ["hash_moe"] + ["moe"] * 3,
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 32},
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 6,
            "hc_mult": 2,
            "hc_sinkhorn_iters": 2,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
        },
    ),
    "kimi_linear": (
        "KimiLinearConfig",
        {**_LATENT, "layer_types": _DELTA["layer_types"], "linear_head_dim": 16, "linear_num_heads": 4},
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        {**_DELTA, **_EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 64},
    ),
    "qwen3_5": ("Qwen3_5TextConfig", {**_DELTA, "head_dim": 16}),
    "qwen4_exp": (
        "Qwen4ExpTextConfig",
        {
            **{key: value for key, value in _DELTA.items() if key != "layer_types"},
            **_EXPERTS,
            "num_hidden_layers": 5,
            "layer_types": [
                "linear_attention",
                "indexed_attention",
                "linear_attention",
                "linear_attention",
                "indexed_attention",
            ],
            "head_dim": 16,
            "shared_expert_intermediate_size": 64,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
            "hc_count": 2,
            "hc_lowrank": 8,
            "ple_layer_ids": [1, 4],
            "ple_embed_dim": 32,
            "ple_conv_kernel_size": 4,
            "ngram_size": 3,
            "heads_per_ngram": 2,
            "ngram_vocab_size_base": 100,
            "make_ngram_vocab_size_divisible_by": 8,
            "split_ngram_parts": 2,
            "eos_token_id": 2,
            "indexer_n_heads": 4,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 16,
            "indexer_budget": 24,
            "indexer_compress_ratio": 4,
        },
    ),
    "olmo_hybrid": (
        "OlmoHybridConfig",
        {
            "layer_types": _DELTA["layer_types"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 12,
            "linear_value_head_dim": 24,
        },
    ),
    "bamba": ("BambaConfig", {**_MAMBA2, "attn_layer_indices": [1, 3], "mamba_expand": 2}),
    "granite_hybrid": (
        "GraniteMoeHybridConfig",
        {
            **_MAMBA2,
            "layer_types": ["mamba", "attention"] * 2,
            "shared_intermediate_size": 64,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_expand": 2,
            "position_embedding_type": "rope",
        },
    ),
    "falcon_h1": ("FalconH1Config", {**_MAMBA2, "head_dim": 16, "mamba_d_ssm": 128}),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"] * 2}),
    "nemotron_h": (
        "NemotronHConfig",
        {
            "layers_block_type": ["mamba", "attention", "mamba", "moe", "attention", "mlp"],
            "num_hidden_layers": 6,
            "head_dim": 16,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "chunk_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "moe_shared_expert_intermediate_size": 64,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    "zamba2": (
        "Zamba2Config",
        {
            "num_hidden_layers": 6,
            "num_key_value_heads": 4,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "mamba"],
            "num_mem_blocks": 1,
            "mamba_d_state": 16,
            "mamba_ngroups": 2,
            "n_mamba_heads": 8,
            "mamba_expand": 2,
            "chunk_size": 16,
            "use_mem_eff_path": False,
            "adapter_rank": 8,
        },
    ),
    "jamba": (
        "JambaConfig",
        {
            "attn_layer_offset": 1,
            "attn_layer_period": 2,
            "expert_layer_offset": 1,
            "expert_layer_period": 2,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 8,
            "mamba_d_conv": 4,
            "mamba_dt_rank": 8,
        },
    ),
}
"""By name: the class of the config, and the text model's settings beside the common shape."""

PARTS: Mapping[str, Mapping[str, Any]] = {
    "glm5_next": {
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 32,
            "out_hidden_size": 64,
            "projection_intermediate_size": 32,
        }
    }
}
"""By name: the other parts of a model whose text model cannot be loaded alone."""
