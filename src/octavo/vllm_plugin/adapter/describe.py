"""What a rank knows of its engine, from vLLM's own objects, as a report."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from torch import nn
from vllm.config import ModelConfig, VllmConfig, get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
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
from octavo.vllm_plugin.adapter.identity_parts import describe_identity, describe_ranks, loads_of
from octavo.vllm_plugin.adapter.known_pages import KnownPage
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
    model: nn.Module | None,
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
        identity=describe_identity(config, vllm_config, model),
        of_ranks=describe_ranks(config, kv_cache_config, caches),
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
                f"Octavo cannot keep a cache of this model's, {type(spec).__name__} (an encoder's cross-attention is "
                "one such): serve the model without Octavo"
            )


def name_weights(vllm_config: VllmConfig, model: nn.Module | None = None) -> tuple[str, ...]:
    """Where the weights of the model, and of its draft model, come from: its folder, or another place that is named
    beside it; and where the loaded model says that some of its weights are, as Ultravox does of its towers."""
    configs = [vllm_config.model_config]
    if vllm_config.speculative_config is not None and vllm_config.speculative_config.draft_model_config is not None:
        configs.append(vllm_config.speculative_config.draft_model_config)
    places = [(getattr(config, "model_weights", "") or config.model, config.revision) for config in configs]
    if vllm_config.load_config.load_format != "sharded_state":  # whose folder has all
        places += [(source.model_or_path, source.revision) for source in getattr(model, "secondary_weights", ())]
    return tuple(dict.fromkeys(place if revision is None else f"{place}@{revision}" for place, revision in places))


def tell_why_not_kept(vllm_config: VllmConfig) -> str:
    """Why nothing may outlive an engine of this configuration; empty if it may."""
    for load_format in (load.load_format for load in loads_of(vllm_config)):
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
