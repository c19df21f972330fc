"""How large weights are: as the files say, as transformers builds the model, or unknown."""

import json
from pathlib import Path

import pytest

from octavo.errors import InputError, NotEnoughMemoryError
from octavo.planning import cache_bytes, layers_from_config, read_model

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "dtype": "bfloat16",
}
MODELS = Path(__file__).parents[3] / "examples" / "models"
GIB = 1 << 30


@pytest.mark.parametrize("ranks", [1, 8])
def test_llama_70b_has_70_6_billion_parameters_whatever_the_ranks(ranks):
    weight_bytes = layers_from_config(LLAMA, tensor_parallel_size=ranks).weight_bytes
    assert weight_bytes == pytest.approx(2 * 70.55e9, rel=0.001)


@pytest.mark.parametrize(
    "name", ["qwen3-next-80b", "deepseek-v3", "bamba-9b", "gpt-oss-20b", "llama-4-scout", "jamba-1.5-mini"]
)
def test_the_estimate_is_what_transformers_builds(name):
    torch = pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**json.loads((MODELS / f"{name}.json").read_text()))
    config = getattr(config, "text_config", config)
    config.num_hidden_layers = len(getattr(config, "layer_types", None) or range(config.num_hidden_layers))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    values = {**json.loads(config.to_json_string(use_diff=False)), "dtype": "bfloat16"}
    weight_bytes = layers_from_config(values).weight_bytes
    assert weight_bytes == pytest.approx(2 * sum(weights.numel() for weights in model.parameters()), rel=0.01)


@pytest.mark.parametrize(
    "change",
    [{"vocab_size": None}, {"intermediate_size": None}, {"quantization_config": {"bits": 4}}, {"model_type": "other"}],
)
def test_what_cannot_be_told_is_not_guessed(change):
    assert layers_from_config({**LLAMA, **change}).weight_bytes is None


def test_files_beside_the_config_say_it_best(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    assert read_model(tmp_path).weight_bytes == 1000
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"metadata": {"total_size": 5000}}')
    assert read_model(tmp_path).weight_bytes == 5000
    for damaged in (
        "{}",
        "[",
        '{"metadata": {"total_size": -1}}',
        '{"metadata": 3}',
        '{"metadata": {"total_size": true}}',
    ):
        index.write_text(damaged)
        assert read_model(tmp_path).weight_bytes > 1e11


def test_a_gpu_has_what_the_weights_leave():
    assert cache_bytes("H100", 140 * GIB, 4) == (80 * 90 // 100 - 35) * GIB
    with pytest.raises(NotEnoughMemoryError, match="140 GiB of weights per rank do not fit 72 GiB, 90% of a h100"):
        cache_bytes("h100", 140 * GIB, 1)
    with pytest.raises(InputError, match=r"unknown gpu 'h10'; did you mean '.*'\? there are: a10"):
        cache_bytes("h10", GIB, 1)
