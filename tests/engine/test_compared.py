"""Configs that ask for what was not compared with Hugging Face are refused by name, whichever key it is."""

import json
from pathlib import Path

import pytest
import transformers
from greedy_engine import GreedyEngine
from test_families import NEW_TOKENS, PROMPTS, check_answers, plain_answer

from octavo.engine import load_model
from octavo.engine.hf_classes import type_of_loaded
from octavo.engine.models import compared
from octavo.engine.models.compared import check_compared
from octavo.engine.models.families import served_types
from octavo.engine.tiny_families import TINY_MODELS
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model, tiny_config, tiny_text
from octavo.errors import UnsupportedModelError

SHIPPED = sorted((Path(__file__).parents[2] / "examples" / "models").glob("*.json"))


def mutants_of(value):
    """Values that mean something else, as far as a type can tell."""
    match value:
        case bool():
            return [not value]
        case int() | float():
            return ["odd", None]
        case str():
            return ["odd", 7]
        case None:
            return [7, "odd", True]
        case list():
            return [["odd"], 7, None]
        case _:
            return [{"1": {"sliding_window": 8}}, 7]


def tiny_text_config(name):
    """The type of what is loaded, and the config of its text model."""
    config = tiny_config(name)
    return type_of_loaded(config), config.get_text_config(decoder=True)


@pytest.mark.parametrize("name", TINY_MODELS)
def test_no_key_may_be_anything(name):
    family, config = tiny_text_config(name)
    check_compared(family, config)
    num_refused = 0
    for key, value in config.to_dict().items():
        if key in (*compared._UNREAD, *compared._ROPE_KEYS, "model_type") or "dropout" in key:
            continue
        for mutant in mutants_of(value):
            if mutant in compared._ALSO.get(key, ()) or (key in compared._MAY_BE_ABSENT and mutant in (None, 7)):
                continue
            with pytest.raises(UnsupportedModelError, match=f"{key} = ") as refusal:
                check_compared(family, Altered(config, key, mutant))
            assert repr(mutant) in str(refusal.value)
            num_refused += 1
    assert num_refused >= 20


class Altered:
    """A config with another value that its class might not take."""

    def __init__(self, config, key, value):
        self._values = {**config.to_dict(), key: value}

    def to_dict(self):
        return self._values


@pytest.mark.parametrize("name", TINY_MODELS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a_new_key", 1),
        ("sliding_window_of_a_new_kind", 8),
        ("is_causal", False),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_unknown_keys_are_refused(name, key, value):
    family, config = tiny_text_config(name)
    with pytest.raises(UnsupportedModelError, match=f"{key} = .*remove it"):
        check_compared(family, Altered(config, key, value))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("deepseek_v4", "compress_rates", {"compressed_sparse_attention": 4}),
        ("deepseek_v4", "compress_rates", {"compressed_sparse_attention": 4, "a_new_kind": 8}),
        (
            "deepseek_v4",
            "compress_rates",
            {"compressed_sparse_attention": 4, "heavily_compressed_attention": "128"},
        ),
        ("gemma4", "per_layer_config", {"1": 7}),
    ],
)
def test_what_is_by_name_has_the_names_and_the_types_that_were_compared(name, key, value):
    family, config = tiny_text_config(name)
    with pytest.raises(UnsupportedModelError, match=f"{key} = "):
        check_compared(family, Altered(config, key, value))


ROPES = {
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


@pytest.mark.parametrize("rope", ROPES.values(), ids=list(ROPES))
@pytest.mark.parametrize("name", [name for name in TINY_MODELS if tiny_text(name).get("rope_parameters")])
def test_angles_that_depend_on_others_are_refused(name, rope):
    family, config = tiny_text_config(name)
    nested = next((k for k, v in config.rope_parameters.items() if isinstance(v, dict)), None)
    altered = rope if nested is None else {**config.rope_parameters, nested: rope}
    with pytest.raises(UnsupportedModelError, match=f"rope_type = '{rope['rope_type']}'"):
        check_compared(family, Altered(config, "rope_parameters", altered))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama", {"rope_parameters": ROPES["dynamic"]}, "rope_type = 'dynamic'"),
        ("llama", {"sliding_window": 32}, "sliding_window = 32"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 32}, "use_sliding_window = True|sliding_window = 32"),
    ],
)
def test_a_folder_that_asks_for_them_is_refused(tmp_path, name, change, message):
    save_tiny_model(name, tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_models_that_ship_are_taken(file):
    """Those of a served family."""
    raw = json.loads(file.read_text())
    config = transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
    if type_of_loaded(config) in served_types():
        check_compared(type_of_loaded(config), config.get_text_config(decoder=True))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu"}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}}),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                    "rope_theta": 10_000.0,
                }
            },
        ),
        (
            "deepseek_v3",
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "rope_theta": 10_000.0,
                    "original_max_position_embeddings": 64,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                },
                "q_lora_rank": None,
                "attention_bias": True,
                "norm_topk_prob": False,
            },
        ),
        ("glm5", {"indexer_types": None, "index_topk_freq": 2, "index_skip_topk_offset": 1, "attention_bias": True}),
        ("gemma3", {"final_logit_softcapping": 30.0, "attention_bias": True}),
        ("gemma4", {"attention_k_eq_v": True}),
        ("granite_hybrid", {"position_embedding_type": None, "mamba_proj_bias": True}),
        ("falcon_h1", {"mamba_rms_norm": True, "mamba_norm_before_gate": False, "projectors_bias": True}),
        ("lfm2", {"conv_bias": True}),
        (
            "deepseek_v4",
            {
                "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
                "compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 16},
                "layer_types": ["heavily_compressed_attention"] * 2 + ["compressed_sparse_attention"] * 2,
            },
        ),
    ],
)
def test_what_else_is_taken_was_compared(tmp_path, name, change):
    save_tiny_model(name, tmp_path, **change)
    model, plain = load_model(tmp_path), build_tiny_model(name, **change)
    engine = GreedyEngine(model, tokens_per_step=96)
    expected = [plain_answer(plain, prompt) for prompt in PROMPTS]
    for _ in range(2):
        check_answers(engine.generate(PROMPTS, NEW_TOKENS), expected)
