"""The embedded engine serves requests with real tokens and records them; replayed with the same plan and the same
memory, the simulator resumes as many tokens of each, from the same media."""

import random

import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

import torch

from octavo.engine import Engine, EngineConfig, SamplingParams, offload_maker, save_tiny_model
from octavo.offload import OffloadConfig
from octavo.sim import SimConfig, Speeds, read_trace
from octavo.sim.engine import SimulatedEngine
from octavo.transfer import make_worker

FAMILIES = ["qwen3", "gemma3", "qwen3_next"]
NUM_REQUESTS = 67
MEMORY_BYTES = 3 << 20
INSTANT = Speeds(memory_bytes_per_s=1e18)
VOCABULARY = range(3, 250)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tiny tensors are slower on many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def conversations(seed):
    """Prompts of many conversations in turn: each begins with a system prompt that others share, and grows."""
    chooser = random.Random(seed)
    tokens = lambda count: [chooser.choice(VOCABULARY) for _ in range(count)]  # noqa: E731
    system = [tokens(70), tokens(40)]
    talks = [[*chooser.choice(system), *tokens(20)] for _ in range(12)]
    for _ in range(NUM_REQUESTS):
        talk = chooser.choice(talks)
        if len(talk) > 400:
            talk[:] = [*chooser.choice(system), *tokens(20)]
        talk += tokens(chooser.randrange(5, 60))
        yield talk


class InOrder:
    """A worker's transfers end in the order in which they began: which of two threads is faster is chance."""

    def __init__(self, worker):
        self._worker = worker
        self._begun = []
        self._ended = {}

    def __getattr__(self, name):
        return getattr(self._worker, name)

    def submit_store(self, job_id, chunks):
        self._begun.append(job_id)
        self._worker.submit_store(job_id, chunks)

    def submit_load(self, job_id, chunks):
        self._begun.append(job_id)
        self._worker.submit_load(job_id, chunks)

    def get_finished(self):
        self._ended |= {result.job_id: result for result in self._worker.get_finished()}
        finished = []
        while self._begun and self._begun[0] in self._ended:
            finished.append(self._ended.pop(self._begun.pop(0)))
        return finished


def serve(engine, talks, answers):
    """One after the other, each with its answer appended; between two steps all transfers end, as in a simulation in
    which they take no time."""
    for number, talk in enumerate(talks):
        engine.add_request(
            str(number), talk, SamplingParams(max_tokens=1 + number % answers, temperature=0, ignore_eos=True)
        )
        while engine.has_unfinished:
            for output in engine.step():
                talk.extend(output.token_ids)
            while engine._offload.has_pending_work():
                engine._offload.wait(0.01)
                engine.rest()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_replay_resumes_what_the_engine_resumed(family, tmp_path, monkeypatch):
    make = lambda *args, **options: InOrder(make_worker(*args, **options))  # noqa: E731
    monkeypatch.setattr("octavo.transfer.make_worker", make)
    save_tiny_model(family, tmp_path / "model")
    config = EngineConfig(
        model=tmp_path / "model",
        device_memory_bytes=1 << 20,
        max_model_len=512,
        max_step_tokens=96,
        attention_block_size=8,
        state_block_size=16,
        record=tmp_path / "recording.jsonl",
    )
    offload = OffloadConfig.from_mapping({"memory": MEMORY_BYTES})
    engine = Engine.from_config(config, make_offload=offload_maker(config, offload))
    serve(engine, conversations(family), answers=7)
    plan = engine.manager.config
    engine.close()

    trace = read_trace(tmp_path / "recording.jsonl")
    assert len(trace.requests) == NUM_REQUESTS
    simulated = SimulatedEngine(SimConfig(plan=plan, memory_bytes=MEMORY_BYTES, speeds=INSTANT, max_num_seqs=64))
    for number, request in enumerate(trace.requests):
        simulated.run_until(number * 1000.0)
        simulated.submit(number, request)
    simulated.finish()

    found = [dict(outcome.resumed) for outcome in simulated.outcomes]
    assert found == [dict(request.resumed) for request in trace.requests]
    assert {medium for resumed in found for medium in resumed} == {"device", "memory"}
    assert all(
        outcome.num_lost_tokens + outcome.num_resumed_tokens >= outcome.num_seen_tokens
        for outcome in simulated.outcomes
    )
