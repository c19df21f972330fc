"""Sparse models: an indexer chooses the tokens that a query attends to, and keeps a key of its own for each."""

import pytest
import torch
from admission import NotAdmittedError, compare
from greedy_engine import GreedyEngine

from octavo.engine import CausalModel, load_model
from octavo.engine.attention import selection
from octavo.engine.cache import IndexPages, OpenPages, index_reads
from octavo.engine.models.layers import CacheGeometry
from octavo.engine.tiny_families import TINY_MODELS, VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model
from octavo.errors import UnsupportedModelError
from octavo.specs import CircularBufferSpec, MLAAttentionSpec

sparse_families = pytest.mark.parametrize("family", ["glm5", "glm5_next", "qwen4_exp"])
HIDES = {"qwen4_exp": "octavo.engine.attention.paged.hide_others"}
"""Where what was not chosen is hidden, if not from attention over latents."""
SIZES = {"glm5_next": ("index_kpool", "index_topk"), "qwen4_exp": ("indexer_compress_ratio", "indexer_budget")}
"""Keys of configs: the tokens of a pool, and how many are chosen."""
pooled_families = pytest.mark.parametrize("family", list(SIZES))


@sparse_families
@pytest.mark.parametrize("most", [1, 16 * 300], ids=["one token", "some"])
def test_an_indexer_that_is_called_for_parts_of_a_tile_chooses_the_same(family, most, tmp_path, monkeypatch):
    monkeypatch.setattr(index_reads, "_MAX_SCORES", most)
    compare(family, tmp_path)


@sparse_families
def test_what_an_indexer_chooses_counts(family, tmp_path, monkeypatch):
    """The tiny model's choices change its answers, so the comparisons would see wrong ones."""
    hides = HIDES.get(family, "octavo.engine.attention.latent.hide_others")
    monkeypatch.setattr(hides, lambda chosen, mask, keys: mask)
    with pytest.raises(NotAdmittedError, match="its tokens differ"):
        compare(family, tmp_path)


@pytest.mark.parametrize(
    ("family", "write"),
    [
        ("glm5", (IndexPages, "write_keys")),
        ("glm5_next", (IndexPages, "write_keys")),
        ("glm5_next", (OpenPages, "write_open")),
        ("qwen4_exp", (IndexPages, "write_keys")),
        ("qwen4_exp", (OpenPages, "write_open")),
    ],
    ids=["keys", "keys of pools", "open tokens", "keys of pools of heads", "open tokens of heads"],
)
def test_what_an_indexer_keeps_counts(family, write, tmp_path, monkeypatch):
    monkeypatch.setattr(*write, lambda *_: None)
    with pytest.raises(NotAdmittedError, match="its tokens differ"):
        compare(family, tmp_path)


def test_layers_that_share_an_indexer_keep_no_keys(tmp_path):
    save_tiny_model("glm5", tmp_path)
    specs = load_model(tmp_path).kv_cache_specs(CacheGeometry(attention_block_size=16))
    keys = MLAAttentionSpec(block_size=16, head_size=16, dtype=specs["layers.0.attention"].dtype)
    assert {name: spec for name, spec in specs.items() if "indexer" in name} == {
        "layers.0.indexer": keys,
        "layers.2.indexer": keys,
    }


def test_a_pool_has_one_key_and_its_tokens_wait_for_it_in_one_block(tmp_path):
    save_tiny_model("glm5_next", tmp_path)
    specs = load_model(tmp_path).kv_cache_specs(CacheGeometry(attention_block_size=16))
    dtype = specs["layers.1.attention"].dtype
    keys = MLAAttentionSpec(block_size=16, head_size=16, dtype=dtype, tokens_per_state=4)
    waiting = CircularBufferSpec(block_size=16, num_kv_heads=1, head_size=32, dtype=dtype, tokens_per_state=4)
    assert {name: spec for name, spec in specs.items() if "indexer" in name} == {
        f"layers.{layer}.indexer{suffix}": spec for layer in (1, 4) for suffix, spec in (("", keys), (".open", waiting))
    }


