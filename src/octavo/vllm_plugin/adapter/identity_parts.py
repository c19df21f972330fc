"""What decides the bytes of a rank's chunks, apart from the content of weights: the parts of the identity, by name."""

import inspect
import json
import os
import platform
import sys
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import vllm
from torch import nn
from vllm import envs
from vllm.config import LoadConfig, ModelConfig, SpeculativeConfig, VllmConfig, get_layers_from_vllm_config
from vllm.config.multimodal import MultiModalConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_offload.config import OffloadingConfig

from octavo.transfer import CanonicalKVCaches
from octavo.vllm_plugin.adapter.known_pages import may_cache_drafts


def describe_identity(config: OffloadingConfig, vllm_config: VllmConfig, loaded: nn.Module | None) -> dict[str, str]:
    """The parts that are the same for any number of ranks. `loaded`: the model, if vLLM shows it."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    layers: dict[str, Any] = get_layers_from_vllm_config(vllm_config, AttentionLayerBase)
    backends = sorted({f"{type(layer).__name__}:{_backend_of(layer)}" for layer in layers.values()})
    return {
        "vllm": vllm.__version__,
        "torch": str(torch.__version__),
        "device": f"{platform.machine()} {current_platform.device_name} {_capabilities()}",
        "model_config": _digest_config(model.hf_config.to_dict()),
        "model_dtype": str(model.dtype),
        "quantization": describe_quantization(model),
        "cache_dtype": f"{config.model.dtype} {cache.cache_dtype}",
        "cache_layout": str(config.kv_cache_layout),
        "state_mode": f"{cache.mamba_cache_mode} {cache.mamba_cache_dtype} {cache.mamba_ssm_cache_dtype}",
        "tokens_per_hash": str(config.cache.tokens_per_hash),
        "experts": str(vllm_config.parallel_config.enable_expert_parallel),
        "inputs": _describe_inputs(model.multimodal_config),
        "speculation": describe_speculation(vllm_config.speculative_config),
        "attention": f"{vllm_config.attention_config} {backends}",
        "model_class": _class_of(loaded),
        **({"max_model_len": str(model.max_model_len)} if depends_on_length(loaded) else {}),
        **describe_loading(vllm_config),
        **describe_kernels(vllm_config),
    }


def describe_ranks(
    config: OffloadingConfig, kv_cache_config: KVCacheConfig, caches: CanonicalKVCaches
) -> dict[str, str]:
    """What counts too where it is not known how ranks share pages."""
    parallel = config.parallel
    return {
        "parallel": f"{parallel.rank} of {parallel.world_size}, tp {parallel.tp_size} pp {parallel.pp_size} "
        f"pcp {parallel.pcp_size} dcp {parallel.dcp_size}",
        "layers": str([(list(g.layer_names), str(g.kv_cache_spec)) for g in kv_cache_config.kv_cache_groups]),
        "layout": str([[(ref.page_size_bytes, ref.offset) for ref in refs] for refs in caches.group_refs]),
    }


def describe_loading(vllm_config: VllmConfig) -> dict[str, str]:
    """Which of the folder's files are loaded, as it may have other weights in each format. Nothing where vLLM chooses,
    since what is there decides then."""
    told = [load.load_format + _pattern_of(load.model_loader_extra_config) for load in loads_of(vllm_config)]
    return {} if set(told) == {"auto"} else {"load_format": ", ".join(told)}


def loads_of(vllm_config: VllmConfig) -> list[LoadConfig]:
    """How the model is loaded, and its draft model, if that is said apart."""
    draft = getattr(vllm_config.speculative_config, "draft_load_config", None)
    return [vllm_config.load_config] if draft is None else [vllm_config.load_config, draft]


def _pattern_of(extra_config: object) -> str:
    """The names of files that hold ranks' shares. Other settings of loaders say how quickly they read."""
    pattern = extra_config.get("pattern") if isinstance(extra_config, dict) else None
    return "" if pattern is None else f" {pattern}"


def depends_on_length(model: nn.Module | None) -> bool:
    """Whether a part of the model looks at the longest context, as Phi-3 does to choose among its RoPE scalings and
    Llama 4 to scale queries: whether their sources name it. The others compute the same whatever it is."""
    if model is None:
        return True
    classes = {cls for part in model.modules() for cls in type(part).__mro__}
    modules = {cls.__module__ for cls in classes if cls.__module__.partition(".")[0] not in ("builtins", "torch")}
    return any("max_model_len" in _source_of(module) for module in modules)


def _source_of(module: str) -> str:
    """Of one that cannot be read, what it may have."""
    try:
        return inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return "max_model_len"


def _class_of(model: nn.Module | None) -> str:
    """Which of the implementations of an architecture runs: vLLM has more than one, and plug-ins register their own."""
    return "unknown" if model is None else f"{type(model).__module__}.{type(model).__qualname__}"


