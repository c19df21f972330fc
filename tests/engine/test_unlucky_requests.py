"""Requests at the edges of what is allowed, and cancelled or reset at the worst of times."""

import random

import pytest
from workloads import Clock, Delay, check_nothing_is_held, families, forget_device, generate, greedy, settle

from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.outputs import FinishReason
from octavo.engine.sampling_params import MAX_LOGPROBS, SamplingParams
from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.errors import InputError, RequestTooLargeError

NEW_TOKENS = 4
CHUNK = 96
"""Of a prompt, in one step."""


family = families("gemma3", "qwen3_next")


def run(engine, request_id, prompt, params):
    """By choice, all outputs."""
    engine.add_request(request_id, prompt, params)
    outputs = [[] for _ in range(params.n)]
    while engine.has_unfinished:
        for output in engine.step():
            outputs[output.index].append(output)
    assert all(of_one[-1].is_finished for of_one in outputs)
    return outputs


def test_prompts_that_end_at_boundaries_of_blocks_windows_and_steps(family):
    chooser = random.Random(1)
    edges = [1, 2, *(edge + off for edge in (8, 16, 24, 32, CHUNK) for off in (-1, 0, 1)), 191 - NEW_TOKENS]
    prompts = [family.choose(chooser, [], length, NEW_TOKENS) for length in edges]
    engine = family.engine(offload={"memory": "8MiB"})
    for forget in (lambda _: None, settle, forget_device):
        forget(engine)
        for prompt in prompts:  # one by one: nobody shares a step
            generate(engine, [prompt], NEW_TOKENS)[0].check_is(family.answer(prompt, NEW_TOKENS))
    engine.close()


def test_a_prompt_may_fill_the_pool_and_the_context(family):
    chooser = random.Random(2)
    longest = family.engine(family.least_memory()).max_model_len
    prompt = family.choose(chooser, [], longest - 1, 1)
    engine = family.engine(family.least_memory(), offload={"memory": "8MiB"})
    for max_tokens in (1, 50, None):  # the context ends them all
        outputs = run(engine, "q", prompt, SamplingParams(max_tokens=max_tokens, temperature=0))
        assert [output.token_ids for output in outputs[0]] == [tuple(family.answer(prompt, 1).tokens)]
        assert outputs[0][0].finish_reason is FinishReason.LENGTH
    assert run(engine, "q", prompt, SamplingParams(max_tokens=0, n=3))[2][0].token_ids == ()
    with pytest.raises(RequestTooLargeError):
        engine.add_request("q", [*prompt, 5], greedy(1))
    engine.close()


@pytest.mark.parametrize("seed", [(1 << 64) - 1, -(1 << 63), -1])
def test_choices_of_the_last_seed_have_seeds_too(family, seed):
    engine = family.engine()
    params = SamplingParams(max_tokens=12, seed=seed, n=3, logprobs=MAX_LOGPROBS)
    answers = [run(engine, "q", [5, 6, 7], params) for _ in range(2)]
    tokens = [[[output.token_ids for output in of_one] for of_one in answer] for answer in answers]
    assert tokens[0] == tokens[1]
    assert tokens[0][0] != tokens[0][1] != tokens[0][2]
    assert all(len(output.logprobs[0].top) == MAX_LOGPROBS for of_one in answers[0] for output in of_one)


@pytest.mark.parametrize("prompt", [[], [1.5, 2.0], [[1, 2]], [True, False], ["1"], [1 << 70], [-1], [VOCAB_SIZE]])
def test_what_is_no_prompt_is_refused(family, prompt):
    engine = family.engine()
    with pytest.raises(InputError):
        engine.add_request("q", prompt, greedy(1))
    assert not engine.has_unfinished
    assert not engine.manager.requests


@pytest.mark.parametrize("seed", range(3))
def test_aborts_and_resets_while_transfers_are_under_way(family, seed):
    """Transfers begin late, so that most of what happens here happens to somebody who waits for one."""
    chooser, clock = random.Random(seed), Clock()
    shared = [chooser.randrange(3, VOCAB_SIZE) for _ in range(48)]
    prompts = [family.choose(chooser, shared[: 16 * (i % 4)], 20 + 9 * i, NEW_TOKENS) for i in range(6)]
    memory = int(family.least_memory() * 1.5)
    engine = family.engine(memory, offload={"memory": "8MiB"}, clock=clock, delay=Delay(4))

    def disturb():
        match chooser.randrange(12):
            case 0 | 1 if gone:
                engine.abort(gone.pop())
            case 2:
                engine.reset_prefix_cache()
            case 3 | 4:
                engine.manager.reset_prefix_cache()  # so that there is something to load

    for round_number in range(5):
        gone = [f"gone {round_number} {i}" for i in range(3)]
        for name in gone:
            engine.add_request(name, chooser.choice(prompts), greedy(30, n=chooser.choice([1, 3])))
        outputs = answer_despite(engine, prompts, disturb)
        for prompt, answer in zip(prompts, outputs, strict=True):
            assert answer == family.answer(prompt, NEW_TOKENS).tokens
    assert engine.offload_stats().loaded_bytes > 0
    check_nothing_is_held(engine, clock)
    engine.close()


def answer_despite(engine, prompts, disturb):
    answers = {str(number): [] for number in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, greedy(NEW_TOKENS))
    while engine.has_unfinished:
        for output in engine.step():
            if output.request_id in answers:
                answers[output.request_id] += output.token_ids
        disturb()
    return list(answers.values())


def test_choices_stop_at_their_own_stop_strings(family):
    engine = Engine.from_config(EngineConfig(model=family.folder, device_memory_bytes=8 << 20, max_model_len=192))
    params = {"max_tokens": 24, "seed": 3, "n": 4, "logprobs": 2, "ignore_eos": True}
    free = ["".join(o.text for o in of_one) for of_one in run(engine, "q", [9, 8, 7], SamplingParams(**params))]
    stop = tuple(text[3:5] for text in free[:2])
    stopped = run(engine, "q", [9, 8, 7], SamplingParams(**params, stop=stop))
    for outputs, whole in zip(stopped, free, strict=True):
        text = "".join(output.text for output in outputs)
        ends = [whole.index(string) for string in stop if string in whole]
        assert text == whole[: min(ends, default=None)]
        assert outputs[-1].finish_reason is (FinishReason.STOP if ends else FinishReason.LENGTH)
        assert outputs[-1].stop_reason in (stop if ends else (None,))
        assert all(len(output.logprobs) == len(output.token_ids) for output in outputs)
    assert not engine.manager.requests
    engine.close()
