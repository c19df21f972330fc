"""What a rank knows of its engine, from vLLM's own objects, as a report."""

import inspect
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import torch
import vllm
from torch import nn
from vllm import envs
from vllm.config import LoadConfig, ModelConfig, SpeculativeConfig, VllmConfig, get_layers_from_vllm_config
from vllm.config.multimodal import MultiModalConfig
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    get_kv_quant_mode,
)
from vllm.v1.kv_offload.config import OffloadingConfig

from octavo.errors import InputError
from octavo.ids import enumerate_groups
from octavo.specs import ceil_div
from octavo.transfer import CanonicalKVCaches
from octavo.vllm_plugin.adapter.known_pages import KnownPage, may_cache_drafts
from octavo.vllm_plugin.ranks import (
    DeviceGroup,
    DeviceReport,
    GroupReport,
    GroupRule,
    RankReport,
    process_started_ns,
)


def describe_rank(
    config: OffloadingConfig,
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    caches: CanonicalKVCaches,
    pages: Sequence[KnownPage | str],
    *,
    model: nn.Module | None = None,
) -> RankReport:
    """The report of this rank, whose caches have just been registered. `model`: the loaded model, if vLLM shows it."""
    groups = tuple(
        _describe_group(
            group.group_id,
            kv_cache_config.kv_cache_groups[group.group_id].kv_cache_spec,
            group.tokens_per_block,
            caches.page_size_bytes(index),
            pages[index],
            is_draft=getattr(kv_cache_config.kv_cache_groups[group.group_id], "is_eagle_group", False),
        )
        for index, group in enumerate_groups(config.groups)
    )
    return RankReport(
        rank=config.parallel.rank,
        process=os.getpid(),
        groups=groups,
        identity=_identity(config, vllm_config, model),
        of_ranks=_of_ranks(config, kv_cache_config, caches),
        models=name_weights(vllm_config, model),
        download_dir=vllm_config.load_config.download_dir,
        max_model_len=vllm_config.model_config.max_model_len,
        started_ns=process_started_ns(),
        hash_algorithm=vllm_config.cache_config.prefix_caching_hash_algo,
        takes_media=vllm_config.model_config.multimodal_config is not None,
        why_media_not_kept=tell_why_media_not_kept(vllm_config),
        takes_adapters=vllm_config.lora_config is not None,
        stores=_is_producer(vllm_config),
        why_not_kept=tell_why_not_kept(vllm_config),
        why_not_resumed=tell_why_not_resumed(vllm_config.model_config, kv_cache_config)
        or tell_why_not_copied(get_layers_from_vllm_config(vllm_config, AttentionLayerBase).values()),
        why_prompts_only=tell_why_prompts_only(kv_cache_config),
        device=_describe_device(vllm_config, kv_cache_config),
    )


def _is_producer(vllm_config: VllmConfig) -> bool:
    """`kv_both` is a producer too."""
    transfer = vllm_config.kv_transfer_config
    return transfer is None or transfer.is_kv_producer


