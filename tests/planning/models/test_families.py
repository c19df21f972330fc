"""Every example config, against facts worked out by hand from the model cards."""

from collections import Counter
from pathlib import Path

import pytest

from octavo.errors import ModelConfigError, UnknownArchitectureError
from octavo.planning.models import ModelLayers, layers_from_config, read_model
from octavo.specs import KVCacheSpecRegistry, MambaSpec

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))


def kv(heads: int, size: int, block: int = 16) -> int:
    """Bytes of a block of 16-bit keys and values."""
    return block * 2 * heads * size * 2


def pages(model: ModelLayers) -> Counter:
    return Counter((spec.kind, spec.page_size_bytes) for spec in model.layers.values())


# Mamba 2 in 16 bits: 3 * (intermediate + 2 * groups * state) + heads * head * state, two bytes each.
BAMBA_STATE = 2 * (3 * (8192 + 2 * 128) + 128 * 64 * 128)
FACTS = {
    "bamba-9b": {("mamba", BAMBA_STATE): 29, ("full_attention", kv(8, 128)): 3},
    "deepseek-v2-lite": {("mla_attention", 16 * 576 * 2): 27},
    "deepseek-v3": {("mla_attention", 16 * 576 * 2): 61},
    "deepseek-v3.2": {("mla_attention", 16 * 576 * 2): 61, ("mla_attention", 16 * 132): 61},
    "deepseek-v4-flash": {
        ("sliding_window_mla", 65 * 576): 43,  # 64 records of 584 bytes, in whole kernel lines
        ("mla_attention", 65 * 576): 21,
        ("mla_attention", 15 * 576): 21,  # 64 keys of an indexer, 132 bytes each
        ("mla_attention", 3 * 576): 20,  # two records
        ("sliding_window_mla", 57 * 576): 41,  # 4 or 8 tokens of a compressor, 32 KiB
        ("sliding_window_mla", 15 * 576): 21,  # and of an indexer's, 8 KiB
    },
    "falcon-h1-7b": {
        ("full_attention", kv(2, 128)): 44,
        ("mamba", 2 * (3 * (3072 + 2 * 256) + 24 * 128 * 256)): 44,
    },
    "gemma-2-9b": {("sliding_window", kv(8, 256)): 21, ("full_attention", kv(8, 256)): 21},
    "gemma-3-27b": {("sliding_window", kv(16, 128)): 52, ("full_attention", kv(16, 128)): 10},
    "gemma-3n-e4b": {("sliding_window", kv(2, 256)): 16, ("full_attention", kv(2, 256)): 4},  # 35, of which 15 share
    "gemma-4-26b-a4b": {("sliding_window", kv(8, 256)): 25, ("full_attention", kv(2, 512)): 5},
    "glm-5.3-flash": {
        ("mamba", 2 * 3 * 3 * 64 * 128 + 4 * 64 * 128 * 128): 34,
        ("mla_attention", 16 * 512 * 2): 11,
        ("mla_attention", 4 * 132): 11,  # a key per four tokens
        ("circular_buffer", 16 * 2 * 128 * 2): 11,  # keys and gates of those that wait
    },
    "gpt-oss-20b": {("sliding_window", kv(8, 64)): 12, ("full_attention", kv(8, 64)): 12},
    "gpt-oss-120b": {("sliding_window", kv(8, 64)): 18, ("full_attention", kv(8, 64)): 18},
    "granite-4.0-h-small": {("mamba", BAMBA_STATE): 36, ("full_attention", kv(8, 128)): 4},
    "jamba-1.5-mini": {("mamba", 2 * (3 * 8192 + 8192 * 16)): 28, ("full_attention", kv(8, 128)): 4},
    "lfm2-1.2b": {("mamba", 2 * 2 * 2048): 10, ("full_attention", kv(8, 64)): 6},
    "lfm3-1.7b": {
        ("mamba", 2 * 6 * 2048): 13,
        ("full_attention", kv(4, 128)): 6,
        ("sliding_window", kv(4, 128)): 5,
    },
    "llama-3.1-8b": {("full_attention", kv(8, 128)): 32},
    "llama-3.1-70b": {("full_attention", kv(8, 128)): 80},
    "llama-4-scout": {("chunked_local_attention", kv(8, 128)): 36, ("full_attention", kv(8, 128)): 12},
    "mamba2-2.7b": {("mamba", 2 * (3 * (5120 + 2 * 128) + 80 * 64 * 128)): 64},
    "mistral-7b-v0.1": {("sliding_window", kv(8, 128)): 32},
    "nemotron-h-8b": {
        ("mamba", 2 * 3 * (8192 + 2 * 8 * 128) + 4 * 128 * 64 * 128): 24,
        ("full_attention", kv(8, 128)): 4,
    },
    "qwen2.5-7b": {("full_attention", kv(4, 128)): 28},
    "qwen3-8b": {("full_attention", kv(8, 128)): 36},
    "qwen3-30b-a3b": {("full_attention", kv(4, 128)): 48},
    "qwen3-next-80b": {
        ("mamba", 2 * 3 * (2 * 16 * 128 + 32 * 128) + 4 * 32 * 128 * 128): 36,
        ("full_attention", kv(2, 256)): 12,
    },
    "qwen3.5-27b": {
        ("mamba", 2 * 3 * (2 * 16 * 128 + 48 * 128) + 4 * 48 * 128 * 128): 48,
        ("full_attention", kv(4, 256)): 16,
    },
    "qwen3.8-flash-next": {
        ("mamba", 2 * 3 * (2 * 16 * 128 + 48 * 128) + 4 * 48 * 128 * 128): 36,
        ("mamba", 2 * 9 * 4 * 2560): 1,  # of three tokens for each of three steps, in four streams
        ("full_attention", kv(2, 256)): 12,
        ("mla_attention", 4 * 128 * 2): 12,
        ("circular_buffer", 16 * (128 + 12) * 2): 12,  # keys, and three positions of 8 bytes
    },
    "whisper-large-v3": {("full_attention", kv(20, 64)): 32, ("cross_attention", kv(20, 64)): 32},
    "zamba2-7b": {
        ("mamba", 2 * (3 * (7168 + 2 * 2 * 64) + 112 * 64 * 64)): 81,
        ("full_attention", kv(32, 224)): 13,
    },
}
WINDOWS = {"gemma-2-9b": {4096}, "gemma-3-27b": {1024}, "gemma-3n-e4b": {512}, "gemma-4-26b-a4b": {1024}}
WINDOWS |= {"gpt-oss-20b": {128}, "gpt-oss-120b": {128}, "lfm3-1.7b": {256}, "mistral-7b-v0.1": {4096}}
WINDOWS |= {"deepseek-v4-flash": {8, 128}}


