"""Each rule against its definition, token by token, and rows against the company they are in."""

import math
import tracemalloc
from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from octavo.engine.drawing import find_candidates, find_largest
from octavo.engine.outputs import Alternatives
from octavo.engine.sampler import SampledSequence, Sampler, find_logprobs
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.sampling_state import SamplingState

VOCAB_SIZE = 40


def state(stop_ids=(), **params):
    return SamplingState(SamplingParams(**params), stop_ids)


def sample(logits, *states, prompts=None):
    prompts = prompts or [[0]] * len(states)
    return Sampler().sample(logits, [SampledSequence(s, p) for s, p in zip(states, prompts, strict=True)])


def random_logits(rows, vocab_size=VOCAB_SIZE, seed=0, spread=2.0):
    return spread * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def token_weights(logits, *wishes):
    """What each row's token is drawn from, over the whole vocabulary."""
    weights = torch.full_like(logits, torch.nan)
    for found in find_candidates(logits, [SamplingParams(**wish) for wish in wishes]):
        assert weights[found.rows].isnan().all(), "a row comes once"
        if found.ids is None:
            weights[found.rows] = found.weights
        else:
            assert (found.ids.diff() > 0).all()
            weights[found.rows] = torch.zeros(len(found.rows), logits.shape[-1]).scatter(1, found.ids, found.weights)
    return weights


def expected_probabilities(logits, params):
    """By the definition: sorting in plain Python, in double precision."""
    scaled = [x / params.temperature for x in logits.tolist()]
    weights = [math.exp(x - max(scaled)) for x in scaled]
    least = params.min_p * max(weights)
    kept = {i for i, w in enumerate(weights) if w >= least}
    ranked = sorted(kept, key=lambda i: -weights[i])
    if params.top_k > 0:
        ranked = ranked[: params.top_k]
    total = sum(weights[i] for i in ranked)
    nucleus, mass = [], 0.0
    for i in ranked:
        if mass >= params.top_p * total:
            break
        nucleus.append(i)
        mass += weights[i]
    return {i: weights[i] / mass for i in nucleus}


rules = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.3, 0.8, 1.0, 2.0]),
        "top_k": st.sampled_from([0, -1, 1, 3, 17, 40, 99]),
        "top_p": st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    },
)


@settings(max_examples=60)
@given(wishes=st.lists(rules, min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_tokens_are_drawn_from_what_the_rules_leave(wishes, seed):
    logits = random_logits(len(wishes), seed=seed)
    found = token_weights(logits, *wishes)
    for row, wish in enumerate(wishes):
        expected = expected_probabilities(logits[row], SamplingParams(**wish))
        weights = found[row] / found[row].sum()
        assert set(weights.nonzero()[:, 0].tolist()) == set(expected)
        for token, probability in expected.items():
            assert weights[token].item() == pytest.approx(probability, rel=1e-4)


@pytest.mark.parametrize("top_p", [0.2, 0.9, 0.9999])
def test_a_nucleus_wider_than_the_candidates_is_found_whole(top_p):
    logits = random_logits(3, vocab_size=5000, spread=0.3)
    wishes = [{"top_p": top_p}, {"top_p": 0.01}, {"top_p": top_p, "min_p": 0.4}]
    found = token_weights(logits, *wishes)
    for row, (wish, doubtful) in enumerate(zip(wishes, (2, 0, 2), strict=True)):  # sums are made in another order
        kept = set(found[row].nonzero()[:, 0].tolist())
        assert len(kept ^ set(expected_probabilities(logits[row], SamplingParams(**wish)))) <= doubtful


@settings(max_examples=60)
@given(size=st.integers(1, 900), count=st.integers(0, 40), num_values=st.integers(1, 2000), seed=st.integers(0, 1000))
def test_the_largest_are_found(size, count, num_values, seed):
    numbers = torch.randint(num_values, (3, size), generator=torch.Generator().manual_seed(seed)).float()
    count = min(size, count)
    values, ids = find_largest(numbers, count)
    assert torch.equal(values, numbers.topk(count).values)
    assert torch.equal(numbers.gather(1, ids), values)
    assert all(len(set(row)) == count for row in ids.tolist())


def test_ties_are_settled_without_the_neighbours():
    """Logits of half precision are equal now and then, also where a top-k or a nucleus ends."""
    logits = torch.randint(6, (20, 2000), generator=torch.Generator().manual_seed(0)).float()
    wishes = [{"top_k": 7, "seed": 1}, {"top_p": 0.01, "seed": 2}]
    neighbours = [{"top_k": k} for k in (1, 300, 1999)] + [{"top_p": 0.9}, {}]
    for row in logits:
        rows = row.expand(len(wishes) + len(neighbours), -1)
        alone = [sample(row[None], state(**wish)).token_ids[0] for wish in wishes]
        assert sample(rows, *(state(**wish) for wish in wishes + neighbours)).token_ids[:2] == alone


@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 1e-6, 1e-5])
def test_hardly_any_temperature_takes_the_largest(temperature):
    logits = random_logits(4, spread=20.0)
    states = [state(temperature=temperature, seed=row, top_p=0.9 if row % 2 else 1.0) for row in range(4)]
    assert sample(logits, *states).token_ids == logits.argmax(-1).tolist()


