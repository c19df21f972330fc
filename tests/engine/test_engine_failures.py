"""What fails costs the requests that it touched, and nobody else."""

import numpy as np
import pytest
from hash_runner import HashEngine, HashModel

from octavo.engine.outputs import FinishReason
from octavo.engine.sampler import Sampler
from octavo.engine.sampling_params import SamplingParams
from octavo.testing import full, small_model, state, window

PROMPT = [(i * i) % 61 for i in range(40)]
OTHER = [(i * 3) % 61 for i in range(40)]


@pytest.mark.parametrize(
    "model", [small_model(full()), small_model(state(), window(9), full())], ids=["full", "hybrid"]
)
@pytest.mark.parametrize("step", range(6))
def test_a_failed_step_ends_its_requests_only(model, step):
    engine = HashEngine(model, max_num_seqs=2, max_step_tokens=16)
    engine.add("a", PROMPT, 9, n=2)
    engine.add("b", OTHER, 9)
    for _ in range(step):
        engine.run_step()
    engine.hash_runner.fails_next = 1
    engine.run_all()
    for index in range(2):
        assert engine.last("a", index).finish_reason is FinishReason.ERROR
        assert "out of luck" in engine.last("a", index).error
    assert engine.tokens("b") == engine.model.greedy(OTHER, 9)
    assert engine.counters.failed_steps == 1
    engine.add("c", PROMPT, 9)
    engine.run_all()
    assert engine.tokens("c") == engine.model.greedy(PROMPT, 9)


def test_what_a_failed_step_wrote_is_never_read():
    """The pages of a failed step hold tokens that were never committed: another prompt must not find them."""
    engine = HashEngine(small_model(state(), full(), checkpoint_interval_tokens=8), max_step_tokens=64)
    engine.hash_runner.fails_next = 1
    engine.add("a", PROMPT, 9)
    engine.run_all()
    engine.hash_runner.pages.clear()
    engine.add("b", PROMPT, 9)
    engine.run_all()
    assert engine.last("b").cached_tokens == {}
    assert engine.tokens("b") == engine.model.greedy(PROMPT, 9)


def test_sampling_that_fails_is_a_failed_step(monkeypatch):
    engine = HashEngine(small_model(full()))
    engine.add("a", PROMPT, 9, n=2)
    engine.run_step()

    def fail(*_):
        raise RuntimeError("no dice")

    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "sample", fail)
        engine.run_step()
    engine.run_all()
    assert [engine.last("a", index).finish_reason for index in range(2)] == [FinishReason.ERROR] * 2
    engine.add("b", PROMPT, 9)
    engine.run_all()
    assert engine.tokens("b") == engine.model.greedy(PROMPT, 9)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_of_no_numbers_is_an_error(monkeypatch, temperature):
    """Damaged weights, or activations too large for float16: all logits are NaN, and their tokens would be noise."""
    engine = HashEngine(small_model(full()))
    compute = HashModel.of_read
    whole = tuple(PROMPT)

    def overflow(read):
        return compute(read) * (np.nan if read[0][: len(whole)] == whole and len(read[0]) > len(whole) + 2 else 1)

    monkeypatch.setattr(HashModel, "of_read", staticmethod(overflow))
    engine.add_request("a", PROMPT, SamplingParams(max_tokens=9, n=2, temperature=temperature, seed=1))
    engine.add("b", OTHER, 9)
    engine.run_all()
    for index in range(2):
        assert (engine.last("a", index).finish_reason, len(engine.tokens("a", index))) == (FinishReason.ERROR, 3)
        assert "the model computed NaN" in engine.last("a", index).error
    assert engine.tokens("b") == engine.model.greedy(OTHER, 9)
    assert engine.counters.output_tokens == 3 + 3 + 9


def test_copies_that_fail_end_all_that_runs_and_nothing_stays_cached():
    engine = HashEngine(small_model(state(), full()), max_step_tokens=64, max_num_seqs=1)
    engine.add("a", PROMPT, 30)
    engine.add("b", OTHER, 9)
    engine.hash_runner.fails_copies = True
    while ("a", 0) not in engine.outputs or not engine.last("a").is_finished:
        engine.run_step()
    assert engine.last("a").finish_reason is FinishReason.ERROR
    assert "no copy today" in engine.last("a").error
    engine.hash_runner.fails_copies = False
    engine.hash_runner.pages.clear()
    engine.run_all()
    assert engine.tokens("b") == engine.model.greedy(OTHER, 9)
    engine.add("c", PROMPT, 9)
    engine.run_all()
    assert engine.last("c").cached_tokens == {}
    assert engine.tokens("c") == engine.model.greedy(PROMPT, 9)