def test_every_example_has_facts():
    assert sorted(FACTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_each_kind_and_their_pages(name):
    model = read_model(EXAMPLES / f"{name}.json")
    assert pages(model) == FACTS[name]
    windows = {spec.sliding_window for spec in model.layers.values() if hasattr(spec, "sliding_window")}
    assert windows == WINDOWS.get(name, set())
    KVCacheSpecRegistry.check_kv_cache_spec_registry(model.layers)


@pytest.mark.parametrize("name", NAMES)
def test_layers_stand_in_model_order(name):
    model = read_model(EXAMPLES / f"{name}.json")
    indices = [int(layer.split(".")[1]) for layer in model.layers]
    assert indices == sorted(indices)


def test_longest_sequences():
    lengths = {name: read_model(EXAMPLES / f"{name}.json").max_model_len for name in NAMES}
    assert lengths["llama-3.1-8b"] == 131072
    assert lengths["gemma-3-27b"] == 131072  # from transformers' default
    assert lengths["llama-4-scout"] == 10485760
    assert lengths["mamba2-2.7b"] is None


def test_whisper_keeps_the_audio_of_its_encoder():
    model = read_model(EXAMPLES / "whisper-large-v3.json")
    assert (model.max_model_len, model.max_encoder_tokens) == (448, 1500)
    assert list(model.layers)[:3] == ["layers.0.attn", "layers.0.cross_attn", "layers.1.attn"]


def test_a_layer_with_attention_and_state_has_two_entries():
    model = read_model(EXAMPLES / "falcon-h1-7b.json")
    assert list(model.layers)[:2] == ["layers.0.attn", "layers.0.mamba"]
    zamba = read_model(EXAMPLES / "zamba2-7b.json")
    assert [name for name in zamba.layers if name.startswith("layers.6.")] == ["layers.6.attn", "layers.6.mamba"]


def test_feed_forward_layers_have_none():
    model = read_model(EXAMPLES / "nemotron-h-8b.json")
    assert list(model.layers)[:2] == ["layers.0.mamba", "layers.2.mamba"]
    assert [n for n in model.layers if n.endswith("attn")] == [f"layers.{i}.attn" for i in (7, 18, 29, 40)]


def test_chunks_of_llama_4():
    model = read_model(EXAMPLES / "llama-4-scout.json")
    assert [n for n, s in model.layers.items() if s.kind == "full_attention"][:2] == ["layers.3.attn", "layers.7.attn"]
    assert model.layers["layers.0.attn"].attention_chunk_size == 8192


TINY = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}


