"""Architectures that nobody registered: what is guessed, and that it is said."""

import pytest

from octavo.errors import UnknownArchitectureError
from octavo.planning.models import layers_from_config

NEW = {
    "architectures": ["BrandNewForCausalLM"],
    "model_type": "brand_new",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
}


@pytest.mark.parametrize(
    ("changes", "kinds", "from_keys"),
    [
        ({}, ["full_attention"] * 4, "num_key_value_heads, head_dim"),
        ({"sliding_window": 32}, ["sliding_window"] * 4, "sliding_window"),
        ({"sliding_window": 32, "use_sliding_window": False}, ["full_attention"] * 4, "head_dim"),
        (
            {"sliding_window": 32, "sliding_window_pattern": 2},
            ["sliding_window", "full_attention"] * 2,
            "sliding_window_pattern",
        ),
        (
            {"sliding_window": 32, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]},
            ["full_attention"] * 3 + ["sliding_window"],
            "layer_types",
        ),
        ({"kv_lora_rank": 256, "qk_rope_head_dim": 32}, ["mla_attention"] * 4, "kv_lora_rank, qk_rope_head_dim"),
    ],
)
def test_guesses_are_noted_with_their_keys(changes, kinds, from_keys):
    model = layers_from_config({**NEW, **changes})
    assert [spec.kind for spec in model.layers.values()] == kinds
    (note,) = model.notes
    assert "Unknown architecture BrandNewForCausalLM" in note
    assert from_keys in note
    assert "--layers spec.yaml" in note


def test_a_known_architecture_is_not_called_a_guess():
    assert layers_from_config({**NEW, "model_type": "llama"}).notes == ()


def test_a_wrapper_of_a_known_text_model_is_not_a_guess():
    config = {"model_type": "brand_new", "text_config": {**NEW, "model_type": "llama"}}
    assert layers_from_config(config).notes == ()


@pytest.mark.parametrize("key", ["heads_per_layer", "block_configs", "sizes"])
def test_a_list_with_an_entry_for_each_layer_is_not_passed_over(key):
    with pytest.raises(UnknownArchitectureError, match=f"no reader knows {key} = .*octavo plan --layers spec.yaml"):
        layers_from_config({**NEW, key: [2, 2, 1, 1]})
    assert layers_from_config({**NEW, key: [2, 2, 1]}).layers
    assert layers_from_config({**NEW, "model_type": "llama", key: [2, 2, 1, 1]}).layers


@pytest.mark.parametrize("key", ["eos_token_id", "mlp_layer_types", "architectures"])
def test_lists_of_other_things_may_be_as_long(key):
    assert layers_from_config({**NEW, key: ["a", "b", "c", "d"]}).layers


def test_an_encoder_is_not_passed_over():
    with pytest.raises(UnknownArchitectureError, match="is_encoder_decoder cannot be guessed at"):
        layers_from_config({**NEW, "is_encoder_decoder": True})
    assert layers_from_config({**NEW, "is_encoder_decoder": False}).layers


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": None, "multi_query": True},  # Falcon 7B
        {"num_key_value_heads": None, "num_kv_heads": 2},  # Falcon 40B
        {"num_key_value_heads": None, "multi_query_group_num": 2},  # ChatGLM
        {"num_key_value_heads": None, "num_attention_groups": 1},  # Step-3
        {"num_key_value_heads": None, "attention_kv_lora_dim": 512},  # openPangu
        {"num_key_value_heads_per_layer": [2, 1]},
        {"v_head_dim": 32},
        {"layer_head_dim": [64, 64, 32, 32]},
        {"global_head_size": {"full_attention": 128}},
        {"head_dim": None, "hidden_size": 256, "attention_head_dim": 64},
        {"use_cla": True},  # Hunyuan: layers share what others cached
        {"loop_num": 2},
        {"total_ut_steps": 4},  # Ouro runs its layers four times
        {"layer_group_size": 5},
        {"attention_other_setting": {"num_attention_heads": 12}},
    ],
)
def test_heads_and_layers_under_other_names_are_not_passed_over(changes):
    *_, key = changes
    with pytest.raises(UnknownArchitectureError, match=f"no reader knows {key} = .*octavo plan --layers spec.yaml"):
        layers_from_config({**NEW, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"num_kv_heads": 2, "attention_head_dim": 64, "kv_channels": 64, "qkv_bias": True, "use_cla": False},
        {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
        {
            "sliding_window": 32,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "sliding_window_pattern": "LLLG",  # EXAONE 4
            "global_attn_every_n_layers": 4,  # AFMoE
        },
    ],
)
def test_what_other_names_repeat_is_no_reason_to_refuse(changes):
    assert len(layers_from_config({**NEW, **changes}).layers) == 4


@pytest.mark.parametrize("name", ["rwkv6", "jet_linear", "some_hybrid", "xlm-roberta", "modernbert"])
def test_a_model_named_after_other_layers_is_no_guess(name):
    with pytest.raises(UnknownArchitectureError, match=r"a model called \w+ keep is no guess"):
        layers_from_config({**NEW, "model_type": name})