def describe_speculation(config: SpeculativeConfig | None) -> str:
    """What drafts, if it may have a cache of its own. `model` is a class where the way is somebody's own, and where the
    model lies does not matter."""
    if config is None or not may_cache_drafts(config):
        return "None"
    draft, name = config.draft_model_config, config.model if config.method == "custom_class" else ""
    of_model = draft and f"{_digest_config(draft.hf_config.to_dict())} {draft.dtype} {describe_quantization(draft)}"
    return f"{config.method} {config.num_speculative_tokens} {name} {of_model}"


VARIABLES_OF_BYTES = (
    "VLLM_B12X_MOE_FP4_FORCE_A16",
    "VLLM_CPU_INT4_W4A8",
    "VLLM_DEEPEPLL_NVFP4_DISPATCH",
    "VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE",
    "VLLM_FLOAT32_MATMUL_PRECISION",
    "VLLM_HUMMING_INPUT_QUANT_CONFIG",
    "VLLM_HUMMING_ONLINE_QUANT_CONFIG",
    "VLLM_HUMMING_USE_F16_ACCUM",
    "VLLM_MARLIN_INPUT_DTYPE",
    "VLLM_MOE_ROUTING_SIMULATION_STRATEGY",
    "VLLM_ROCM_FP8_MFMA_PAGE_ATTN",
    "VLLM_ROCM_MUSE_MOE_ONLINE_QUANT",
    "VLLM_ROCM_MUSE_MOE_REDUCE_DTYPE",
    "VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16",
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION",
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB",
    "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT",
    "VLLM_ROCM_USE_AITER_FP4BMM",
    "VLLM_ROCM_USE_AITER_FP8BMM",
    "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4",
    "VLLM_ROCM_USE_AITER_MOE_SITUV2",
)
"""Variables by which vLLM computes with fewer bits, takes other experts, or lays pages out in another way."""


_OF_KERNELS = {"moe_backend": "auto", "linear_backend": "auto", "linear_backend_per_quant": None}
"""Kernels that a person may choose, as some of them round what they read to fewer bits."""


def describe_kernels(vllm_config: VllmConfig) -> dict[str, str]:
    """What a person has said of how vLLM, or the plug-in of a platform, computes. Nothing where they choose."""
    kernels, additional = vllm_config.kernel_config, vllm_config.additional_config
    chosen = {name: getattr(kernels, name, usual) for name, usual in _OF_KERNELS.items()}
    parts = {
        "kernels": {name: value for name, value in chosen.items() if value != _OF_KERNELS[name]},
        "environment": {name: getattr(envs, name, None) for name in VARIABLES_OF_BYTES if name in os.environ},
        "additional_config": additional if isinstance(additional, dict) else additional.compute_hash(),
    }
    return {name: str(part) for name, part in parts.items() if part}


def describe_quantization(model: ModelConfig) -> str:
    """How the weights are quantized as they are loaded, which `online` as the name of a method does not say."""
    asked = getattr(model, "quantization_config", None)
    return str(model.quantization) if asked is None else f"{model.quantization} {asked}"


_NOT_OF_THE_INPUTS = (
    "limit_per_prompt",
    "mm_encoder_fp8_scale_save_margin",
    "mm_encoder_fp8_scale_save_path",
    "mm_processor_cache_gb",
    "mm_processor_cache_type",
    "mm_shm_cache_max_object_size_mb",
    "mm_ipc_gpu_memory_gb",
    "mm_tensor_ipc",
    "skip_mm_profiling",
)


def _describe_inputs(config: MultiModalConfig | None) -> str:
    """How images and the like become embeddings, which their hashes do not say."""
    if config is None:
        return ""
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    if scales := settings.get("mm_encoder_fp8_scale_path"):
        settings["mm_encoder_fp8_scale_path"] = sha256(Path(scales).read_bytes()).hexdigest()
    return str({name: value for name, value in settings.items() if name not in _NOT_OF_THE_INPUTS})


def _backend_of(layer: AttentionLayerBase) -> str:
    return f"{layer.get_attn_backend().get_name()}:{type(getattr(layer, 'impl', None)).__name__}"


def _capabilities() -> str:
    """The abilities of a CPU: its kernels pack keys and values in the way that suits its instructions."""
    if current_platform.device_type == "cpu":
        return torch.backends.cpu.get_cpu_capability()
    return str(current_platform.get_device_capability())


_NOT_OF_THE_MODEL = ("_name_or_path", "name_or_path", "transformers_version")


def _digest_config(config: dict[str, Any]) -> str:
    """A digest of the resolved configuration, after every default and override."""
    return sha256(json.dumps(_without_names(config), sort_keys=True, default=str).encode()).hexdigest()


def _without_names(value: Any) -> Any:
    """Configurations within others have names too."""
    if isinstance(value, dict):
        return {key: _without_names(of) for key, of in value.items() if key not in _NOT_OF_THE_MODEL}
    return [_without_names(of) for of in value] if isinstance(value, list | tuple) else value
