"""Tiny models for the real vLLM: each of another kind of cache."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import tokenizers
import torch
import transformers

VOCAB = 512
OWN_MODEL = "LlamaWithOpenRecords"
"""Of `circular_model`."""
_COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
}
_DELTA = {
    "head_dim": 128,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
}
"""Layers of recurrent state that vLLM's kernels take, and one of attention."""


def tiny_config(family: str) -> transformers.PretrainedConfig:
    match family:
        case "llama" | "circular":
            return transformers.LlamaConfig(**_COMMON, num_hidden_layers=4)
        case "gpt_oss":
            return transformers.GptOssConfig(
                **{**_COMMON, "intermediate_size": 64},
                num_hidden_layers=4,
                num_local_experts=4,
                num_experts_per_tok=2,
                sliding_window=64,
                layer_types=["sliding_attention", "full_attention"] * 2,
            )
        case "gemma3":
            return transformers.Gemma3TextConfig(
                **_COMMON,
                num_hidden_layers=6,
                layer_types=["sliding_attention"] * 5 + ["full_attention"],
                sliding_window=64,
                query_pre_attn_scalar=32,
            )
        case "gemma4":  # its windows have other heads than full attention, so their blocks are twice as long
            return transformers.Gemma4TextConfig(
                **_COMMON,
                num_hidden_layers=6,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                sliding_window=64,
                global_head_dim=64,
                num_global_key_value_heads=1,
                num_kv_shared_layers=0,
                hidden_size_per_layer_input=0,
            )
        case "llama4":
            return transformers.Llama4TextConfig(
                **_COMMON,
                intermediate_size_mlp=128,
                num_hidden_layers=4,
                num_local_experts=2,
                num_experts_per_tok=1,
                interleave_moe_layer_step=1,
                attention_chunk_size=384,
                no_rope_layers=[1, 1, 1, 0],
                layer_types=["chunked_attention"] * 3 + ["full_attention"],
            )
        case "qwen3_next":
            return transformers.Qwen3NextConfig(
                **{**_COMMON, **_DELTA},
                num_experts=4,
                num_experts_per_tok=2,
                moe_intermediate_size=32,
                shared_expert_intermediate_size=32,
            )
        case "qwen3_next_for_two":  # heads of states that two ranks can share
            config = tiny_config("qwen3_next")
            config.linear_num_key_heads, config.linear_num_value_heads = 2, 4
            return config
        case "qwen3_5":
            return transformers.Qwen3_5TextConfig(**{**_COMMON, **_DELTA})
        case "deepseek_v2":
            return transformers.DeepseekV2Config(
                **{**_COMMON, "num_key_value_heads": 4},
                num_hidden_layers=4,
                kv_lora_rank=512,
                q_lora_rank=None,
                qk_rope_head_dim=64,
                qk_nope_head_dim=128,
                v_head_dim=128,
                n_routed_experts=4,
                n_shared_experts=1,
                num_experts_per_tok=2,
                moe_intermediate_size=32,
                first_k_dense_replace=1,
                n_group=1,
                topk_group=1,
                topk_method="greedy",
            )
    raise ValueError(family)


_MAMBA2 = {
    **_COMMON,
    "hidden_size": 128,
    "intermediate_size": 256,
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 64,
}
_SCANS = ("falcon_h1", "granite4", "jamba", "lfm2")
_HIDDEN_128 = {name: value for name, value in _COMMON.items() if name != "head_dim"} | {"hidden_size": 128}
_LFM2 = {
    **_HIDDEN_128,
    "conv_dim": 128,  # vLLM reads sizes that transformers leaves out of a config of its own
    "block_dim": 128,
    "block_ff_dim": 128,
}


def tiny_scan_config(family: str) -> transformers.PretrainedConfig:
    """Mamba and convolutions beside attention: in one layer (Falcon-H1), or in layers of their own."""
    match family:
        case "falcon_h1":
            return transformers.FalconH1Config(**_MAMBA2, num_hidden_layers=3, mamba_d_ssm=256)
        case "granite4":
            return transformers.GraniteMoeHybridConfig(
                **_MAMBA2,
                num_hidden_layers=4,
                layer_types=["mamba", "mamba", "attention", "mamba"],
                num_local_experts=0,
                num_experts_per_tok=0,
                shared_intermediate_size=128,
                position_embedding_type="rope",
            )
        case "jamba":  # Mamba 1; vLLM packs the weights of a convolution of 4 tokens otherwise
            return transformers.JambaConfig(
                **_HIDDEN_128,
                num_hidden_layers=3,
                attn_layer_period=3,
                attn_layer_offset=1,
                num_experts=1,
                num_experts_per_tok=1,
                mamba_d_conv=3,
            )
        case "lfm2":  # a state is the last two inputs of a short convolution
            return transformers.Lfm2Config(
                **_LFM2,
                num_hidden_layers=4,
                layer_types=["conv", "full_attention"] * 2,
                tie_word_embeddings=False,
                block_auto_adjust_ff_dim=False,
            )
    raise ValueError(family)


def make_adapter(folder: Path, seed: int) -> Path:
    """A LoRA of the tiny Llama, strong enough to change every answer."""
    config = tiny_config("llama")
    rank, hidden, out = 8, config.hidden_size, config.num_attention_heads * config.head_dim
    torch.manual_seed(seed)
    weights = {}
    for layer in range(config.num_hidden_layers):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(rank, hidden, dtype=torch.bfloat16)
        weights[f"{name}.lora_B.weight"] = torch.randn(out, rank, dtype=torch.bfloat16)
    folder.mkdir()
    safetensors.torch.save_file(weights, folder / "adapter_model.safetensors")
    described = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(described))
    return folder


def make_model(family: str, folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    config = tiny_scan_config(family) if family in _SCANS else tiny_config(family)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _with_large_weights(model).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    if family == "circular":  # the same weights for a class of our own
        config.architectures = [OWN_MODEL]
        config.save_pretrained(folder)
    return folder


def add_format(folder: Path, other: Path) -> Path:
    """The folder gets the weights of another model beside its own, in the format `pt`."""
    torch.save(safetensors.torch.load_file(other / "model.safetensors"), folder / "model.pt")
    return folder


def make_image_model(folder: Path) -> Path:
    """A LLaVA over the tiny Llama: token 4 stands for an image, which takes five."""
    side, patch = 28, 14
    vision = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=side,
        patch_size=patch,
    )
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=tiny_config("llama"),
        image_token_index=4,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_seq_length=5,
    )
    torch.manual_seed(0)
    _with_large_weights(transformers.LlavaForConditionalGeneration(config)).save_pretrained(folder)
    file = folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    as_vllm_names = {name.replace("vision_tower.", "vision_tower.vision_model."): weights[name] for name in weights}
    safetensors.torch.save_file(as_vllm_names, file, metadata={"format": "pt"})
    transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(
            size={"shortest_edge": side}, crop_size={"height": side, "width": side}
        ),
        tokenizer=make_tokenizer("<image>"),
        patch_size=patch,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=1,
        image_token="<image>",
    ).save_pretrained(folder)
    return folder


def _with_large_weights(model: Any) -> Any:
    """So large that an answer depends on the whole prompt."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and "norm" not in name:
                parameter.normal_(0, 0.15)
    return model.to(torch.bfloat16)


def make_tokenizer(*special: str) -> Any:
    """One token for each word; the special ones from 4 on."""
    named = ["<unk>", "<s>", "</s>", "<pad>", *special]
    words = {word: i for i, word in enumerate(named)} | {f"w{i}": i for i in range(len(named), VOCAB)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=list(special),
    )
