"""One rank's share of a model, and the types of what it keeps."""

from pathlib import Path

import pytest

from octavo.errors import InputError, ModelConfigError
from octavo.planning.models import layers_from_config, read_model
from octavo.specs import CacheDType

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"


def read(name, **options):
    return read_model(EXAMPLES / f"{name}.json", **options).layers


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (32, 1)])
def test_kv_heads_are_split_then_replicated(ranks, heads):
    assert read("llama-3.1-8b", tensor_parallel_size=ranks)["layers.0.attn"].num_kv_heads == heads


def test_latents_and_indexers_are_replicated():
    assert read("deepseek-v3.2", tensor_parallel_size=8) == read("deepseek-v3.2")


@pytest.mark.parametrize(
    ("name", "layer", "ranks", "shapes"),
    [
        ("qwen3-next-80b", "layers.0.linear_attn", 4, ((3, 2048), (8, 128, 128))),
        ("nemotron-h-8b", "layers.0.mamba", 8, ((3, 1024 + 2 * 128), (16, 64, 128))),
        ("granite-4.0-h-small", "layers.0.mamba", 4, ((3, 2048 + 2 * 128), (32, 64, 128))),  # one group: replicated
        ("zamba2-7b", "layers.0.mamba", 2, ((3, 3584 + 2 * 64), (56, 64, 64))),
        ("jamba-1.5-mini", "layers.0.mamba", 8, ((3, 1024), (1024, 16))),
        ("lfm2-1.2b", "layers.0.conv", 8, ((2, 256),)),
    ],
)
def test_states_are_split_by_heads_and_groups(name, layer, ranks, shapes):
    assert read(name, tensor_parallel_size=ranks)[layer].shapes == shapes


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("llama-3.1-8b", 3, "num_attention_heads = 32 cannot be split over tensor_parallel_size = 3"),
        ("falcon-h1-7b", 3, "num_key_value_heads = 2 can neither be split over tensor_parallel_size = 3"),
        ("nemotron-h-8b", 16, "the number of SSM groups = 8 can neither be split"),
        ("zamba2-7b", 4, "the number of SSM groups = 2 can neither be split"),
        ("qwen3-next-80b", 3, "linear_num_key_heads = 16 cannot be split"),
        ("deepseek-v3", 3, "num_attention_heads = 128 cannot be split"),
        ("jamba-1.5-mini", 3, "intermediate size = 8192 cannot be split"),
        ("lfm2-1.2b", 3, "width = 2048 cannot be split"),
    ],
)
def test_impossible_splits_are_refused(name, ranks, message):
    with pytest.raises(ModelConfigError, match=message):
        read(name, tensor_parallel_size=ranks)


@pytest.mark.parametrize("name", ["tensor_parallel_size", "block_size"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2", None])
def test_sizes_must_be_whole_numbers(name, value):
    with pytest.raises(InputError, match=f"{name} must be a whole number"):
        read("llama-3.1-8b", **{name: value})


def test_block_size_is_that_of_every_layer():
    assert {spec.block_size for spec in read("jamba-1.5-mini", block_size=64).values()} == {64}


def test_kv_dtype_changes_attention_only():
    layers = read("qwen3.5-27b", kv_dtype="fp8")
    assert layers["layers.3.attn"].page_size_bytes == 16 * 2 * 4 * 256
    assert layers["layers.0.linear_attn"] == read("qwen3.5-27b")["layers.0.linear_attn"]


def test_kv_dtype_auto_is_the_models():
    assert read("whisper-large-v3", kv_dtype="auto")["layers.0.attn"].dtype is CacheDType.FLOAT16


def test_fp8_latents():
    assert read("deepseek-v3", kv_dtype="fp8")["layers.0.attn"].page_size_bytes == 16 * 576
    sparse = read("deepseek-v3.2", kv_dtype="fp8")
    assert sparse["layers.0.attn"].page_size_bytes == 16 * 656
    assert sparse["layers.0.indexer"].page_size_bytes == 16 * 132


def test_unknown_kv_dtype():
    with pytest.raises(InputError, match=r"kv_dtype: unknown dtype 'fp7'; known are"):
        read("llama-3.1-8b", kv_dtype="fp7")


TINY = {"model_type": "mamba2", "num_hidden_layers": 1, "hidden_size": 4096}


@pytest.mark.parametrize(
    ("changes", "dtypes"),
    [
        ({}, ("bfloat16", "bfloat16")),
        ({"torch_dtype": "float16"}, ("float16", "float16")),
        ({"dtype": "torch.float32"}, ("float32", "float32")),
        ({"mamba_ssm_dtype": "float32"}, ("bfloat16", "float32")),
        ({"mamba_ssm_cache_dtype": "float16", "mamba_ssm_dtype": "float32"}, ("bfloat16", "float16")),
        ({"mamba_ssm_cache_dtype": "auto"}, ("bfloat16", "bfloat16")),
    ],
)
def test_types_of_a_state(changes, dtypes):
    assert layers_from_config({**TINY, **changes}).layers["layers.0.mamba"].dtypes == dtypes


def test_the_text_parts_dtype_comes_first():
    text = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8, "dtype": "float16"}
    config = {"model_type": "llama", "torch_dtype": "bfloat16", "text_config": text}
    assert layers_from_config(config).layers["layers.0.attn"].dtype is CacheDType.FLOAT16


def test_a_float32_cache_is_noted():
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}
    assert any("float32" in note for note in layers_from_config({**config, "torch_dtype": "float32"}).notes)


@pytest.mark.parametrize(
    "quantised",
    [{"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {"kv_cache_quant_algo": "FP8"}],
    ids=["compressed-tensors", "modelopt"],
)
def test_a_quantised_cache_is_noted(quantised):
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}
    config["quantization_config"] = quantised
    for whole in (config, {"text_config": config}):
        (note,) = layers_from_config(whole).notes
        assert f"quantization_config.{next(iter(quantised))}), and bfloat16 is planned: set kv_dtype" in note
    assert not layers_from_config(config, kv_dtype="fp8").notes
    assert not layers_from_config({**config, "quantization_config": {"kv_cache_scheme": None}}).notes
