"""The real vLLM, asked for its plan: from a config.json without weights, and from layers that Octavo describes.

A model is built on torch's meta device, so its layers name their own specs and take no memory. vLLM runs on the CPU
here, and three things are set as they are on CUDA, because that is the plan being checked: attention takes any
multiple of 16 tokens (the CPU's wants 32), the layout has layers outermost, and vLLM does not see what this CPU can
do (it would turn prefix caching off with MLA, and change the type of recurrent state).
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import vllm_environment  # noqa: F401 - before vLLM

from octavo.specs import (
    AttentionSpec,
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

LAYERS_OUTERMOST, BLOCKS_OUTERMOST = "LBNHC", "BLHNC"


@dataclass(frozen=True, kw_only=True)
class RealPlan:
    """What vLLM says, in the words of `VllmPlan`."""

    groups: list[tuple[str, tuple[str, ...], int, int, int]]
    """Kind, layers, block size, bytes of a block with padding and without."""
    bytes_per_block: int
    num_blocks: int
    tokens: int
    requests_at_once: float


def config_without_weights(path: Path) -> dict[str, Any]:
    """A model's config as vLLM can build it without weights: text only, unquantised, nothing computed from numbers."""
    config: dict[str, Any] = json.loads(path.read_text())
    text = config.get("text_config")
    if text is not None:
        names = [name.replace("ForConditionalGeneration", "ForCausalLM") for name in config["architectures"]]
        config = {"torch_dtype": "bfloat16"} | text | {"architectures": names}
    config.pop("quantization_config", None)
    if config["model_type"] == "gemma3n_text":  # its thresholds cannot be computed on the meta device
        config["activation_sparsity_pattern"] = [0.0] * config["num_hidden_layers"]
    if config["model_type"] == "lfm2":  # what vLLM wants to know beyond the cache
        config |= dict.fromkeys(("conv_dim", "block_dim", "conv_dim_out"), config["hidden_size"])
        config |= {
            "block_ff_dim": 4 * config["hidden_size"],
            "block_multiple_of": 256,
            "block_auto_adjust_ff_dim": True,
        }
        config |= {"block_ffn_dim_multiplier": 1.0, "block_norm_eps": 1e-5, "conv_bias": False}
    if config["model_type"] == "deepseek_v4":
        config |= {"hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
        config |= {
            "swiglu_limit": 10.0,
            "norm_topk_prob": True,
            "topk_method": "noaux_tc",
            "compress_rope_theta": 160000,
        }
        config["rope_scaling"] = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536}
    if config["model_type"] == "glm5_next_text":
        config |= {"mhc": True, "mla_use_nope": True, "num_nextn_predict_layers": 0}
        config |= {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "indexer_rope_interleave": False}
    if config["model_type"] == "qwen4_exp_text":
        config["output_gate_type"] = "sigmoid"
    return config


@contextmanager
def no_traits_of_this_cpu() -> Iterator[None]:
    with (
        mock.patch("torch.cpu._is_amx_tile_supported", return_value=True),
        mock.patch("torch.cpu._is_avx512_bf16_supported", return_value=False),
    ):
        yield


@contextmanager
def kernels_of_gpus() -> Iterator[None]:
    """Layers whose kernels no CPU has can be made, though not called."""
    from torch import nn

    importlib.import_module("vllm.models.qwen4_exp.nvidia.model")  # before its parts, which import it
    from vllm.models.deepseek_v41.nvidia import flashmla
    from vllm.models.qwen4_exp.nvidia import ple_layer, qsa
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.attention.backends.mla import flashmla_sparse

    original = CpuPlatform.get_attn_backend_cls

    def get_backend(selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None) -> str:
        if attn_selector_config.use_sparse:
            return f"{flashmla_sparse.__name__}.{flashmla_sparse.FlashMLASparseBackend.__name__}"
        return str(original(selected_backend, attn_selector_config, num_heads))

    with (
        mock.patch.object(CpuPlatform, "get_attn_backend_cls", staticmethod(get_backend)),
        mock.patch.object(flashmla_sparse, "current_workspace_manager"),
        mock.patch.object(flashmla, "compute_fp8_einsum_recipe", return_value=(None, None)),
        mock.patch("torch.cuda.Event"),
        mock.patch("torch.cuda.Stream"),
        mock.patch.object(qsa, "Qwen4ExpQSAFlashAttentionImpl"),
        mock.patch.object(ple_layer, "Qwen4ExpNGramEmbedding", nn.Identity),
    ):
        yield


def engine_config(
    model_config: Mapping[str, Any], folder: Path, limits: RequestLimits, block_size: int = 16, **arguments: Any
) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    (folder / "config.json").write_text(json.dumps(model_config))
    with no_traits_of_this_cpu():
        vllm_config = EngineArgs(
            model=str(folder),
            tokenizer=str(folder),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            block_size=block_size,
            max_model_len=limits.max_model_len,
            max_num_batched_tokens=limits.max_step_tokens,
            max_num_seqs=8,
            enforce_eager=True,
            enable_prefix_caching=True,
            kv_cache_memory_bytes=1 << 30,
            **arguments,
        ).create_engine_config()
    vllm_config.cache_config.kv_cache_layout = LAYERS_OUTERMOST
    vllm_config.scheduler_config.max_num_encoder_input_tokens = limits.max_encoder_tokens
    assert vllm_config.cache_config.block_size == block_size
    assert vllm_config.max_in_flight_tokens == limits.max_step_tokens
    return vllm_config


