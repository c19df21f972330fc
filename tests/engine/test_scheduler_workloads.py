"""Random workloads over every shape of cache: no token differs, nothing stays held."""

import random

import pytest
from hash_runner import HashEngine, greedy
from hypothesis import given, settings, strategies as st

from octavo.engine.outputs import FinishReason
from octavo.specs import MambaSpec
from octavo.testing import MODEL_EXAMPLES

SHAPES = [
    name
    for name, model in MODEL_EXAMPLES.items()
    if not any(word in name for word in ("cross", "encoder", "draft", "speculative"))
]
"""Those that a decoder can have which does not speculate."""

requests = st.fixed_dictionaries(
    {
        "shared": st.integers(0, 60),
        "own": st.integers(1, 30),
        "seed": st.integers(0, 2),
        "max_tokens": st.integers(0, 30),
        "n": st.sampled_from([1, 1, 1, 2, 3]),
        "wants_prompt": st.sampled_from([False, False, False, True]),
        "tenant": st.sampled_from([None, "a", "b"]),
    }
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), requests),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.tuples(st.just("abort"), st.integers(0, 100)),
        st.tuples(st.just("fail"), st.none()),
        st.tuples(st.just("reset"), st.none()),
    ),
    min_size=4,
    max_size=25,
)


def prompt_of(wish):
    shared = [(wish["seed"] * 13 + i * 5) % 61 for i in range(wish["shared"])]
    return shared + [(wish["own"] + i * 3) % 61 for i in range(wish["own"])]


class Workload:
    """An engine, the requests it was given, and what is wrong with its answers."""

    def __init__(self, shape, spare, max_step_tokens):
        model = MODEL_EXAMPLES[shape]
        step_tokens = min(max_step_tokens, model.limits.max_step_tokens)
        seats = min(5, step_tokens)
        self.engine = HashEngine(model, spare=spare, max_step_tokens=step_tokens, max_num_seqs=seats, max_waiting=50)
        self.wishes = []

    def add(self, wish):
        wanted = greedy(wish["max_tokens"], n=wish["n"], prompt_logprobs=0 if wish["wants_prompt"] else None)
        self.engine.add_request(str(len(self.wishes)), prompt_of(wish), wanted, tenant=wish["tenant"])
        self.wishes.append(wish)

    def step(self, times):
        for _ in range(times):
            self.engine.run_step()

    def abort(self, number):
        if self.wishes:
            self.engine.drop(str(number % len(self.wishes)))

    def fail(self, _):
        self.engine.hash_runner.fails_next = 1

    def reset(self, _):
        self.engine.reset_prefix_cache()

    def check(self):
        self.engine.run_all()
        for name, wish in enumerate(self.wishes):
            prompt = prompt_of(wish)
            expected = self.engine.model.greedy(prompt, min(wish["max_tokens"], 96 - len(prompt)))
            for index in range(wish["n"]):
                last = self.engine.last(str(name), index)
                tokens = self.engine.tokens(str(name), index)
                if last.finish_reason is FinishReason.LENGTH:
                    assert tokens == expected
                else:
                    assert last.finish_reason in (FinishReason.ABORT, FinishReason.ERROR)
                    assert tokens == expected[: len(tokens)]
                assert [output.is_finished for output in self.engine.outputs[str(name), index]].count(True) == 1


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=12)
@given(actions=actions, spare=st.sampled_from([0.0, 0.3, 2.0]), max_step_tokens=st.sampled_from([5, 16, 24]))
def test_no_token_differs(shape, actions, spare, max_step_tokens):
    workload = Workload(shape, spare, max_step_tokens)
    for name, argument in actions:
        getattr(workload, name)(argument)
    workload.check()


@pytest.mark.parametrize("shape", ["state + window + full", "several windows + full", "latent windows"])
def test_pages_that_move_lose_nothing(shape):
    chooser = random.Random(0)
    engine = HashEngine(MODEL_EXAMPLES[shape], spare=1.5)
    asked = {}
    for number in range(30):
        prompt = [chooser.randrange(61) for _ in range(chooser.randrange(1, 70))]
        asked[str(number)] = prompt, chooser.randrange(1, 26)
        engine.add(str(number), *asked[str(number)])
    engine.run_all()
    assert engine.hash_runner.num_moves > 0
    for name, (prompt, num_tokens) in asked.items():
        assert engine.tokens(name) == engine.model.greedy(prompt, num_tokens)


def test_the_shapes_are_many():
    assert len(SHAPES) >= 14
    assert any(isinstance(spec, MambaSpec) for name in SHAPES for spec in MODEL_EXAMPLES[name].layers.values())
