"""Damaged, hostile and unknown configs: one clear line each, never a traceback."""

import json
import os
from pathlib import Path

import pytest

from octavo.errors import InputError, ModelConfigError, UnknownArchitectureError
from octavo.planning.models import layers_from_config, read_model

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": None}, "config: num_hidden_layers is missing"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers must be a whole number of 1 or more, not '4'"),
        ({"num_hidden_layers": True}, "not true"),
        ({"num_hidden_layers": 0}, "not 0"),
        ({"num_hidden_layers": -3}, "not -3"),
        ({"num_hidden_layers": 4.0}, r"not 4\.0"),
        ({"num_hidden_layers": 10**9}, "asks for 1000000000 layers; more than 10000 are refused"),
        ({"num_hidden_layers": 10**5000}, "is a number of thousands of digits; more than"),
        ({"num_attention_heads": None}, "num_attention_heads is missing"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": 2}, "hidden_size is smaller than num_attention_heads = 4"),
        ({"num_key_value_heads": 3}, "num_attention_heads = 4 is not a multiple of 3"),
        ({"head_dim": [1]}, "head_dim must be a whole number"),
        ({"layer_types": ["full_attention"]}, "layer_types lists 1 layer, but num_hidden_layers = 4"),
        ({"layer_types": "full"}, "layer_types must be a list, not 'full'"),
        ({"layer_types": [4]}, "layer_types must be text"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is missing"),
        ({"layer_types": ["sliding_attention"] * 4, "sliding_window": 0}, "sliding_window must be .* not 0"),
        ({"torch_dtype": "float64"}, "torch_dtype = 'float64' is none of"),
        ({"torch_dtype": 16}, "torch_dtype must be text"),
        ({"architectures": "Llama"}, "architectures must be a list"),
        ({"architectures": ["a\nb"]}, "architectures must be text"),
        ({"model_type": 7}, "model_type must be text"),
        ({"model_type": "x" * 300}, "model_type must be text"),
        ({"text_config": []}, "text_config must be an object"),
        ({"text_config": {"hidden_size": 1}}, r"config: text_config\.num_hidden_layers is missing"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings must be a whole number"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window must be .* not 0"),
        ({"model_type": "qwen2", "use_sliding_window": "no"}, "use_sliding_window must be true or false"),
        ({"model_type": "llama4", "no_rope_layers": [1]}, "no_rope_layers lists 1 layer, but there are 4"),
        ({"model_type": "llama4", "no_rope_layers": [1, -1, 0, 0]}, "no_rope_layers must list"),
        ({"model_type": "gemma3n", "num_kv_shared_layers": 4}, "some have no earlier layer to share with"),
        ({"model_type": "gemma4", "num_kv_shared_layers": 1}, "some have no earlier layer to share with"),
        ({"model_type": "deepseek_v32", "index_head_dim": 100}, "index_head_dim = 100 is not a multiple of 128"),
        ({"model_type": "jamba", "attn_layer_offset": 8}, "attn_layer_offset = 8 must be smaller"),
        ({"model_type": "bamba", "attn_layer_indices": [9]}, "attn_layer_indices names a layer beyond"),
        ({"model_type": "bamba", "mamba_n_heads": 3}, "mamba_n_heads = 3 does not divide"),
        ({"model_type": "lfm2", "conv_L_cache": 1}, "conv_L_cache must be a whole number of 2 or more"),
        ({"model_type": "mamba2", "mamba_ssm_dtype": "int8"}, "mamba_ssm_dtype = 'int8' is none of"),
        ({"model_type": "zamba2"}, "layers_block_type is missing"),
        ({"model_type": "nemotron_h"}, "hybrid_override_pattern is missing"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-"}, "lists 2 layers, but num_hidden_layers = 4"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "----"}, "no layer that keeps anything"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": 5}, "hybrid_override_pattern must be text"),
        ({"model_type": "whisper"}, "decoder_layers is missing"),
        ({"model_type": "whisper", "decoder_layers": 1, "decoder_attention_heads": 3, "d_model": 8}, "d_model = 8"),
        ({"model_type": "kimi_linear", "linear_attn_config": {}}, r"linear_attn_config\.num_heads is missing"),
    ],
)
def test_damaged_configs(changes, message):
    with pytest.raises(ModelConfigError, match=message) as caught:
        layers_from_config({**LLAMA, **changes})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("config: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention", "warp", "warp", "warp"]}, r"layer_types\[1\] = 'warp' is none of"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX--"}, r"hybrid_override_pattern\[1\] = 'X'"),
        ({"model_type": "new", "mamba_d_state": 16}, "mamba_d_state cannot be guessed at"),
        ({"model_type": "new", "num_attention_heads": None}, "lacks num_attention_heads to guess from"),
        ({"model_type": "new", "hidden_size": None}, "lacks head_dim or hidden_size"),
        ({"model_type": "new", "layer_types": ["warp"] * 4}, r"layer_types\[0\] = 'warp'"),
    ],
)
def test_unknown_architectures(changes, message):
    with pytest.raises(UnknownArchitectureError, match=message) as caught:
        layers_from_config({**LLAMA, **changes})
    assert "--layers spec.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[]", r"must hold a JSON object, not \[\]"),
        ("null", "must hold a JSON object, not null"),
        ('{"a": ' + "9" * 5000 + "}", "has a number of too many digits"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_files_that_are_no_config(tmp_path, text, message):
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(ModelConfigError, match=message) as caught:
        read_model(file)
    assert str(file) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ModelConfigError, match="no such file"):
        read_model(tmp_path / "absent.json")
    with pytest.raises(ModelConfigError, match=r"no config\.json in this folder"):
        read_model(tmp_path)
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ModelConfigError, match="not a file"):
        read_model(tmp_path)
    with pytest.raises(ModelConfigError, match=r"cannot be read|no such file"):
        read_model("null\0byte")
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ModelConfigError, match="not UTF-8"):
        read_model(latin)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelConfigError, match="not a file"):
        read_model(tmp_path / "pipe")


def test_a_huge_file_is_not_read(tmp_path):
    file = tmp_path / "weights.json"
    with file.open("wb") as out:
        out.truncate(17 * 2**20)
    with pytest.raises(ModelConfigError, match="larger than"):
        read_model(file)


def test_a_folder_and_a_byte_order_mark(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert len(read_model(str(tmp_path)).layers) == 4


def test_messages_name_the_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "num_hidden_layers": None}))
    with pytest.raises(InputError, match="num_hidden_layers") as caught:
        read_model(Path(tmp_path))
    assert str(file) in str(caught.value)