def test_an_open_token_over_heads_has_its_rotation_beside_it(tmp_path):
    save_tiny_model("qwen4_exp", tmp_path)
    specs = load_model(tmp_path).kv_cache_specs(CacheGeometry(attention_block_size=16))
    dtype = specs["layers.1.attention"].dtype
    keys = MLAAttentionSpec(block_size=16, head_size=16, dtype=dtype, tokens_per_state=4)
    rotation = 2 * 8  # cosines and sines of the half of a head that is rotated
    waiting = CircularBufferSpec(
        block_size=16, num_kv_heads=1, head_size=16 + rotation, dtype=dtype, tokens_per_state=4
    )
    assert {name: spec for name, spec in specs.items() if "indexer" in name} == {
        f"layers.{layer}.indexer{suffix}": spec for layer in (1, 4) for suffix, spec in (("", keys), (".open", waiting))
    }


@pooled_families
@pytest.mark.parametrize("sizes", [(1, 24), (8, 8), (12, 36)])
def test_pools_of_other_sizes(family, sizes, tmp_path, monkeypatch):
    name, own = TINY_MODELS[family]
    monkeypatch.setitem(TINY_MODELS, family, (name, {**own, **dict(zip(SIZES[family], sizes, strict=True))}))
    compare(family, tmp_path)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "partial_rotary_factor": 0.45, "mrope_section": [2, 1, 1]},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2]},
        {"rope_type": "default", "mrope_section": [4, 2, 2]},
    ],
    ids=["half a pair", "no frequency for the rest", "whole heads"],
)
def test_rotations_of_other_sizes(rope, tmp_path, monkeypatch):
    """The seven numbers of a head that are to be rotated are rotated with an eighth."""
    name, own = TINY_MODELS["qwen4_exp"]
    own = {**own, "rope_parameters": {"rope_theta": 10_000.0, **rope}}
    monkeypatch.setitem(TINY_MODELS, "qwen4_exp", (name, own))
    compare("qwen4_exp", tmp_path)


def test_pools_of_equal_scores(tmp_path, monkeypatch):
    """With one head every second score is zero, and what is chosen of these must not depend on the step."""
    name, own = TINY_MODELS["qwen4_exp"]
    monkeypatch.setitem(TINY_MODELS, "qwen4_exp", (name, {**own, "indexer_n_heads": 1}))
    compare("qwen4_exp", tmp_path)


@pooled_families
def test_an_indexer_reads_the_sequences_together_that_its_attention_does(family):
    """Its blocks are longer, as pools of 12 tokens end in none of eight, and one context is much the longest."""
    model = CausalModel(build_tiny_model(family, **dict(zip(SIZES[family], (12, 36), strict=True))), family)
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, VOCAB_SIZE, (number,), generator=generator).tolist() for number in (700, 40)]

    def answers(prompts):
        jobs = GreedyEngine(model, tokens_per_step=1024, max_model_len=1024).generate(prompts, 4)
        return [job.generated for job in jobs]

    assert answers(prompts) == [*answers(prompts[:1]), *answers(prompts[1:])]


def test_an_indexer_that_nobody_would_run_is_refused(tmp_path, monkeypatch):
    save_tiny_model("glm5", tmp_path)
    monkeypatch.setattr("octavo.engine.models.indexers._keeps_keys", lambda module: False)
    with pytest.raises(UnsupportedModelError, match=r"nothing in layers \[0, 2\] asks for the index"):
        load_model(tmp_path)


def test_an_indexer_whose_choice_would_be_ignored_is_refused(tmp_path, monkeypatch):
    save_tiny_model("llama", tmp_path)
    monkeypatch.setattr("octavo.engine.models.probe._indexer_shape", lambda layer, _: "an indexer's")
    with pytest.raises(UnsupportedModelError, match="layer 0 has an indexer without latents"):
        load_model(tmp_path)


def test_a_query_that_chose_all_needs_no_mask_of_its_own():
    keys, chosen = torch.zeros(1, 1, 3, 4), torch.tensor([[[0, 1]]])
    assert selection.hide_others(None, None, keys) is None
    hidden = selection.hide_others(chosen, torch.zeros(1, 1, 1, 3), keys)
    assert hidden.isneginf().tolist() == [[[[False, False, True]]]]
