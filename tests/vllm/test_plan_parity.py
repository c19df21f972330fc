"""`plan_like_vllm` says what the real vLLM says: for real-sized models that vLLM itself builds (on the meta device, so
that it picks block sizes and padding), and for layers that no model here has on a CPU."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from layer_sets import LAYER_SETS, PACKED, REFUSED, SAME_BYTES
from real_vllm import (
    BLOCKS_OUTERMOST,
    RealPlan,
    config_without_weights,
    engine_config,
    from_vllm,
    layers_as_sized_by_platform,
    layers_of_model,
    plan_of,
    to_vllm,
)

from octavo.errors import PlanError
from octavo.planning import layers_from_config, read_model
from octavo.planning.vllm_way import VllmPlan, plan_like_vllm
from octavo.specs import KVCacheSpec, RequestLimits

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),
]

MEMORY = 64 << 30
LIMITS = RequestLimits(max_model_len=131072, max_step_tokens=8192, max_encoder_tokens=1500)

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"
NOT_BUILT = {
    "bamba-9b": "vLLM dropped it in 0.23",
    "deepseek-v3.2": "vLLM's CPU platform has no sparse attention",
    "lfm3-1.7b": "vLLM 0.32 does not know it",
    "qwen3.5-27b": "vLLM builds it only with torchvision",
}
"""Models whose layers vLLM is given, as Octavo reads them."""
ARGUMENTS = {
    # Its config.json is silent about the state's type. vLLM then takes the model's, bfloat16; Octavo's reader says
    # float32, as the reference code computes it and as vLLM does where its own CPU kernels run.
    "qwen3-next-80b": {"mamba_ssm_cache_dtype": "float32"},
}
PACKED_MODELS = {
    "deepseek-v4-flash": {"block_size": 256},
    "glm-5.3-flash": {},
    "qwen3.8-flash-next": {"mamba_ssm_cache_dtype": "float32"},
}
BUILT = sorted({path.stem for path in EXAMPLES.glob("*.json")} - {*NOT_BUILT, *PACKED_MODELS})


Plan = TypeVar("Plan", VllmPlan, RealPlan)


def assert_same(ours: VllmPlan, real: RealPlan) -> None:
    said = [(g.kind, g.layer_names, g.block_size, g.page_size_bytes, g.useful_page_bytes) for g in ours.groups]
    assert said == real.groups
    assert ours.bytes_per_block == real.bytes_per_block
    assert ours.num_blocks == real.num_blocks
    assert ours.tokens == real.tokens
    assert ours.requests_at_once == real.requests_at_once


@pytest.mark.parametrize("model", BUILT)
def test_models_that_vllm_builds(model: str, tmp_path: Path) -> None:
    """vLLM's own layers, and the layers that Octavo reads from the same file, plan like vLLM."""
    read = read_model(EXAMPLES / f"{model}.json")
    limits = replace(LIMITS, max_model_len=min(LIMITS.max_model_len, read.max_model_len or LIMITS.max_model_len))
    vllm_config = engine_config(
        config_without_weights(EXAMPLES / f"{model}.json"), tmp_path, limits, **ARGUMENTS.get(model, {})
    )
    real_layers = layers_of_model(vllm_config)
    real = plan_of(vllm_config, real_layers, MEMORY)
    spare_states = max(getattr(spec, "num_prefill_checkpoint_blocks", 0) for spec in real_layers.values())

    layers = {name: from_vllm(spec, 16) for name, spec in real_layers.items()}
    ours = plan_like_vllm(layers, memory_bytes=MEMORY, limits=limits, spare_states=spare_states)
    assert_same(ours, real)
    assert Counter(map(shape_of, read.layers.values())) == Counter(map(shape_of, layers.values()))
    from_file = plan_like_vllm(read.layers, memory_bytes=MEMORY, limits=limits, spare_states=spare_states)
    assert without_names(from_file) == without_names(ours)


@pytest.mark.parametrize("model", PACKED_MODELS)
def test_models_that_vllm_builds_and_packs(model: str, tmp_path: Path) -> None:
    """Their kernels want blocks outermost."""
    config = config_without_weights(EXAMPLES / f"{model}.json")
    vllm_config = engine_config(config, tmp_path, LIMITS, **PACKED_MODELS[model])
    vllm_config.cache_config.kv_cache_layout = BLOCKS_OUTERMOST
    real = plan_of(vllm_config, layers_of_model(vllm_config), MEMORY)
    ours = plan_like_vllm(layers_from_config(config).layers, memory_bytes=MEMORY, limits=LIMITS)
    assert_same(without_layer_names(ours), without_layer_names(real))