def layers_of_model(vllm_config: Any) -> dict[str, Any]:
    """Each layer's own spec, after the platform has settled on the block size."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.config.vllm import get_layers_from_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.distributed.parallel_state import destroy_model_parallel
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform

    with set_current_vllm_config(vllm_config), no_traits_of_this_cpu(), ExitStack() as stack:
        stack.enter_context(kernels_of_gpus())
        destroy_model_parallel()  # the model before had other groups: experts or none
        store = Path(vllm_config.model_config.model) / "store"
        init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        with torch.device("meta"):
            initialize_model(vllm_config)
        for backend in current_platform._find_non_ssm_backends(vllm_config):
            stack.enter_context(mock.patch.object(backend, "get_supported_kernel_block_sizes", _kernel_blocks_on_cuda))
            stack.enter_context(mock.patch.object(backend, "supports_block_size", lambda size: size % 16 == 0))
        current_platform.update_block_size_for_backend(vllm_config)
        layers = get_layers_from_vllm_config(vllm_config, AttentionLayerBase)
        specs = {
            name: layer.get_kv_cache_spec(vllm_config)
            for name, layer in layers.items()
            if getattr(layer, "kv_sharing_target_layer_name", None) is None  # it reads another layer's cache
        }
    return {name: spec for name, spec in specs.items() if spec is not None}


def layers_as_sized_by_platform(
    vllm_config: Any, layers: Mapping[str, KVCacheSpec], kernel_blocks: list[int]
) -> dict[str, Any]:
    """Octavo's layers in vLLM's classes, with the block size that vLLM's platform gives to a model that has them.

    `kernel_blocks` is the block size of each attention backend that such a model has on CUDA.
    """
    from vllm.model_executor.models import ModelRegistry
    from vllm.platforms import current_platform
    from vllm.platforms.interface import Platform

    states = [spec for spec in layers.values() if isinstance(spec, MambaSpec)]
    attention = [spec for spec in layers.values() if isinstance(spec, AttentionSpec)]
    main = next((spec for spec in attention if isinstance(spec, FullAttentionSpec)), None)
    largest = max(states, key=lambda spec: spec.unpadded_page_size_bytes, default=None)
    model, cache = vllm_config.model_config, vllm_config.cache_config
    cache.block_size, cache.mamba_page_size_padded, cache.mamba_cache_mode = 16, None, "align"
    cache.user_specified_block_size = False
    backends = [_backend(tokens) for tokens in kernel_blocks]
    with ExitStack() as stack:

        def patch(owner: Any, name: str, **values: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, **values))

        patch(type(current_platform), "_find_non_ssm_backends", return_value=backends)
        patch(type(model), "is_hybrid", new=bool(states and attention))
        patch(type(model), "use_mla", new=isinstance(main, MLAAttentionSpec))
        if main is not None and largest is not None:
            real = to_vllm(largest)
            model_class = SimpleNamespace(
                get_mamba_state_shape_from_config=lambda _: real.shapes,
                get_mamba_state_dtype_from_config=lambda _: real.dtypes,
            )
            patch(ModelRegistry, "resolve_model_cls", return_value=(model_class, ""))
            patch(type(model), "get_num_kv_heads", return_value=main.num_kv_heads)
            patch(type(model), "get_head_size", return_value=main.head_size)
        Platform.update_block_size_for_backend.__func__(type(current_platform), vllm_config)  # not the CPU's own

    def sized(spec: KVCacheSpec) -> KVCacheSpec:
        if isinstance(spec, MambaSpec):
            return replace(spec, block_size=cache.block_size, page_size_padded=cache.mamba_page_size_padded)
        return spec.with_block_size(cache.block_size)

    return {name: to_vllm(sized(spec)) for name, spec in layers.items()}


def _backend(kernel_block: int) -> type[Any]:
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    class Backend(CPUAttentionBackend):  # type: ignore[misc]
        @staticmethod
        def get_supported_kernel_block_sizes(kv_cache_spec: object = None) -> list[Any]:
            return [MultipleOf(kernel_block)]

        @classmethod
        def supports_block_size(cls, block_size: int) -> bool:
            return block_size % kernel_block == 0

    return Backend


def _kernel_blocks_on_cuda(spec: object = None) -> list[Any]:
    from vllm.v1.attention.backend import MultipleOf

    return [MultipleOf(16)]


def plan_of(vllm_config: Any, layers: dict[str, Any], memory_bytes: int) -> RealPlan:
    from vllm.config import set_current_vllm_config
    from vllm.v1.core.kv_cache_utils import (
        _pool_bytes_per_block,
        generate_scheduler_kv_cache_config,
        get_kv_cache_capacity,
        get_kv_cache_configs,
    )
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

    with set_current_vllm_config(vllm_config):
        worker = get_kv_cache_configs(vllm_config, [dict(layers)], [memory_bytes])[0]
        tokens, requests_at_once = get_kv_cache_capacity(vllm_config, generate_scheduler_kv_cache_config([worker]))
        bytes_per_block = _pool_bytes_per_block(vllm_config, worker.kv_cache_groups)

    groups = []
    for group in worker.kv_cache_groups:
        spec, names = group.kv_cache_spec, tuple(group.layer_names)
        per_layer = spec.kv_cache_specs if isinstance(spec, UniformTypeKVCacheSpecs) else dict.fromkeys(names, spec)
        groups.append(
            (
                _kind_of(spec),
                names,
                spec.block_size,
                sum(per_layer[name].page_size_bytes for name in names),
                sum(per_layer[name].real_page_size_bytes for name in names),
            )
        )
    return RealPlan(
        groups=groups,
        bytes_per_block=bytes_per_block,
        num_blocks=worker.num_blocks,
        tokens=tokens,
        requests_at_once=requests_at_once,
    )


def _kind_of(spec: Any) -> str:
    """vLLM has no name for circular buffers."""
    from vllm.v1.kv_cache_interface import CircularBufferSpec as Circular, get_kv_cache_spec_kind

    first = getattr(spec, "first_spec", spec)
    return CircularBufferSpec.kind if isinstance(first, Circular) else str(get_kv_cache_spec_kind(spec).value)


def to_vllm(spec: KVCacheSpec) -> Any:
    """The same layer in vLLM's class."""
    import torch
    from vllm.v1 import kv_cache_interface as vllm

    if isinstance(spec, MambaSpec):
        return vllm.MambaSpec(
            block_size=spec.block_size,
            shapes=spec.shapes,
            dtypes=tuple(getattr(torch, dtype.value) for dtype in spec.dtypes),
            page_size_padded=spec.page_size_padded,
            num_speculative_blocks=spec.num_speculative_tokens,
            mamba_cache_mode="align",
        )
    assert isinstance(spec, AttentionSpec)
    common: dict[str, Any] = {
        "block_size": spec.block_size,
        "num_kv_heads": spec.num_kv_heads,
        "head_size": spec.head_size,
        "dtype": torch.float8_e4m3fn if spec.dtype is CacheDType.FP8_E4M3 else getattr(torch, spec.dtype.value),
        "page_size_padded": spec.page_size_padded,
    }
    if spec.head_size_v is not None:
        common["head_size_v"] = spec.head_size_v
    return _attention_to_vllm(spec, common)


