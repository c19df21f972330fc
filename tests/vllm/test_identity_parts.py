"""The parts of an engine's identity: what decides the bytes of chunks is among them, and nothing else is."""

import re
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from vllm import envs
    from vllm.config import KernelConfig, LoadConfig
    from vllm.config.quantization import resolve_quantization_config
    from vllm.model_executor.layers.rotary_embedding.phi3_long_rope_scaled_rope import Phi3LongRoPEScaledRotaryEmbedding
    from vllm.model_executor.models.llama import LlamaForCausalLM, LlamaModel

    from octavo.vllm_plugin.adapter.identity_parts import (
        VARIABLES_OF_BYTES,
        depends_on_length,
        describe_kernels,
        describe_loading,
        describe_quantization,
        describe_speculation,
    )

pytestmark = [pytest.mark.vllm, pytest.mark.every_vllm, pytest.mark.filterwarnings("ignore")]


def test_a_folder_may_have_other_weights_in_each_format() -> None:
    def describe(load: LoadConfig, draft: LoadConfig | None = None) -> dict[str, str]:
        speculation = SimpleNamespace(draft_load_config=draft)
        return describe_loading(SimpleNamespace(load_config=load, speculative_config=speculation))  # type: ignore[arg-type]

    assert describe(LoadConfig(model_loader_extra_config={"num_threads": 2})) == {}
    sharded = {"load_format": "sharded_state"}
    described = [
        describe(LoadConfig(load_format="pt")),
        describe(LoadConfig(), LoadConfig(load_format="pt")),
        describe(LoadConfig(**sharded)),
        describe(LoadConfig(**sharded, model_loader_extra_config={"pattern": "rank-{rank}-{part}"})),
    ]
    assert len({parts["load_format"] for parts in described}) == len(described)


def test_weights_that_are_quantized_in_another_way_are_others() -> None:
    """All but the last are `online` for vLLM."""
    asked = [("online", {"linear": "fp8_per_tensor"}), ("online", {"linear": "fp8_per_block"})]
    asked += [("online", {"linear": "fp8_per_tensor", "ignore": ["lm_head"]}), (None, None)]
    described = [
        describe_quantization(
            SimpleNamespace(quantization=name, quantization_config=resolve_quantization_config(name, given))  # type: ignore[arg-type]
        )
        for name, given in asked
    ]
    assert len(set(described)) == len(asked)
    assert described[-1] == "None"
    assert not any(" at 0x" in text for text in described), "it is the same in every process"


def test_drafts_are_others_by_their_model_and_not_by_its_path() -> None:
    def describe(
        method: str = "draft_model", layers: int = 1, path: str = "/m", quantization: str | None = None
    ) -> str:
        config = {"num_layers": layers, "_name_or_path": path, "text_config": {"_name_or_path": path}}
        draft = SimpleNamespace(
            hf_config=SimpleNamespace(to_dict=lambda: config), dtype="bfloat16", quantization=quantization
        )
        speculation = SimpleNamespace(method=method, num_speculative_tokens=2, draft_model_config=draft, model=path)
        return describe_speculation(speculation)  # type: ignore[arg-type]

    assert describe() == describe(path="/elsewhere")
    others = [
        describe(),
        describe("eagle"),
        describe(layers=2),
        describe(quantization="fp8"),
        describe_speculation(None),
    ]
    assert len(set(others)) == len(others)
    assert describe("custom_class") != describe("custom_class", path="somebody.Drafter")
    assert describe("ngram") == describe_speculation(None), "no model and no cache of its own"
    of_the_models_own = SimpleNamespace(method="mtp", num_speculative_tokens=2, draft_model_config=None, model=None)
    assert describe_speculation(of_the_models_own) not in others  # type: ignore[arg-type]


def test_what_a_person_says_of_kernels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(additional: Any, **chosen: Any) -> dict[str, str]:
        return describe_kernels(
            SimpleNamespace(kernel_config=KernelConfig(**chosen), additional_config=additional)  # type: ignore[arg-type]
        )

    monkeypatch.delenv("VLLM_MARLIN_INPUT_DTYPE", raising=False)
    assert describe({}) == {}
    assert describe({}, moe_backend="triton") == {"kernels": "{'moe_backend': 'triton'}"}
    assert describe({"a": 1}) == {"additional_config": "{'a': 1}"}
    assert describe(SimpleNamespace(compute_hash=lambda: "abc")) == {"additional_config": "abc"}
    monkeypatch.setenv("VLLM_MARLIN_INPUT_DTYPE", "fp8")
    assert describe({}) == {"environment": "{'VLLM_MARLIN_INPUT_DTYPE': 'fp8'}"}


_SOUNDS_LIKE_OTHER_BYTES = re.compile("QUANT|DTYPE|PRECISION|FP4|FP8|F16|INT4|INT8|A16|A8|LAYOUT|SIMULATION")
_TOLD_ELSEWHERE = {"VLLM_KV_CACHE_LAYOUT", "VLLM_SSM_CONV_STATE_LAYOUT"}
_OTHER_KERNELS = {
    "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER",
    "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE",
    "VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD",
    "VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD",
    "VLLM_ROCM_FP8_PADDING",
    "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM",
    "VLLM_USE_FLASHINFER_MOE_INT4",
    "VLLM_XPU_INC_WNA16_BACKEND",
}
"""They choose how weights lie or which kernel reads them, at the same number of bits."""


def test_no_variable_that_sounds_like_other_bytes_is_left_out() -> None:
    """A new vLLM has new ones."""
    sounding = {name for name in envs.environment_variables if _SOUNDS_LIKE_OTHER_BYTES.search(name)}
    assert sounding - _TOLD_ELSEWHERE - _OTHER_KERNELS <= set(VARIABLES_OF_BYTES)


@pytest.mark.parametrize("depends", [False, True])
def test_whose_bytes_depend_on_the_longest_context(depends: bool) -> None:
    classes = [LlamaForCausalLM, LlamaModel] + [Phi3LongRoPEScaledRotaryEmbedding] * depends
    model = SimpleNamespace(modules=lambda: [cls.__new__(cls) for cls in classes])
    assert depends_on_length(model) is depends  # type: ignore[arg-type]


def test_of_a_model_that_is_not_shown_or_has_no_source_the_longest_context_counts() -> None:
    nameless = type("Nameless", (), {"__module__": "of nobody"})
    assert depends_on_length(None)
    assert depends_on_length(SimpleNamespace(modules=lambda: [nameless()]))  # type: ignore[arg-type]
