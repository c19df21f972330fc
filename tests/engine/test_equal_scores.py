"""Indexers with one head: every second score is zero, and what is chosen of these must not depend on the step."""

import pytest
import torch
from greedy_engine import GreedyEngine

from octavo.engine import CausalModel
from octavo.engine.models.equal_scores import best_of_seen
from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model

NEW_TOKENS = 6
FEW = {
    "glm5": {"index_n_heads": 1, "index_topk": 3},
    "glm5_next": {"index_n_heads": 1, "index_topk": 8},
    "deepseek_v4": {"index_n_heads": 1, "index_topk": 2},
    "qwen4_exp": {"indexer_n_heads": 1, "indexer_budget": 8},
}


def answers(model, prompts, tokens_per_step):
    return [job.generated for job in GreedyEngine(model, tokens_per_step=tokens_per_step).generate(prompts, NEW_TOKENS)]


@pytest.mark.parametrize("family", list(FEW))
def test_answers_are_the_same_in_every_batch(family):
    model = CausalModel(build_tiny_model(family, **FEW[family]), family)
    generator = torch.Generator().manual_seed(0)
    lengths = (3, 9, 17, 24, 33, 40, 41, 60, 62, 75, 90, 100)
    prompts = [torch.randint(3, VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]
    alone = [answers(model, [prompt], 512)[0] for prompt in prompts]
    assert answers(model, prompts, 1024) == alone
    assert answers(model, prompts, 21) == alone


@pytest.mark.parametrize("hidden", [torch.finfo(torch.float32).min, -torch.inf])
def test_a_query_chooses_as_if_it_were_alone(hidden):
    """Whole numbers, so many are equal."""
    generator = torch.Generator().manual_seed(0)
    for number in (0, 1, 2, 5, 40):
        scores = torch.randint(-2, 3, (3, 50, 40), generator=generator).float()
        seen = torch.randint(1, 41, (3, 50), generator=generator)
        scores = scores.masked_fill(torch.arange(40) >= seen[..., None], hidden)
        _, places = best_of_seen(scores, number)
        for row, num_seen, chosen in zip(
            scores.flatten(0, 1), seen.flatten().tolist(), places.flatten(0, 1), strict=True
        ):
            alone = row[:num_seen].topk(min(number, num_seen)).indices
            assert {*chosen.tolist()} & {*range(num_seen)} == {*alone.tolist()}


def test_a_score_that_is_no_number_ends_no_step():
    scores = torch.tensor([[torch.nan] * 5 + [0.0, 0.0, -torch.inf], [1.0, 0.0, 0.0, 0.0] + [-torch.inf] * 4])
    _, places = best_of_seen(scores, 6)
    assert {*range(5)} < {*places[0].tolist()}, "it is the greatest, as for topk"
    assert {*range(4)} < {*places[1].tolist()}
