"""DeepSeek V4: a window of tokens, and records of pools of tokens, among which an indexer may choose."""

import pytest
import torch
from admission import NotAdmittedError, compare
from greedy_engine import GreedyEngine
from test_families import NEW_TOKENS, PROMPTS, check_answers, plain_answer

from octavo.engine import load_model
from octavo.engine.cache import OpenPages, Records
from octavo.engine.models import CausalModel, compressors
from octavo.engine.models.compared import check_compared
from octavo.engine.models.layers import CacheGeometry
from octavo.engine.tiny_families import TINY_MODELS
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model, tiny_config
from octavo.errors import UnsupportedModelError
from octavo.specs import CircularBufferSpec, MLAAttentionSpec, SlidingWindowMLASpec

FAMILY = "deepseek_v4"
SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


def of_kinds(*kinds, **others):
    """Of these kinds are the layers."""
    return {"layer_types": [kinds[layer % len(kinds)] for layer in range(4)], **others}


def set_tiny_model(monkeypatch, **own):
    check_compared(FAMILY, tiny_config(FAMILY))  # now it is remembered what was compared: the usual model
    name, usual = TINY_MODELS[FAMILY]
    monkeypatch.setitem(TINY_MODELS, FAMILY, (name, {**usual, **own}))


def specs_of(folder, block_size):
    return load_model(folder).kv_cache_specs(CacheGeometry(attention_block_size=block_size))


# ---- what is kept ------------------------------------------------------------------------------------------------


def test_what_each_kind_of_layer_keeps(tmp_path):
    """Keys that are values too are kept once. Blocks of records are whole pools."""
    save_tiny_model(FAMILY, tmp_path)
    specs = specs_of(tmp_path, block_size=16)
    dtype = specs["layers.0.attention"].dtype
    window = SlidingWindowMLASpec(block_size=16, head_size=16, dtype=dtype, sliding_window=24)
    records = MLAAttentionSpec(block_size=16, head_size=16, dtype=dtype, tokens_per_state=4)
    two_pools = SlidingWindowMLASpec(block_size=16, head_size=64, dtype=dtype, sliding_window=8)
    heavy = MLAAttentionSpec(block_size=32, head_size=16, dtype=dtype, tokens_per_state=32)
    one_pool = CircularBufferSpec(block_size=32, num_kv_heads=1, head_size=32, dtype=dtype, tokens_per_state=32)
    sparse_layers = {
        f"layers.{layer}.{name}": spec
        for layer in (1, 3)
        for name, spec in {
            "attention": window,
            "compressor": records,
            "compressor.open": two_pools,
            "indexer": records,
            "indexer.open": two_pools,
        }.items()
    }
    heavy_layer = {"layers.2.attention": window, "layers.2.compressor": heavy, "layers.2.compressor.open": one_pool}
    assert specs == {"layers.0.attention": window, **sparse_layers, **heavy_layer}


def without_pools_before(self, vectors, gates, *, exchange=Records.exchange_open):
    made_of, weights = exchange(self, vectors, gates)
    is_new = torch.zeros(len(self.step.shifts), dtype=torch.bool)
    is_new[self.step.new_pools] = True
    is_new = is_new.repeat_interleave(4)  # by token
    return made_of, weights.masked_fill(~is_new[:, None], -torch.inf)


@pytest.mark.parametrize(
    ("kind", "owner", "name", "broken"),
    [
        (SPARSE, Records, "keep", lambda *_: None),
        (HEAVY, Records, "keep", lambda *_: None),
        (SPARSE, OpenPages, "write_open", lambda *_: None),
        (HEAVY, OpenPages, "write_open", lambda *_: None),
        (SPARSE, Records, "exchange_open", without_pools_before),
        (SPARSE, compressors, "Selection", lambda **_: None),
    ],
    ids=["records", "heavy records", "open tokens", "open tokens of heavy records", "overlap", "choice"],
)
def test_each_part_counts(kind, owner, name, broken, tmp_path, monkeypatch):
    """The answers depend on it, so the comparisons would see if it were wrong."""
    set_tiny_model(monkeypatch, **of_kinds(kind))
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(NotAdmittedError, match="its tokens differ"):
        compare(FAMILY, tmp_path)


def test_compressors_that_nobody_would_run_are_refused(tmp_path, monkeypatch):
    save_tiny_model(FAMILY, tmp_path)
    monkeypatch.setattr(compressors, "_makes_records", lambda module: False)
    with pytest.raises(UnsupportedModelError, match=r"nothing in layers \[1, 2, 3\] asks for the records"):
        load_model(tmp_path)


# ---- the answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own",
    [
        of_kinds(SPARSE, index_topk=1),
        of_kinds(HEAVY, SLIDING, compress_rates={SPARSE: 4, HEAVY: 5}),
        of_kinds(SPARSE, HEAVY, compress_rates={SPARSE: 1, HEAVY: 1}, index_topk=12),
        of_kinds(HEAVY, SPARSE, compress_rates={SPARSE: 16, HEAVY: 8}, index_topk=2),
        of_kinds(SPARSE, SLIDING, compress_rates={SPARSE: 3, HEAVY: 4}, sliding_window=6),
    ],
    ids=["one is chosen", "5", "1 and 1", "16 and 8", "3"],
)
def test_pools_of_other_sizes(own, tmp_path, monkeypatch):
    set_tiny_model(monkeypatch, **own)
    compare(FAMILY, tmp_path)


def test_an_indexer_that_is_called_for_each_token_of_a_tile_chooses_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("octavo.engine.cache.index_reads._MAX_SCORES", 1)
    compare(FAMILY, tmp_path)


@pytest.mark.parametrize("tokens_per_step", [33, 512])
def test_prompts_that_end_anywhere_within_a_pool(tokens_per_step):
    """All in the same steps, so pools are closed by some of them only."""
    plain = build_tiny_model(FAMILY)
    prompts = [PROMPTS[2][:length] for length in range(1, 72, 3)]
    expected = [plain_answer(plain, prompt) for prompt in prompts]
    engine = GreedyEngine(CausalModel(build_tiny_model(FAMILY), FAMILY), tokens_per_step=tokens_per_step)
    engine.runner.pages.pool.fill_(-1)  # a NaN in every float type
    for _ in range(2):
        check_answers(engine.generate(prompts, NEW_TOKENS), expected)