def _describe_device(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> DeviceReport:
    """vLLM keeps one of its pages empty. The most that a request holds is what vLLM starts with room for."""
    speculation = vllm_config.speculative_config
    num_guessed = 0 if speculation is None else speculation.num_speculative_tokens
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    return DeviceReport(
        num_pages=kv_cache_config.num_blocks - 1,
        groups=tuple(
            DeviceGroup(
                tokens_per_page=spec.block_size,
                most_pages=ceil_div(spec.max_memory_usage_bytes(vllm_config), spec.page_size_bytes),
            )
            for spec in specs
            if spec.page_size_bytes
        ),
        tokens_ahead=1 + 2 * num_guessed if num_guessed else 0,
    )


def _describe_group(
    group_id: int,
    spec: KVCacheSpec,
    tokens_per_block: int,
    page_bytes: int,
    page: KnownPage | str,
    *,
    is_draft: bool,
) -> GroupReport:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        spec = spec.first_spec
    rule, reach = rule_of(spec)
    report = GroupReport(
        group_id=group_id,
        rule=rule,
        reach_tokens=reach,
        tokens_per_block=tokens_per_block,
        page_bytes=page_bytes,
        is_draft=is_draft,
    )
    if isinstance(page, KnownPage):
        return msgspec.structs.replace(report, whole_bytes=page.num_bytes, whole=page.digest)
    return msgspec.structs.replace(report, why_by_rank=page)


def rule_of(spec: KVCacheSpec) -> tuple[GroupRule, int]:
    match spec:
        case MambaSpec():
            return GroupRule.STATE, 0
        case SlidingWindowSpec():
            return GroupRule.WINDOW, spec.sliding_window + spec.extra_retained_tokens
        case ChunkedLocalAttentionSpec():
            return GroupRule.CHUNK, spec.attention_chunk_size
        case FullAttentionSpec():
            return GroupRule.WHOLE, 0
        case _:
            raise InputError(
                f"this model has a cache of a kind that Octavo does not know, {type(spec).__name__}: serve it without "
                "Octavo, as models with an encoder's cross-attention"
            )


def name_weights(vllm_config: VllmConfig, model: nn.Module | None = None) -> tuple[str, ...]:
    """Where the weights of the model, and of its draft model, come from: its folder, or another place that is named
    beside it; and where the loaded model says that some of its weights are, as Ultravox does of its towers."""
    configs = [vllm_config.model_config]
    if vllm_config.speculative_config is not None and vllm_config.speculative_config.draft_model_config is not None:
        configs.append(vllm_config.speculative_config.draft_model_config)
    places = [(getattr(config, "model_weights", "") or config.model, config.revision) for config in configs]
    places += [(source.model_or_path, source.revision) for source in getattr(model, "secondary_weights", ())]
    return tuple(dict.fromkeys(place if revision is None else f"{place}@{revision}" for place, revision in places))


def tell_why_not_kept(vllm_config: VllmConfig) -> str:
    """Why nothing may outlive an engine of this configuration; empty if it may."""
    for load_format in (load.load_format for load in _loads(vllm_config)):
        if load_format == "dummy":
            return "the weights are random: load real ones"
        if load_format not in _LOADED_FROM_THE_FOLDER:
            return f"{load_format} may have its weights from a place of its own: load those of the model's folder"
    if vllm_config.weight_transfer_config is not None:
        return "weights come into the running engine, and the next one begins with the folder's: serve without that"
    return ""


_LOADED_FROM_THE_FOLDER = (
    "auto",
    "fastsafetensors",
    "hf",
    "instanttensor",
    "mistral",
    "pt",
    "runai_streamer",
    "runai_streamer_sharded",
    "safetensors",
    "sharded_state",
)
"""Load formats that read the model's folder, and nothing else. `npcache` reads what it copied there before."""


def describe_loading(vllm_config: VllmConfig) -> dict[str, str]:
    """Which of the folder's files are loaded, as it may have other weights in each format. Nothing where vLLM chooses,
    since what is there decides then."""
    told = [load.load_format + _pattern_of(load.model_loader_extra_config) for load in _loads(vllm_config)]
    return {} if set(told) == {"auto"} else {"load_format": ", ".join(told)}


def _loads(vllm_config: VllmConfig) -> list[LoadConfig]:
    """How the model is loaded, and its draft model, if that is said apart."""
    draft = getattr(vllm_config.speculative_config, "draft_load_config", None)
    return [vllm_config.load_config] if draft is None else [vllm_config.load_config, draft]


def _pattern_of(extra_config: object) -> str:
    """The names of files that hold ranks' shares. Other settings of loaders say how quickly they read."""
    pattern = extra_config.get("pattern") if isinstance(extra_config, dict) else None
    return "" if pattern is None else f" {pattern}"


def tell_why_media_not_kept(vllm_config: VllmConfig) -> str:
    """Why no prompt with images, audio or video may outlive the engine, whatever clients do; empty if it may. Without a
    cache of its own vLLM reads no image to name it."""
    media = vllm_config.model_config.multimodal_config
    if media is None or media.mm_processor_cache_gb or vllm_config.cache_config.enable_prefix_caching:
        return ""
    return (
        "without prefix caching and with --mm-processor-cache-gb 0 vLLM numbers them from its start, and the next "
        "process gives their numbers to others: leave one of the two settings out"
    )


def tell_why_not_resumed(model: ModelConfig, kv_cache_config: KVCacheConfig) -> str:
    """Why no prompt of this model may be resumed from its beginning; empty if every prompt may. vLLM turns its own
    prefix caching off then, but asks its connectors all the same."""
    if model.pooler_config is not None and not model.is_prefix_caching_supported:
        return "its pooling needs the output of every token of a prompt"
    if any(getattr(layer, "non_causal", False) for layer in _layers_of(kv_cache_config)):
        return "the tokens of a prompt attend to those after them, so the same beginning differs from prompt to prompt"
    return ""


def tell_why_not_copied(layers: Iterable[Any]) -> str:
    """Why the bytes of a block are not those of its page; empty if they are. On a CPU vLLM does not ask its kernels
    what they can keep: with `int8_per_token_head` the one for attention writes pages of twice the length."""
    for layer in layers:
        dtype, backend = getattr(layer, "kv_cache_dtype", None), layer.get_attn_backend()
        if dtype and get_kv_quant_mode(dtype) and not backend.supports_kv_cache_dtype(dtype):
            return f"vLLM's {backend.get_name()} writes beside its pages with --kv-cache-dtype {dtype}"
    return ""


def tell_why_prompts_only(kv_cache_config: KVCacheConfig) -> str:
    """Why nothing of an answer may be stored; empty if everything may. vLLM turns its own prefix
    caching off then."""
    if any(hasattr(layer, "rswa_window") for layer in _layers_of(kv_cache_config)):
        return "the tokens of an answer attend to fewer than those of a prompt"
    return ""


def _layers_of(kv_cache_config: KVCacheConfig) -> list[KVCacheSpec]:
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    return [layer for spec in specs for layer in getattr(spec, "kv_cache_specs", {"": spec}).values()]


def _identity(config: OffloadingConfig, vllm_config: VllmConfig, loaded: nn.Module | None) -> dict[str, str]:
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
    of_model = f"{_digest_config(draft.hf_config.to_dict())} {draft.dtype} {describe_quantization(draft)}"
    return f"{config.method} {config.num_speculative_tokens} {name} {of_model}"


_OF_THE_ENVIRONMENT = (
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
    "VLLM_ROCM_MUSE_MOE_ONLINE_QUANT",
    "VLLM_ROCM_MUSE_MOE_REDUCE_DTYPE",
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION",
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
        "environment": {name: getattr(envs, name, None) for name in _OF_THE_ENVIRONMENT if name in os.environ},
        "additional_config": additional if isinstance(additional, dict) else additional.compute_hash(),
    }
    return {name: str(part) for name, part in parts.items() if part}


def _of_ranks(config: OffloadingConfig, kv_cache_config: KVCacheConfig, caches: CanonicalKVCaches) -> dict[str, str]:
    parallel = config.parallel
    return {
        "parallel": f"{parallel.rank} of {parallel.world_size}, tp {parallel.tp_size} pp {parallel.pp_size} "
        f"pcp {parallel.pcp_size} dcp {parallel.dcp_size}",
        "layers": str([(list(g.layer_names), str(g.kv_cache_spec)) for g in kv_cache_config.kv_cache_groups]),
        "layout": str([[(ref.page_size_bytes, ref.offset) for ref in refs] for refs in caches.group_refs]),
    }


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
