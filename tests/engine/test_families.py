"""Every family: greedy tokens through the real pool and manager are those of plain Hugging Face."""

import pytest
import torch
from greedy_engine import GreedyEngine

from octavo.engine import load_model
from octavo.engine.tiny_families import TINY_MODELS, VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model

NEW_TOKENS = 12
TOLERANCE = 2e-3
"""Zamba2 and Nemotron-H clamp time steps in their chunked form only, so cutting a prompt moves logits by up to
1.3e-3; of the others, none moves by half of that."""


def make_prompts():
    """Short and long ones, two of which share 80 tokens."""
    generator = torch.Generator().manual_seed(3)

    def tokens(number):
        return torch.randint(3, VOCAB_SIZE, (number,), generator=generator).tolist()

    shared = tokens(80)
    return [tokens(5), shared + tokens(17), tokens(150), tokens(33), shared + tokens(40), tokens(64)]


PROMPTS = make_prompts()


def plain_answer(model, prompt):
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),  # else token 0, the padding, is hidden
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    return output.sequences[0, len(prompt) :].tolist(), torch.cat(output.logits)


@pytest.fixture(scope="module", params=list(TINY_MODELS))
def family(request, tmp_path_factory):
    """The model, and what plain Hugging Face answers to each prompt."""
    folder = tmp_path_factory.mktemp(request.param)
    save_tiny_model(request.param, folder)
    plain = build_tiny_model(request.param)
    return load_model(folder), [plain_answer(plain, prompt) for prompt in PROMPTS]


def check_answers(jobs, expected):
    assert [job.generated for job in jobs] == [tokens for tokens, _ in expected]
    for job, (_, logits) in zip(jobs, expected, strict=True):
        assert (torch.stack(job.logits) - logits).abs().max() < TOLERANCE


def test_cold_and_on_prefix_hits(family):
    model, expected = family
    engine = GreedyEngine(model, tokens_per_step=512)
    check_answers(engine.generate(PROMPTS, NEW_TOKENS), expected)

    again = engine.generate(PROMPTS, NEW_TOKENS)
    check_answers(again, expected)
    step = engine.config.resume_granularity
    assert [job.num_resumed for job in again] == [(len(prompt) - 1) // step * step for prompt in PROMPTS]


def test_in_small_steps_over_a_pool_of_nans(family):
    model, expected = family
    engine = GreedyEngine(model, tokens_per_step=40, state_block_size=32)
    engine.runner.pages.pool.fill_(-1)  # a NaN in every float type
    check_answers(engine.generate(PROMPTS, NEW_TOKENS), expected)


def test_in_a_tight_pool(family):
    """Little more than one longest request fits: requests wait for each other, and what is cached is evicted."""
    model, expected = family
    engine = GreedyEngine.with_least_memory(model, times=1.2, max_model_len=176, tokens_per_step=96)
    engine.runner.pages.pool.fill_(-1)
    for _ in range(2):
        check_answers(engine.generate(PROMPTS, NEW_TOKENS), expected)