def tiny(model_type: str, **changes):
    return layers_from_config({"model_type": model_type, **TINY, **changes})


def words(model: ModelLayers) -> str:
    letters = {"full_attention": "F", "sliding_window": "S", "chunked_local_attention": "C", "mamba": "M"}
    return "".join(letters[spec.kind] for spec in model.layers.values())


def test_the_state_that_vllm_measured_for_a_tiny_qwen3_next():
    state = tiny("qwen3_next", linear_num_key_heads=1, linear_num_value_heads=2).layers["layers.0.linear_attn"]
    assert isinstance(state, MambaSpec)
    assert state.shapes == ((3, 512), (2, 128, 128))
    assert state.dtypes == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("mistral", {"sliding_window": None}, "FFFF"),
        ("mistral", {}, "SSSS"),
        ("mixtral", {}, "FFFF"),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 8}, "FFFF"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}, "FFFS"),
        ("qwen3", {"layer_types": ["sliding_attention", "full_attention"] * 2}, "SFSF"),
        ("qwen3_moe", {"use_sliding_window": True}, "SSSS"),
        ("gemma2", {}, "SFSF"),
        ("gemma3", {}, "SSSS"),
        ("gemma3_text", {"sliding_window_pattern": 2}, "SFSF"),
        ("gemma4", {}, "SSSF"),  # the last layer is always full
        ("cohere2", {}, "SSSF"),
        ("olmo3", {}, "SSSF"),
        ("gpt_oss", {}, "SFSF"),
        ("llama4", {}, "CCCF"),
        ("llama4", {"no_rope_layers": [0, 1, 1, 0]}, "FCCF"),
        ("llama4", {"attention_chunk_size": None}, "FFFF"),
        ("qwen3_next", {"full_attention_interval": 2}, "MFMF"),
        ("qwen3_5_moe_text", {}, "MMMF"),
        ("olmo_hybrid", {}, "MMMF"),
        ("olmo_hybrid", {"num_hidden_layers": 3}, "MMF"),
        ("jamba", {"attn_layer_period": 2, "attn_layer_offset": 1}, "MFMF"),
        ("bamba", {"layers_block_type": ["mamba", "attention", "mamba", "mamba"]}, "MFMM"),
        ("granitemoehybrid", {}, "MMMM"),
        ("lfm2", {}, "FFFF"),
        ("lfm2", {"layer_types": ["conv", "conv", "full_attention", "conv"]}, "MMFM"),
        ("lfm3", {"num_hidden_layers": 6}, "MMFMSM"),
        ("lfm3", {"layer_types": ["sliding_attention", "conv", "conv", "full_attention"]}, "SMMF"),
        ("laguna", {}, "FFFF"),
        ("laguna", {"layer_types": ["full_attention", "sliding_attention"] * 2}, "FSFS"),
        ("nemotron_h", {"layers_block_type": ["linear_attention", "moe", "attention", "mlp"]}, "MF"),
        ("nemotron_h", {"hybrid_override_pattern": "M*-M", "num_hidden_layers": None}, "MFM"),
        ("mamba", {}, "MMMM"),
    ],
)
def test_which_layer_is_what(model_type, changes, expected):
    assert words(tiny(model_type, **changes)) == expected


@pytest.mark.parametrize("off", [{"qk_nope_head_dim": 0, "qk_rope_head_dim": 0}, {"use_mla": False}])
def test_deepseek_without_latents(off):
    """As the language models of DeepSeek-OCR and of the smallest DeepSeek-VL2 are."""
    text = {"num_hidden_layers": 12, "hidden_size": 1280, "num_attention_heads": 10, "num_key_value_heads": 10}
    config = {"language_config": {"model_type": "deepseek_v2", "kv_lora_rank": None, "v_head_dim": 0, **text, **off}}
    layers = layers_from_config(config).layers
    assert len(layers) == 12
    assert {(s.kind, s.page_size_bytes) for s in layers.values()} == {("full_attention", 16 * 2 * 10 * 128 * 2)}


