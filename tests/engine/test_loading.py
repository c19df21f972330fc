"""Loading a model from a folder: what it says, and how it refuses."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from octavo.engine import CacheGeometry, Engine, EngineConfig, load_model
from octavo.engine.models import ModelFolderError, UnsupportedModelError
from octavo.engine.models.versions import TESTED, check_transformers
from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model
from octavo.engine.tokenizer import load_tokenizer
from octavo.engine.torch_dtypes import parse_dtype
from octavo.errors import InputError, ModelConfigError
from octavo.planning import read_model
from octavo.specs import (
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

KINDS = {
    "gemma3": [SlidingWindowSpec, SlidingWindowSpec, FullAttentionSpec] * 2,
    "gemma4": [SlidingWindowSpec, FullAttentionSpec] * 2,  # two more layers share what these keep
    "gpt_oss": [SlidingWindowSpec, FullAttentionSpec] * 2,
    "llama4": [ChunkedLocalAttentionSpec] * 3 + [FullAttentionSpec],
    "deepseek_v3": [MLAAttentionSpec] * 4,
    "kimi_linear": [MambaSpec] * 3 + [MLAAttentionSpec],
    "qwen3_next": [MambaSpec] * 3 + [FullAttentionSpec],
    "qwen4_exp": [
        MambaSpec,
        *(FullAttentionSpec, MLAAttentionSpec, CircularBufferSpec),
        *(MambaSpec, MambaSpec),
        *(FullAttentionSpec, MLAAttentionSpec, CircularBufferSpec),
    ],
    "falcon_h1": [FullAttentionSpec, MambaSpec] * 4,
}


@pytest.fixture
def llama(tmp_path):
    save_tiny_model("llama", tmp_path)
    return tmp_path


def write_config(folder, **config):
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"nothing": torch.zeros(1)}, folder / "model.safetensors")


@pytest.mark.parametrize("name", list(KINDS))
def test_layers_are_found_by_a_probe(name, tmp_path):
    save_tiny_model(name, tmp_path)
    specs = load_model(tmp_path).kv_cache_specs()
    assert [type(spec) for spec in specs.values()] == KINDS[name]
    assert {spec.block_size for spec in specs.values()} <= {16, 128}


def test_a_checkpoint_is_never_cut_within_a_chunk_of_the_model(tmp_path):
    save_tiny_model("bamba", tmp_path, mamba_chunk_size=96)
    model = load_model(tmp_path)
    assert model.tokens_per_chunk == 96
    assert {s.block_size for s in model.kv_cache_specs().values()} == {16, 192}
    small = model.kv_cache_specs(CacheGeometry(attention_block_size=4, state_block_size=8))
    assert {s.block_size for s in small.values()} == {4, 8}


@pytest.mark.parametrize("name", ["gpt_oss", "glm5_next", "qwen4_exp"])
def test_no_matrix_of_a_tiny_model_has_one_number_throughout(name):
    """Hugging Face begins some with zeros, which would hide whatever they are multiplied with."""
    matrices = {name: weight for name, weight in build_tiny_model(name).named_parameters() if weight.dim() > 1}
    assert [name for name, weight in matrices.items() if (weight == weight.flatten()[0]).all()] == []


def test_what_a_model_says_of_itself(llama):
    model = load_model(str(llama), dtype=torch.bfloat16)
    assert (model.family, model.vocab_size, model.max_model_len) == ("Llama", VOCAB_SIZE, 4096)
    assert (model.dtype, model.device) == (torch.bfloat16, torch.device("cpu"))


def test_a_tiny_model_has_a_tokenizer(llama):
    tokenizer = AutoTokenizer.from_pretrained(llama)
    text = "Bögen, 纸 and sheets.\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == "user: hi\nassistant: "


@pytest.mark.parametrize(
    ("missing", "message"),
    [("config.json", "has no config.json"), ("model.safetensors", "has no .*safetensors"), (".", "is not a folder")],
)
def test_a_file_is_missing(llama, missing, message):
    folder = llama / "elsewhere" if missing == "." else llama
    if missing != ".":
        (llama / missing).unlink()
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", r"must hold a JSON object, not \[\]"),
        ("{}", "cannot be read: .*model_type"),
        ('{"model_type": "llama", "hidden_size": "x"}', "cannot be read: .*hidden_size"),
    ],
)
def test_a_broken_config(llama, text, message):
    (llama / "config.json").write_text(text)
    with pytest.raises(ModelConfigError, match=rf"(?s)config\.json:? {message}"):
        load_model(llama)


def test_a_family_that_transformers_does_not_know_is_one_that_is_not_served(llama):
    (llama / "config.json").write_text('{"model_type": "lama"}')
    with pytest.raises(UnsupportedModelError, match=r"^lama has not been compared .*; near this name: .*llama"):
        load_model(llama)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("num_attention_heads", 0, "a whole number of 1 or more, not 0"),
        ("head_dim", 0, "a whole number of 1 or more, not 0"),
        ("num_hidden_layers", -1, "a whole number of 1 or more, not -1"),
        ("max_position_embeddings", -1, "a whole number of 1 or more, not -1"),
        ("intermediate_size", -1, "a whole number of 0 or more, not -1"),
        ("sliding_window", -1, "a whole number of 0 or more, not -1"),
        ("sliding_window", 10**30, "no size of a model"),
        ("rope_scaling", "linear", "an object, not 'linear'"),
        ("model_type", ["llama"], r"text of 1 to 200 characters, not \['llama'\]"),
        ("dtype", "x", "a type such as bfloat16, not 'x'"),
        ("dtype", 16, "text of 1 to 200 characters, not 16"),
        ("eos_token_id", ["x"], r"a token's whole number, or a list of these, not \['x'\]"),
        ("eos_token_id", VOCAB_SIZE, "of the vocabulary, from 0 to 383, not 384: no output would end"),
        ("eos_token_id", [-1, 32000], r"of the vocabulary, from 0 to 383, not \[-1, 32000\]"),
        ("text_config", 3, "an object, not 3"),
    ],
)
def test_a_value_that_no_model_has_is_named(llama, key, value, expected):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(ModelConfigError, match=rf"config\.json: {key} .*{expected}"):
        load_model(llama)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("generation_config.json", [], r"must hold a JSON object, not \[\]"),
        ("generation_config.json", {"pad_token_id": "x"}, "pad_token_id must be a token's whole number, not 'x'"),
        ("generation_config.json", {"eos_token_id": {}}, r"eos_token_id must be .*not \{\}"),
        ("generation_config.json", {"eos_token_id": 384}, "eos_token_id must be of the vocabulary, from 0 to 383"),
        ("tokenizer_config.json", None, "must hold a JSON object, not null"),
        ("tokenizer_config.json", {"tokenizer_class": 3}, "tokenizer_class must be text"),
        ("tokenizer_config.json", {"added_tokens_decoder": []}, r"added_tokens_decoder must be an object, not \[\]"),
        ("tokenizer_config.json", {"chat_template": 3}, "chat_template must be text, or a list of named ones, not 3"),
    ],
)
def test_what_is_wrong_beside_the_config_is_named(llama, file, content, message):
    (llama / file).write_text(json.dumps(content))
    with pytest.raises(ModelConfigError, match=rf"{file}: {message}"):
        Engine.from_config(EngineConfig(model=llama))


def test_a_config_that_cannot_be_read_is_not_the_tokenizers_fault(llama):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"rms_norm_eps": "small"}))
    with pytest.raises(ModelConfigError, match=r"config\.json cannot be read: .*rms_norm_eps"):
        Engine.from_config(EngineConfig(model=llama))


@pytest.mark.parametrize("said", [{"model_max_length": "x"}, {"tokenizer_class": "GemmaTokenizer"}])
def test_a_tokenizer_that_loads_and_cannot_encode_is_refused_at_the_start(llama, said):
    told = json.loads((llama / "tokenizer_config.json").read_text())
    (llama / "tokenizer_config.json").write_text(json.dumps(told | said))
    with pytest.raises(ModelConfigError, match=r"the tokenizer \(\w+\) cannot encode 'Hello, world!': .*tokenizer"):
        Engine.from_config(EngineConfig(model=llama))


def test_a_tokenizer_of_another_alphabet_than_that_of_texts_is_served(tmp_path):
    """As for DNA: it has no token for what it does not know."""
    letters = Tokenizer(WordLevel({"A": 0, "C": 1, "G": 2, "T": 3, "<s>": 4}))
    letters.pre_tokenizer = Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=letters, bos_token="<s>").save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("GATC") == [2, 0, 3, 1]


def test_an_end_token_beside_those_of_the_vocabulary_does_no_harm(llama):
    (llama / "generation_config.json").write_text(json.dumps({"eos_token_id": [-1, 5, 32000]}))
    engine = Engine.from_config(EngineConfig(model=llama))
    assert engine.eos_token_ids == {5}
    engine.close()


def test_weights_of_another_size(llama):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    with pytest.raises(
        ModelConfigError, match=r"layers\.0\.mlp\.\w+\.weight has .*128.* and config\.json asks for .*96"
    ):
        load_model(llama)


def test_weights_that_lack_a_tensor(llama):
    weights = load_file(llama / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, llama / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelConfigError, match=r"lack 1 tensor, such as model\.norm\.weight"):
        load_model(llama)


def test_a_config_that_the_model_cannot_compute_with(llama):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 3}))
    with pytest.raises(InputError):
        load_model(llama)


def test_a_device_that_is_not_there(llama):
    with pytest.raises(InputError, match="device 'abacus' cannot be used"):
        load_model(llama, device="abacus")


@pytest.mark.parametrize("name", ["", "int3", "uint8", "fp8"])
def test_types_that_no_model_computes_in(name):
    with pytest.raises(InputError, match="choose one of float32"):
        parse_dtype(name)
    assert parse_dtype("bf16") == torch.bfloat16


@pytest.mark.parametrize("damage", [b"", b"\x00" * 100, b"\xff" * 100])
def test_damaged_weights(llama, damage):
    (llama / "model.safetensors").write_bytes(damage)
    with pytest.raises(ModelConfigError, match="cannot be loaded"):
        load_model(llama)


def test_weights_that_may_not_be_opened(llama):
    """For the library of safetensors all of them are not there."""
    (llama / "model.safetensors").unlink()
    (llama / "model.safetensors").symlink_to(llama / "model.safetensors")
    with pytest.raises(ModelFolderError, match=r"model\.safetensors cannot be read: Too many levels of symbolic links"):
        load_model(llama)


@pytest.mark.parametrize("family", ["dots1", "zaya"])
def test_the_plan_that_is_read_is_that_of_the_loaded_model(tmp_path, family):
    """Most others keep an input of a convolution more here than in vLLM, which plans follow."""
    save_tiny_model(family, tmp_path)
    loaded = load_model(tmp_path).kv_cache_specs()
    read = read_model(tmp_path, kv_dtype="float32", state_dtype="float32").layers
    assert Counter((spec.kind, spec.unpadded_page_size_bytes) for spec in read.values()) == Counter(
        (spec.kind, spec.unpadded_page_size_bytes) for spec in loaded.values()
    )


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("minimax", "cache class of its own"),
        ("recurrent_gemma", "inside its modules"),
        ("t5gemma2", "merges keys and values"),
        ("t5gemma", "encoder-decoder"),
        ("whisper", "encoder-decoder"),
        ("bloom", "does not answer as in plain Hugging Face.*served are [0-9]+ families"),
    ],
)
def test_families_that_are_refused(tmp_path, model_type, reason):
    write_config(tmp_path, model_type=model_type)
    with pytest.raises(UnsupportedModelError, match=f"{model_type}.*{reason}") as refusal:
        load_model(tmp_path)
    assert isinstance(refusal.value, InputError)


def test_another_transformers_than_the_compared_one_is_warned_of(caplog):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert f"transformers=={TESTED}" in project["optional-dependencies"]["engine"]
    check_transformers(TESTED)
    assert caplog.messages == []
    check_transformers("99.0.0")
    assert "99.0.0 is installed" in caplog.messages[0]
