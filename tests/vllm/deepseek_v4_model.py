"""A tiny DeepSeek V4 under the names of the published one, which transformers' class has not."""

import json
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import torch
from vllm_models import VOCAB

HIDDEN, HEADS, HEAD, LATENT, GROUPS = 256, 4, 512, 64, 2
INDEX_HEADS, INDEX_HEAD = 4, 128
EXPERTS, EXPERTS_PER_TOKEN, EXPERT = 256, 6, 64
STREAMS = 4
RATIOS = [0, 128, 4]
"""As few layers as have all its caches. The numbers of experts and of an indexer's tokens are those that its kernels
for CPUs know."""
CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "expert_dtype": "bf16",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": len(RATIOS),
    "compress_ratios": RATIOS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "head_dim": HEAD,
    "qk_rope_head_dim": 64,
    "q_lora_rank": LATENT,
    "o_lora_rank": LATENT,
    "o_groups": GROUPS,
    "sliding_window": 128,
    "index_n_heads": INDEX_HEADS,
    "index_head_dim": INDEX_HEAD,
    "index_topk": 512,
    "moe_intermediate_size": EXPERT,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": EXPERTS_PER_TOKEN,
    "num_hash_layers": 1,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "hc_mult": STREAMS,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "swiglu_limit": 10.0,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512},
    "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def make_deepseek_v4(folder: Path) -> Path:
    torch.manual_seed(0)
    weights = {name: _values(name, shape) for name, shape in _shapes()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _values(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """So large that an answer depends on the whole prompt."""
    if name.endswith("tid2eid"):
        return torch.stack([torch.randperm(EXPERTS)[:EXPERTS_PER_TOKEN] for _ in range(VOCAB)]).to(torch.int32)
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith(("bias", "base", "sink")) else torch.ones(shape)
    values = torch.randn(shape) * 0.15
    return values if "hc_" in name or name.endswith("ape") else values.to(torch.bfloat16)


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from {"embed.weight": (VOCAB, HIDDEN), "head.weight": (VOCAB, HIDDEN), "norm.weight": (HIDDEN,)}.items()
    yield from _mixing("hc_head", STREAMS, 1)
    for index, ratio in enumerate(RATIOS):
        for name, shape in _layer(index, ratio):
            yield f"layers.{index}.{name}", shape


def _mixing(name: str, num_rows: int, num_scales: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of the residual's streams."""
    yield f"{name}_fn", (num_rows, STREAMS * HIDDEN)
    yield f"{name}_base", (num_rows,)
    yield f"{name}_scale", (num_scales,)


def _layer(index: int, ratio: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in ("attn", "ffn"):
        yield from _mixing(f"hc_{part}", STREAMS * (STREAMS + 2), 3)
        yield f"{part}_norm.weight", (HIDDEN,)
    yield "attn.attn_sink", (HEADS,)
    yield "attn.wq_a.weight", (LATENT, HIDDEN)
    yield "attn.q_norm.weight", (LATENT,)
    yield "attn.wq_b.weight", (HEADS * HEAD, LATENT)
    yield "attn.wkv.weight", (HEAD, HIDDEN)
    yield "attn.kv_norm.weight", (HEAD,)
    yield "attn.wo_a.weight", (GROUPS * LATENT, HEADS * HEAD // GROUPS)
    yield "attn.wo_b.weight", (HIDDEN, GROUPS * LATENT)
    if ratio:
        yield from _compressor("attn.compressor", ratio, HEAD)
    if ratio == 4:
        yield "attn.indexer.wq_b.weight", (INDEX_HEADS * INDEX_HEAD, LATENT)
        yield "attn.indexer.weights_proj.weight", (INDEX_HEADS, HIDDEN)
        yield from _compressor("attn.indexer.compressor", ratio, INDEX_HEAD)
    yield "ffn.gate.weight", (EXPERTS, HIDDEN)
    if index < CONFIG["num_hash_layers"]:
        yield "ffn.gate.tid2eid", (VOCAB, EXPERTS_PER_TOKEN)
    else:
        yield "ffn.gate.bias", (EXPERTS,)
    for expert in ("shared_experts", *(f"experts.{number}" for number in range(EXPERTS))):
        yield f"ffn.{expert}.w1.weight", (EXPERT, HIDDEN)
        yield f"ffn.{expert}.w2.weight", (HIDDEN, EXPERT)
        yield f"ffn.{expert}.w3.weight", (EXPERT, HIDDEN)


def _compressor(name: str, ratio: int, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = size * (2 if ratio == 4 else 1)
    yield f"{name}.ape", (ratio, width)
    yield f"{name}.wkv.weight", (width, HIDDEN)
    yield f"{name}.wgate.weight", (width, HIDDEN)
    yield f"{name}.norm.weight", (size,)