@pytest.mark.parametrize(
    ("model_type", "changes", "own"),
    [
        ("axk2", {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, [0, 1, 2, 3, 4, 5]),
        ("glm_moe_dsa", {}, [0, 1, 2, 3, 4, 5]),
        ("glm_moe_dsa", {"index_topk_freq": 2}, [0, 1, 3, 5]),
        ("glm_moe_dsa", {"index_topk_freq": 2, "index_skip_topk_offset": 1}, [0, 2, 4]),
        ("glm_moe_dsa", {"index_topk_pattern": "FSSFSS"}, [0, 3]),
        ("glm_moe_dsa", {"index_topk_freq": 2, "indexer_types": ["full", *["shared"] * 5]}, [0]),
        ("hy_v4", {}, [0, 1, 5]),
    ],
)
def test_layers_may_share_an_indexer(model_type, changes, own):
    layers = tiny(model_type, num_hidden_layers=6, **changes).layers
    assert [name for name in layers if name.endswith(".indexer")] == [f"layers.{index}.indexer" for index in own]
    assert sum(name.endswith(".attn") for name in layers) == 6
    assert {spec.page_size_bytes for spec in layers.values()} == {16 * 576 * 2, 16 * 132}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "HHHCHC"),
        ({"compress_ratios": [0, 1, 4, 128, 4, 128, 0]}, "WWCHCH"),  # the last is a draft layer's
        ({"layer_types": ["sliding_attention", *["compressed_sparse_attention"] * 5]}, "WCCCCC"),
        ({"compress_rates": {"heavily_compressed_attention": 128}}, "HHHCHC"),
    ],
)
def test_how_deepseek_v4_compresses(changes, expected):
    model = tiny("deepseek_v4", num_hidden_layers=6, **changes)
    caches = [{name.split(".", 2)[2] for name in model.layers if name.startswith(f"layers.{i}.")} for i in range(6)]
    compressed = {"window", "attn", "compressor"}
    kinds = {"W": {"window"}, "H": compressed, "C": compressed | {"indexer", "indexer.compressor"}}
    assert caches == [kinds[letter] for letter in expected]
    assert "584 bytes" in model.notes[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compress_ratios": [4, 8, 4, 4]}, r"compress_ratios\[1\] = 8 is none of 0, 1, 4, 128"),
        ({"compress_ratios": [4, 4]}, "compress_ratios lists 2 layers, but there are 4"),
        ({"compress_rates": {"compressed_sparse_attention": 2}}, "compressed_sparse_attention = 2; the kernels know 4"),
        ({"head_dim": 256}, "head_dim = 256, but the packed record holds 512"),
        ({"layer_types": ["full_attention"] * 4}, r"layer_types\[0\] = 'full_attention' is none of"),
    ],
)
def test_a_deepseek_v4_that_no_kernel_takes(changes, message):
    with pytest.raises((ModelConfigError, UnknownArchitectureError), match=message):
        tiny("deepseek_v4", **changes)


_OLD = {"n_layer": 4, "n_head": 8, "n_embd": 512}


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"model_type": "gpt2", **_OLD}, 8),
        ({"model_type": "bloom", "n_layer": 4, "n_head": 8, "hidden_size": 512}, 8),
        ({"model_type": "mpt", "n_layers": 4, "n_heads": 8, "d_model": 512}, 8),
        ({"model_type": "gpt_bigcode", **_OLD}, 1),
        ({"model_type": "gpt_bigcode", **_OLD, "multi_query": False}, 8),
        ({"model_type": "falcon", **TINY, "num_attention_heads": 8, "num_kv_heads": 8, "hidden_size": 512}, 1),
        (
            {
                "model_type": "falcon",
                "num_hidden_layers": 4,
                "num_attention_heads": 8,
                "num_kv_heads": 2,
                "hidden_size": 512,
                "new_decoder_architecture": True,
            },
            2,
        ),
    ],
)
def test_configs_that_spell_the_usual_keys_in_their_own_way(config, kv_heads):
    layers = layers_from_config(config).layers
    assert [spec.page_size_bytes for spec in layers.values()] == [kv(kv_heads, 64)] * 4


def test_a_wrong_value_is_told_by_the_key_of_the_file():
    with pytest.raises(ModelConfigError, match="n_layer must be a whole number of 1 or more, not 'four'"):
        layers_from_config({"model_type": "gpt2", **_OLD, "n_layer": "four"})


