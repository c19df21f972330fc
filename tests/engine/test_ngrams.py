"""Layers that add embeddings of the last tokens, convolved: Qwen3.8."""

import pytest
import torch
import transformers
from admission import NotAdmittedError, compare
from greedy_engine import GreedyEngine
from test_families import check_answers, plain_answer

from octavo.engine import CausalModel, ScheduledSequence, StepBatch, load_model
from octavo.engine.cache import BoundStates, PackedRow
from octavo.engine.tiny_families import TINY_MODELS
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model, tiny_config
from octavo.errors import UnsupportedModelError
from octavo.specs import MambaSpec

FAMILY = "qwen4_exp"
EOS = TINY_MODELS[FAMILY][1]["eos_token_id"]


def prompts_with_ends():
    """Some are shorter than an n-gram, some end within a pool. Many tokens end a text, and what follows begins one."""
    generator = torch.Generator().manual_seed(5)
    lengths = (1, 2, 3, 4, 5, 18, 31, 64, 90)
    prompts = [torch.randint(EOS, EOS + 9, (length,), generator=generator).tolist() for length in lengths]
    assert all(EOS in prompt for prompt in prompts[5:])
    return [*prompts, [EOS, 7], [7, EOS, EOS]]


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"ngram_size": 2, "heads_per_ngram": 4},
        {"ngram_size": 5, "ple_embed_dim": 64, "ple_conv_kernel_size": 2},
        {"eos_token_id": [EOS + 1, EOS]},
        {"ple_layer_ids": [3], "output_gate_type": "sigmoid", "norm_topk_prob": False, "attention_bias": True},
        {"ple_layer_ids": []},
    ],
    ids=lambda own: ", ".join(own) or "as it is",
)
def test_short_prompts_and_ends_of_texts(own):
    plain = build_tiny_model(FAMILY, **own)
    prompts = prompts_with_ends()
    expected = [plain_answer(plain, prompt) for prompt in prompts]
    engine = GreedyEngine(CausalModel(build_tiny_model(FAMILY, **own), FAMILY), tokens_per_step=23)
    engine.runner.pages.pool.fill_(-1)  # a NaN in every float type
    for _ in range(2):
        check_answers(engine.generate(prompts, 12), expected)


def test_after_preemptions():
    plain = build_tiny_model(FAMILY)
    prompts = prompts_with_ends()[3:9]
    expected = [plain_answer(plain, prompt) for prompt in prompts]
    model = CausalModel(build_tiny_model(FAMILY), FAMILY)
    engine = GreedyEngine.with_least_memory(model, times=1.5, max_model_len=112, tokens_per_step=40)
    engine.runner.pages.pool.fill_(-1)
    check_answers(engine.generate(prompts, 12), expected)
    assert engine.num_preemptions


@pytest.mark.parametrize("key", [("conv", 0), ("conv", 1), ("recurrent", 0)])
def test_each_state_counts(key, tmp_path, monkeypatch):
    """Also that of the embeddings' convolution, which lies in a layer with a delta net."""
    replace = BoundStates.replace

    def forget_one(states, replaced, state):
        return state if replaced == key else replace(states, replaced, state)

    monkeypatch.setattr(BoundStates, "replace", forget_one)
    with pytest.raises(NotAdmittedError, match="its tokens differ"):
        compare(FAMILY, tmp_path)


def test_the_tokens_before_a_step_count(tmp_path, monkeypatch):
    def forget(row, number, filler):
        return torch.full((len(row.token_ids), number), filler)

    monkeypatch.setattr(PackedRow, "earlier_tokens", forget)
    with pytest.raises(NotAdmittedError, match="its tokens differ"):
        compare(FAMILY, tmp_path)


def test_a_step_without_them_fails():
    """Rather than to compute with others."""
    engine = GreedyEngine(CausalModel(build_tiny_model(FAMILY), FAMILY))
    request = engine.add([7] * 20, 1).request
    engine.runner.execute([engine.manager.allocate(request, 20)])
    tables = [table.rows for table in request.tables]
    sequence = ScheduledSequence(
        token_ids=[7] * 4, num_computed_tokens=16, block_tables=tables, known_token_ids=[7] * 15
    )
    with pytest.raises(AssertionError, match="nobody told"):
        engine.runner.run(StepBatch(sequences=[sequence]))


def test_no_page_holds_tokens(tmp_path):
    save_tiny_model(FAMILY, tmp_path)
    specs = load_model(tmp_path).kv_cache_specs()
    shapes = {name: spec.shapes for name, spec in specs.items() if isinstance(spec, MambaSpec)}
    delta_net = ((128, 4), (4, 16, 16))
    convolved = ((128, 4), (128, 9), (4, 16, 16))
    assert shapes == {"layers.0.state": convolved, "layers.2.state": delta_net, "layers.3.state": convolved}


def test_tokens_that_would_be_kept_as_a_state_are_refused(tmp_path, monkeypatch):
    save_tiny_model(FAMILY, tmp_path)
    monkeypatch.setattr("octavo.engine.models.probe.find_ngrams", lambda model: {})
    with pytest.raises(UnsupportedModelError, match="layer 0 keeps whole numbers in its state"):
        load_model(tmp_path)


def test_a_folder_with_parts_for_images_is_served_for_text(tmp_path):
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
    config = transformers.Qwen4ExpConfig(text_config=tiny_config(FAMILY).to_dict(), vision_config=vision)
    torch.manual_seed(0)
    whole = transformers.Qwen4ExpForConditionalGeneration._from_config(config, attn_implementation="eager")
    whole.generation_config.eos_token_id = None
    whole.eval().save_pretrained(tmp_path)
    prompts = prompts_with_ends()[4:8]
    expected = [plain_answer(whole, prompt) for prompt in prompts]
    check_answers(GreedyEngine(load_model(tmp_path)).generate(prompts, 12), expected)
