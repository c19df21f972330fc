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


@pytest.mark.parametrize("key", ["num_key_value_heads_per_layer", "block_configs", "sizes"])
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