def test_which_layers_of_mistral_large_4_have_a_latent_of_their_own():
    layers = tiny(
        "mistral_large4", kv_source_layers=[0, 0, 2, 3], indexer_types=["full", "full", "shared", "full"]
    ).layers
    assert list(layers) == [
        "layers.0.attn", "layers.0.indexer", "layers.1.indexer", "layers.2.attn", "layers.3.attn", "layers.3.indexer"
    ]  # fmt: skip
    assert [layers[f"layers.{index}.attn"].head_size for index in (0, 2, 3)] == [576, 576, 512]
    with pytest.raises(ModelConfigError, match="kv_source_layers lists 1 layer, but there are 4"):
        tiny("mistral_large4", kv_source_layers=[0])


def test_longcat_has_two_latents_in_each_layer():
    layers = tiny("longcat_flash", num_hidden_layers=None, num_layers=2).layers
    assert [spec.page_size_bytes for spec in layers.values()] == [16 * 576 * 2] * 4


def test_which_layers_of_deepseek_v4_1_keep_what_others_read():
    """The last entry is a draft layer's. An indexer's keys are those of the source that it stands in."""
    model = tiny(
        "deepseek_v41",
        num_hidden_layers=6,
        compress_ratios=[0, 1, 1, 2, 2, 2, 0],
        kv_source_layer_ids=[1, 3],
        index_source_layer_ids=[1, 2, 4],
    )
    assert [name for name in model.layers if not name.endswith(".window")] == [
        "layers.1.attn", "layers.1.indexer", "layers.3.attn", "layers.3.compressor"
    ]  # fmt: skip
    assert pages(model) == {
        ("sliding_window_mla", 33 * 576): 6,  # 32 records of 584 bytes, in whole kernel lines
        ("mla_attention", 65 * 576): 1,
        ("mla_attention", 15 * 576): 1,
        ("mla_attention", 33 * 576): 1,
        ("circular_buffer", 8 * 1024 * 4): 1,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compress_ratios": [0, 4, 0, 0]}, r"compress_ratios\[1\] = 4 is none of 0, 1, 2"),
        ({"compress_ratios": [0, 2, 2, 2]}, "kv_source_layer_ids names no layer up to 1, where compress_ratios is 2"),
        ({"compress_ratios": [1, 1, 1, 1], "kv_source_layer_ids": [1]}, "kv_source_layer_ids names no layer up to 0"),
    ],
)
def test_a_deepseek_v4_1_that_no_kernel_takes(changes, message):
    with pytest.raises((ModelConfigError, UnknownArchitectureError), match=message):
        tiny("deepseek_v41", **changes)


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({}, ["indexer", "indexer.open", "attn"]),
        ({"indexer_types": ["full", "full", "full", "shared"]}, ["attn"]),
        (
            {"layer_types": ["linear_attention"] * 3 + ["deepseek_sparse_attention"]},
            ["indexer", "indexer.open", "attn"],
        ),
    ],
)
def test_what_the_fourth_layer_of_glm_5_3_keeps(changes, own):
    layers = tiny("glm5_next", index_kpool=4, **changes).layers
    assert list(layers) == [*(f"layers.{i}.linear_attn" for i in range(3)), *(f"layers.3.{name}" for name in own)]


def test_qwen3_8_without_an_indexer_attends_to_all_tokens():
    assert list(tiny("qwen4_exp", ple_layer_ids=[1]).layers) == [
        "layers.0.linear_attn", "layers.0.ple.conv", "layers.1.linear_attn", "layers.2.linear_attn", "layers.3.attn"
    ]  # fmt: skip


def test_how_often_a_layer_of_qwen3_8_attends():
    layers = tiny("qwen4_exp", full_attention_interval=2).layers
    assert list(layers) == ["layers.0.linear_attn", "layers.1.attn", "layers.2.linear_attn", "layers.3.attn"]


_M3_TYPES = ["full_attention", "minimax_m3_sparse"]


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [
        ({}, []),
        ({"sparse_attention_config": {"sparse_attention_freq": [0, 0, 1, 1]}}, [2, 3]),
        ({"layer_types": _M3_TYPES * 2}, [1, 3]),
        ({"layer_types": _M3_TYPES * 2, "sparse_attention_config": {"sparse_attention_freq": [0, 0, 1, 1]}}, [1, 3]),
    ],
)
def test_sparse_layers_of_minimax_m3_have_an_indexer(changes, sparse):
    layers = tiny("minimax_m3_text", **changes).layers
    assert [name for name in layers if name.endswith(".indexer")] == [f"layers.{index}.indexer" for index in sparse]
    assert {layers[f"layers.{index}.indexer"].page_size_bytes for index in sparse} <= {16 * 128 * 2}
    assert [layers[f"layers.{index}.attn"].page_size_bytes for index in range(4)] == [kv(1, 128)] * 4