def _attention_to_vllm(spec: AttentionSpec, common: Mapping[str, Any]) -> Any:
    from vllm.v1 import kv_cache_interface as vllm

    match spec:
        case CircularBufferSpec():
            return vllm.CircularBufferSpec(**common)
        case MLAAttentionSpec():
            return vllm.MLAAttentionSpec(
                **common, state_content_bytes=spec.state_bytes, tokens_per_state=spec.tokens_per_state
            )
        case SinkFullAttentionSpec():
            return vllm.SinkFullAttentionSpec(**common, sink_len=spec.sink_len)
        case FullAttentionSpec():
            return vllm.FullAttentionSpec(**common)
        case SlidingWindowMLASpec():
            return vllm.SlidingWindowMLASpec(**common, sliding_window=spec.sliding_window)
        case SlidingWindowSpec():
            return vllm.SlidingWindowSpec(**common, sliding_window=spec.sliding_window)
        case ChunkedLocalAttentionSpec():
            return vllm.ChunkedLocalAttentionSpec(**common, attention_chunk_size=spec.attention_chunk_size)
        case CrossAttentionSpec():
            return vllm.CrossAttentionSpec(**common)
        case _:
            raise TypeError(spec)


def from_vllm(spec: Any, block_size: int) -> KVCacheSpec:
    """The same layer in Octavo's class, with the block size that a model's config is read with."""
    from vllm.v1 import kv_cache_interface as vllm

    if isinstance(spec, vllm.MambaSpec):
        return MambaSpec(
            block_size=block_size, shapes=spec.shapes, dtypes=tuple(CacheDType.parse(str(d)) for d in spec.dtypes)
        )
    common: dict[str, Any] = {
        "block_size": block_size,
        "num_kv_heads": spec.num_kv_heads,
        "head_size": spec.head_size,
        "head_size_v": spec.head_size_v,
        "dtype": CacheDType.parse(str(spec.dtype)),
    }
    match spec:
        case vllm.MLAAttentionSpec():
            return MLAAttentionSpec(**common, state_bytes=spec.state_content_bytes)
        case vllm.FullAttentionSpec():
            return FullAttentionSpec(**common)
        case vllm.SlidingWindowSpec():
            return SlidingWindowSpec(**common, sliding_window=spec.sliding_window)
        case vllm.ChunkedLocalAttentionSpec():
            return ChunkedLocalAttentionSpec(**common, attention_chunk_size=spec.attention_chunk_size)
        case vllm.CrossAttentionSpec():
            return CrossAttentionSpec(**common)
        case _:
            raise TypeError(spec)
