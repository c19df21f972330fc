"""What is refused, and that the message names it."""

import pytest

from octavo.engine.sampling_params import MAX_STOP_STRINGS, SamplingParams
from octavo.errors import InputError


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": -1},
        {"max_tokens": 2.0},
        {"max_tokens": True},
        {"min_tokens": -1},
        {"min_tokens": None},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "hot"},
        {"temperature": 10**400},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -2},
        {"min_p": -0.1},
        {"min_p": 1.5},
        {"repetition_penalty": 0},
        {"repetition_penalty": 1e-7},
        {"repetition_penalty": 5e-324},
        {"presence_penalty": 2.1},
        {"frequency_penalty": -3},
        {"seed": 1 << 64},
        {"seed": "x"},
        {"n": 0},
        {"n": 1000},
        {"logprobs": -1},
        {"logprobs": 10_000},
        {"prompt_logprobs": -1},
        {"stop": ("",)},
        {"stop": "text"},
        {"stop": (3,)},
        {"stop": ("x",) * (MAX_STOP_STRINGS + 1)},
        {"stop": ("x" * 5000,)},
        {"stop_token_ids": (-1,)},
        {"stop_token_ids": [1]},
        {"min_tokens": 5, "max_tokens": 4},
    ],
    ids=str,
)
def test_wrong_values_are_refused_by_name(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_the_bounds_themselves_are_fine():
    SamplingParams(
        max_tokens=0,
        temperature=0,
        top_p=1,
        top_k=-1,
        min_p=1,
        repetition_penalty=1e-6,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=-(1 << 63),
        logprobs=0,
    )


def test_choices_of_a_seeded_request_have_seeds_of_their_own():
    params = SamplingParams(seed=7, n=3)
    assert [params.for_choice(index).seed for index in range(3)] == [7, 8, 9]
    assert SamplingParams(n=3).for_choice(2).seed is None


def test_a_bound_without_an_end_is_told_as_one():
    with pytest.raises(InputError, match="max_tokens must be a whole number of 0 or more, not -1"):
        SamplingParams(max_tokens=-1)
    with pytest.raises(InputError, match="n must be a whole number from 1 to 256, not 0"):
        SamplingParams(n=0)