@pytest.mark.parametrize("block_size", [64, 256])
def test_deepseek_v41(block_size: int, tmp_path: Path) -> None:
    """Some layers keep records and keys for those that follow, of one token or of two."""
    config = deepseek_v41_config()
    vllm_config = engine_config(config, tmp_path, LIMITS, block_size=block_size)
    vllm_config.cache_config.kv_cache_layout = BLOCKS_OUTERMOST
    real = plan_of(vllm_config, layers_of_model(vllm_config), MEMORY)
    read = layers_from_config(config, block_size=block_size).layers
    ours = plan_like_vllm(read, memory_bytes=MEMORY, limits=LIMITS)
    assert_same(without_layer_names(ours), without_layer_names(real))


def deepseek_v41_config() -> dict[str, Any]:
    text = config_without_weights(EXAMPLES / "deepseek-v4-flash.json") | {
        "num_hidden_layers": 12,
        "compress_ratios": [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 1, 1, 0],
        "kv_source_layer_ids": [2, 5, 8, 10],
        "index_source_layer_ids": [2, 4, 5, 7, 8, 10],
        "rope_theta": 10000,
        "scoring_func": "sqrtsoftplus",
        "routed_scaling_factor": 1.5,
        "num_hash_layers": 0,
    }
    names = {"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "torch_dtype": "bfloat16"}
    return {**names, "text_config": {key: value for key, value in text.items() if key not in names}}


def without_layer_names(plan: Plan) -> Plan:
    """The groups with layers counted."""
    if isinstance(plan, RealPlan):
        return replace(plan, groups=[(kind, ("",) * len(names), *sizes) for kind, names, *sizes in plan.groups])
    return replace(
        plan, groups=tuple(replace(group, layer_names=("",) * len(group.layer_names)) for group in plan.groups)
    )


@pytest.mark.parametrize("case", PACKED)
def test_layers_that_a_kernel_wants_packed(case: str, llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama.cache_config, "kv_cache_layout", BLOCKS_OUTERMOST)
    monkeypatch.setattr(llama.cache_config, "mamba_cache_mode", "align")
    real = plan_of(llama, {name: to_vllm(spec) for name, spec in PACKED[case].items()}, MEMORY)
    assert_same(plan_like_vllm(PACKED[case], memory_bytes=MEMORY, limits=LIMITS), real)


def shape_of(spec: KVCacheSpec) -> tuple[str, int]:
    return spec.kind, spec.unpadded_page_size_bytes


def without_names(plan: VllmPlan) -> tuple[object, ...]:
    """The plan with layers counted: Octavo names them differently, and may read them in another order."""
    groups = Counter(
        (replace(group, layer_names=()), len(group.layer_names), blocks)
        for group, blocks in zip(plan.groups, plan.blocks_per_request, strict=True)
    )
    return groups, replace(plan, groups=(), blocks_per_request=())


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return engine_config(
        config_without_weights(EXAMPLES / "llama-3.1-8b.json"), tmp_path_factory.mktemp("llama"), LIMITS
    )


@pytest.mark.parametrize("case", [*LAYER_SETS, *NOT_BUILT])
def test_layers_that_octavo_describes(case: str, llama: Any) -> None:
    layers = LAYER_SETS.get(case) or read_model(EXAMPLES / f"{case}.json").layers
    real = plan_of(llama, layers_as_sized_by_platform(llama, layers, kernel_blocks(case)), MEMORY)
    assert_same(plan_like_vllm(layers, memory_bytes=MEMORY, limits=LIMITS), real)


def kernel_blocks(case: str) -> list[int]:
    """An indexer and the sparse attention that it serves take blocks of 64 tokens on CUDA, or of 128 over whole heads;
    all else takes 16."""
    if case == "heads and indexer":
        return [16, 128, 128]
    return [64, 64] if "indexer" in case or case == "deepseek-v3.2" else [16]


@pytest.mark.parametrize("layer", SAME_BYTES, ids=repr)
def test_page_bytes(layer: KVCacheSpec) -> None:
    assert layer.unpadded_page_size_bytes == to_vllm(layer).real_page_size_bytes


@pytest.mark.parametrize("case", REFUSED)
def test_layers_that_vllm_refuses(case: str, llama: Any) -> None:
    layers = REFUSED[case]
    with pytest.raises((NotImplementedError, ValueError)):
        plan_of(llama, layers_as_sized_by_platform(llama, layers, kernel_blocks(case)), MEMORY)
    with pytest.raises(PlanError, match="vLLM refuses"):
        plan_like_vllm(layers, memory_bytes=MEMORY, limits=LIMITS)