def test_min_p_of_1_leaves_the_largest():
    logits = random_logits(4)
    states = [state(min_p=1.0, **wish) for wish in ({}, {"top_k": 5}, {"top_p": 0.9}, {"temperature": 100.0})]
    assert sample(logits, *states).token_ids == logits.argmax(-1).tolist()


def test_draws_follow_the_probabilities():
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, -torch.inf]])
    one = state(seed=1)
    counts = Counter(sample(logits, one).token_ids[0] for _ in range(20_000))
    for token, probability in enumerate(logits[0].softmax(0).tolist()):
        assert counts[token] / 20_000 == pytest.approx(probability, abs=0.01)
    assert counts[4] == 0


def test_greedy_takes_the_largest_whatever_else_is_asked():
    logits = random_logits(3)
    states = [state(temperature=0), state(temperature=0, top_k=5, min_p=0.5, seed=3), state(temperature=1.0)]
    assert sample(logits, *states).token_ids[:2] == logits.argmax(-1).tolist()[:2]


def test_a_seeded_row_does_not_depend_on_its_neighbours():
    logits = random_logits(8, vocab_size=3000)
    wishes = [{"seed": 5, "top_p": 0.9}, {"seed": 6, "top_k": 7}, {"seed": 7}, {"seed": 8, "min_p": 0.02}]
    alone = [[], [], [], []]
    for number, wish in enumerate(wishes):
        one = state(**wish)
        alone[number] = [sample(logits[step : step + 1], one).token_ids[0] for step in range(8)]
    together = [state(**wish) for wish in wishes]
    crowd = [state(temperature=0), state(), state(presence_penalty=1.0)]
    for step in range(8):
        rows = torch.cat([logits[step].expand(4, -1), random_logits(3, vocab_size=3000, seed=step)])
        tokens = sample(rows, *together, *crowd).token_ids[:4]
        assert tokens == [of_one[step] for of_one in alone]
    assert len(set(alone[2])) > 1


def test_penalties_by_their_definition():
    logits = random_logits(1)
    params = {"temperature": 0, "repetition_penalty": 1.7, "presence_penalty": 0.6, "frequency_penalty": 0.4}
    one, prompt = state(**params), [3, 3, 9]
    outputs = []
    for _ in range(30):
        adjusted = logits[0].clone()
        for token in {*prompt, *outputs}:
            adjusted[token] = adjusted[token] / 1.7 if adjusted[token] > 0 else adjusted[token] * 1.7
        for token, count in Counter(outputs).items():
            adjusted[token] -= 0.6 + 0.4 * count
        expected = adjusted.argmax().item()
        before = logits.clone()
        assert sample(logits, one, prompts=[[*prompt, *outputs]]).token_ids == [expected]
        assert torch.equal(logits, before), "the model's logits stay as they are"
        outputs.append(expected)
    assert len(set(outputs)) > 5