def test_a_list_of_sparse_layers_that_is_too_short():
    with pytest.raises(
        ModelConfigError, match=r"sparse_attention_config\.sparse_attention_freq lists 1 layer, but there are 4"
    ):
        tiny("minimax_m3_vl", sparse_attention_config={"sparse_attention_freq": [1]})


def test_sizes_that_published_configs_leave_out():
    assert {spec.page_size_bytes for spec in tiny("axk2").layers.values()} == {16 * (128 + 32) * 2, 16 * 132}
    heads = {"num_attention_heads": 8, "num_key_value_heads": None}
    windowed = layers_from_config({"model_type": "laguna", **TINY, **heads, "layer_types": ["sliding_attention"] * 4})
    assert {(spec.sliding_window, spec.page_size_bytes) for spec in windowed.layers.values()} == {(512, kv(8, 128))}


def test_kimi_linear_counts_its_layers_from_one():
    sizes = {"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4, "full_attn_layers": [4]}
    model = tiny("kimi_linear", linear_attn_config=sizes)
    assert list(model.layers)[-1] == "layers.3.attn"
    assert model.layers["layers.3.attn"].page_size_bytes == 16 * 576 * 2
    assert model.layers["layers.0.linear_attn"].shapes == ((3, 3 * 2 * 16), (2, 16, 16))


def test_kimi_linear_may_list_its_delta_layers_alone():
    sizes = {"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 4]}
    for full in ({}, {"full_attn_layers": [3]}):
        layers = tiny("kimi_linear", linear_attn_config={**sizes, **full}).layers
        assert [name for name in layers if name.endswith(".attn")] == ["layers.2.attn"]
    with pytest.raises(ModelConfigError, match=r"linear_attn_config\.full_attn_layers and kda_layers do not share"):
        tiny("kimi_linear", linear_attn_config={**sizes, "full_attn_layers": [3, 5]})


@pytest.mark.parametrize(
    ("changes", "shapes", "page"),
    [
        ({}, ((2, 32, 32),), kv(1, 32)),  # Ring-linear 2.0
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, ((2, 32, 32),), 16 * 576 * 2),  # Ling 2.5
        (
            {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "short_conv_kernel_size": 4},
            ((3, 3 * 2 * 32), (2, 32, 32)),
            16 * 576 * 2,
        ),
    ],
)
def test_ling_has_attention_at_the_end_of_a_group_and_after_the_last(changes, shapes, page):
    model = tiny("bailing_hybrid", num_hidden_layers=7, layer_group_size=3, **changes)
    assert [name.split(".")[2] for name in model.layers] == ["linear_attn", "linear_attn", "attn"] * 2 + ["attn"]
    assert model.layers["layers.0.linear_attn"].shapes == shapes
    assert model.layers["layers.2.attn"].page_size_bytes == page


def test_olmo_hybrid_derives_its_delta_heads():
    state = tiny("olmo_hybrid").layers["layers.0.linear_attn"]
    assert state.shapes == ((3, 2 * 2 * 24 + 2 * 48), (2, 48, 24))


def test_gemma_4_as_transformers_5_writes_it():
    model = tiny("gemma4", per_layer_config={"03": {"head_dim": 512, "num_key_value_heads": 2}})
    assert [(s.num_kv_heads, s.head_size) for s in model.layers.values()] == [(1, 256)] * 3 + [(2, 512)]


def test_gemma_4_ignores_global_heads_where_keys_are_not_values():
    model = tiny("gemma4", num_global_key_value_heads=2)
    assert (model.layers["layers.3.attn"].num_kv_heads, model.layers["layers.3.attn"].head_size) == (1, 512)


@pytest.mark.parametrize("part", ["text_config", "llm_config", "thinker_config"])
def test_a_multimodal_model_is_read_by_its_text_part(part):
    model = layers_from_config(
        {"architectures": ["Mistral3ForConditionalGeneration"], part: {"model_type": "mistral", **TINY}}
    )
    assert model.architecture == "Mistral3ForConditionalGeneration"
    assert words(model) == "SSSS"


def test_defaults_that_were_filled_in_are_noted():
    (note,) = tiny("gemma3").notes
    assert "head_dim = 256" in note
    assert "sliding_window = 4096" in note
    assert "num_attention_heads" not in note  # the config gives it
