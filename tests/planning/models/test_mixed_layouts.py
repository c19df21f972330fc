"""Families whose layers differ in ways of their own, and layouts that nobody knows: read rightly or refused."""

from collections import Counter

import pytest

from octavo.errors import ModelConfigError, UnknownArchitectureError
from octavo.planning import layers_from_config
from octavo.specs import FullAttentionSpec, MambaSpec, SlidingWindowSpec

MIMO = {
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 12,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "add_swa_attention_sink_bias": True,
    "attention_chunk_size": 128,
    "sliding_window": 128,
    "sliding_window_size": 128,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0],
}
PHI = {
    "model_type": "phi4flash",
    "num_hidden_layers": 32,
    "hidden_size": 2560,
    "num_attention_heads": 40,
    "num_key_value_heads": 20,
    "sliding_window": 512,
}
USUAL = {"model_type": "new", "num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64}


def kinds(config):
    return Counter(spec.kind for spec in layers_from_config(config).layers.values())


def test_mimo_has_other_heads_where_a_window_is():
    layers = layers_from_config(MIMO).layers
    full = FullAttentionSpec(block_size=16, num_kv_heads=4, head_size=192, head_size_v=128)
    window = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=192, head_size_v=128, sliding_window=129)
    pattern = MIMO["hybrid_layer_pattern"]
    assert list(layers.values()) == [window if is_windowed else full for is_windowed in pattern]


def test_mimo_without_a_pattern_is_full_in_the_first_and_every_sixth_layer():
    config = {key: value for key, value in MIMO.items() if key not in ("hybrid_layer_pattern", "attention_chunk_size")}
    words = [spec.kind for spec in layers_from_config(config).layers.values()]
    assert [index for index, word in enumerate(words) if word == "full_attention"] == [0, 5, 11]


def test_mimo_as_transformers_saves_it_has_twice_the_heads_where_a_window_is():
    saved = {key: value for key, value in MIMO.items() if "swa" not in key and key != "hybrid_layer_pattern"}
    words = ["sliding_attention" if is_windowed else "full_attention" for is_windowed in MIMO["hybrid_layer_pattern"]]
    assert layers_from_config({**saved, "layer_types": words}).layers == layers_from_config(MIMO).layers


def test_minimax_text_keeps_a_matrix_per_head():
    config = {**USUAL, "model_type": "minimax_text_01", "head_dim": 16, "attn_type_list": [0, 0, 0, 1]}
    state = MambaSpec(block_size=16, shapes=((4, 16, 16),), dtypes=("bfloat16",))
    full = FullAttentionSpec(block_size=16, num_kv_heads=4, head_size=16)
    layers = layers_from_config({**config, "num_key_value_heads": 4}).layers
    assert list(layers.values()) == [state, state, state, full]


def test_minimax_m2_is_full():
    assert kinds({**USUAL, "model_type": "minimax_m2", "num_key_value_heads": 4}) == {"full_attention": 4}


def test_recurrent_gemma_repeats_its_blocks():
    config = {**USUAL, "model_type": "recurrent_gemma", "num_hidden_layers": 5, "lru_width": 48}
    layers = layers_from_config(config).layers
    state = MambaSpec(block_size=16, shapes=((3, 48), (48,)), dtypes=("bfloat16", "float32"))
    window = SlidingWindowSpec(block_size=16, num_kv_heads=4, head_size=16, sliding_window=2048)
    assert list(layers.values()) == [state, state, window, state, state]
    with pytest.raises(UnknownArchitectureError, match="'latent' is none of recurrent, sliding_attention"):
        layers_from_config({**config, "block_types": ["latent"]})


def test_plamo_looks_at_a_window_unless_a_layer_is_listed():
    config = {**USUAL, "model_type": "plamo2", "num_key_value_heads": 4, "hidden_size_per_head": 16}
    layers = layers_from_config(
        {**config, "mamba_num_heads": 8, "full_attention_idx": [3], "mamba_chunk_size": 8}
    ).layers
    state = MambaSpec(block_size=16, shapes=((3, 128), (8, 16, 64)), dtypes=("bfloat16", "bfloat16"))
    window = SlidingWindowSpec(block_size=16, num_kv_heads=4, head_size=16, sliding_window=2048)
    full = FullAttentionSpec(block_size=16, num_kv_heads=4, head_size=16)
    assert list(layers.values()) == [state, window, state, full]
    assert set(kinds({**config, "mamba_enabled": False})) == {"sliding_window"}


@pytest.mark.parametrize("windows", [512, [None, 512] * 8 + [None] * 16])
def test_phi_flash_caches_in_its_first_half_only(windows):
    config = {**PHI, "sliding_window": windows}
    assert kinds(config) == {"mamba": 9, "sliding_window": 8, "full_attention": 1}
    layers = layers_from_config(config).layers
    assert list(layers)[-1] == "layers.17.attn"
    assert {spec.sliding_window for spec in layers.values() if isinstance(spec, SlidingWindowSpec)} == {512}


@pytest.mark.parametrize(
    "key", ["layer_pattern", "full_attn_interval", "global_attn_every_n_layers", "swa_heads", "chunk_len", "hybrid_ids"]
)
@pytest.mark.parametrize("model_type", ["new", "llama"])
def test_a_key_that_may_say_how_layers_differ_is_read_or_refused(model_type, key):
    config = {**USUAL, "model_type": model_type, "num_key_value_heads": 4}
    with pytest.raises(UnknownArchitectureError, match=f"no reader knows {key} = 3.*--layers spec.yaml"):
        layers_from_config({**config, key: 3})
    assert layers_from_config({**config, key: None}).layers
    assert layers_from_config({**config, "chunk_size_feed_forward": 8, "moe_layer_interval": 2}).layers


def test_a_list_of_all_layers_stands_above_what_it_was_made_from():
    config = {**USUAL, "model_type": "llama", "num_key_value_heads": 4, "some_pattern": 3}
    assert kinds({**config, "layer_types": ["full_attention"] * 4}) == {"full_attention": 4}
    with pytest.raises(ModelConfigError, match="must be equally many"):
        layers_from_config({**MIMO, "num_hidden_layers": 13})