@pytest.mark.parametrize("wish", [{}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
def test_a_single_nan_is_found_whatever_is_drawn(wish):
    """One damaged row of an output matrix makes one logit NaN, and with it every weight."""
    logits = random_logits(2, vocab_size=3000)
    logits[0, 7] = torch.nan
    assert sample(logits, *(state(seed=1, **wish) for _ in range(2))).nan_rows == [0]


@pytest.mark.parametrize("wish", [{}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
def test_an_infinite_logit_is_the_largest(wish):
    logits = random_logits(2, vocab_size=3000)
    logits[0, [7, 9]] = torch.inf
    sampled = sample(logits, *(state(seed=1, **wish) for _ in range(2)))
    assert (sampled.token_ids[0], sampled.nan_rows) == (7, [])


@pytest.mark.parametrize("penalty", [1e-6, 1e6])
def test_the_widest_penalties_leave_numbers(penalty):
    """Drawn among those that a penalty has raised, or has not; never beyond the allowed ones."""
    logits = random_logits(1, spread=100.0)
    one = state(repetition_penalty=penalty, stop_ids=range(20, VOCAB_SIZE), min_tokens=60)
    tokens = [sample(logits, one, prompts=[[0, 3, 5, VOCAB_SIZE - 1]]).token_ids[0] for _ in range(50)]
    assert max(tokens) < 20


def test_penalties_of_one_row_touch_no_other():
    logits = torch.zeros(2, VOCAB_SIZE)
    logits[:, 5] = 1.0
    states = [state(temperature=0, presence_penalty=2.0), state(temperature=0)]
    assert sample(logits, *states).token_ids == [5, 5]
    assert sample(logits, *states, prompts=[[0, 5], [0, 5]]).token_ids == [0, 5]


def test_nothing_stops_before_min_tokens():
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, [7, 8]] = torch.tensor([9.0, 8.0])
    logits[0, 2] = 1.0
    one = state(stop_ids=(7, 8), min_tokens=3, temperature=0)
    assert [sample(logits, one).token_ids[0] for _ in range(4)] == [2, 2, 2, 7]


def test_logprobs_are_of_the_logits_as_they_came():
    logits = random_logits(3)
    states = [
        state(temperature=0, logprobs=2, repetition_penalty=5.0),
        state(temperature=0),
        state(temperature=0.1, logprobs=0, seed=1),
    ]
    answer = sample(logits, *states)
    logprobs = logits.log_softmax(-1)
    assert answer.logprobs[1] is None
    for row, num_top in ((0, 2), (2, 0)):
        found = answer.logprobs[row]
        assert found.token_id == answer.token_ids[row]
        assert found.logprob == pytest.approx(logprobs[row, found.token_id].item())
        assert len(found.top) == num_top
    values, ids = logprobs[0].topk(2)
    assert [token for token, _ in answer.logprobs[0].top] == ids.tolist()
    assert [value for _, value in answer.logprobs[0].top] == pytest.approx(values.tolist())


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(width=32, allow_nan=False)), max_size=6), st.data())
def test_alternatives_are_a_sequence_of_pairs(pairs, data):
    top = Alternatives(*zip(*pairs, strict=True)) if pairs else Alternatives()
    assert list(top) == [top[index] for index in range(len(top))] == pairs
    first = data.draw(st.integers(0, len(pairs)))
    assert list(top[:first]) == pairs[:first]
    assert (top == top[:first], hash(top) == hash(top[:])) == (first == len(pairs), True)


def test_a_token_with_128_alternatives_takes_little_memory():
    logits = random_logits(100, vocab_size=1000)
    find_logprobs(logits, [0] * 100, 128)
    tracemalloc.start()
    try:
        found = find_logprobs(logits, [0] * 100, 128)
        assert tracemalloc.get_traced_memory()[0] < 2000 * len(found)
    finally:
        tracemalloc.stop()


def test_ranks_count_from_one():
    logits = torch.tensor([[3.0, 1.0, 2.0]] * 3)
    assert [found.rank for found in find_logprobs(logits, [0, 1, 2], 0)] == [1, 3, 2]


def test_half_precision_logits_are_sampled_in_full():
    logits = random_logits(1, vocab_size=3000).bfloat16()
    one, same = state(seed=3), state(seed=3)
    assert sample(logits, one).token_ids == sample(logits.float(), same).token_ids


def test_a_fork_draws_its_own_numbers_and_keeps_the_counts():
    one = state(seed=1, presence_penalty=1.0)
    twin = one.fork(one.params.for_choice(1))
    assert one.draw() != twin.draw()
    assert twin.params.seed == 2


def test_broken_logits_give_some_token_of_the_vocabulary():
    logits = torch.full((2, VOCAB_SIZE), torch.nan)
    assert all(0 <= token < VOCAB_SIZE for token in sample(logits, state(), state(temperature=0)).token_ids)
