"""The embedded engine serves requests with real tokens and records them; replayed with the same plan and the same
memory, the simulator resumes as many tokens of each, from the same media."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

import torch

from octavo.engine import TINY_MODELS, Engine, EngineConfig, SamplingParams, offload_maker, save_tiny_model
from octavo.offload import LoadRule, OffloadConfig
from octavo.sim import SimConfig, Speeds, read_trace
from octavo.sim.engine import SimulatedEngine
from octavo.transfer import make_worker

FAMILIES = ["qwen3", "gemma3", "qwen3_next"]
NUM_RANDOM = 4
MAX_MODEL_LEN, MAX_NUM_SEQS = 512, 64
INSTANT = Speeds(memory_bytes_per_s=1e18, disk_bytes_per_s=1e18, disk_latency_s=0.0)
VOCABULARY = range(3, 250)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tiny tensors are slower on many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def conversations(chooser, max_tokens):
    """Prompts of many conversations in turn: each begins with a system prompt that others share, and grows."""
    system = [tokens(chooser, 70), tokens(chooser, 40)]
    talks = [[*chooser.choice(system), *tokens(chooser, 20)] for _ in range(12)]
    while True:
        talk = chooser.choice(talks)
        if len(talk) > max_tokens - 100:
            talk[:] = [*chooser.choice(system), *tokens(chooser, 20)]
        talk += tokens(chooser, chooser.randrange(5, 60))
        yield talk


def documents(chooser, max_tokens):
    """Questions about few documents, some of which many ask about."""
    texts = [tokens(chooser, chooser.randrange(50, max_tokens - 60)) for _ in range(10)]
    while True:
        number = min(int(chooser.expovariate(0.4)), len(texts) - 1)
        yield [*texts[number], *tokens(chooser, chooser.randrange(1, 40))]


def loops(chooser, max_tokens):
    """The same prompts again and again."""
    texts = [tokens(chooser, chooser.randrange(50, max_tokens - 30)) for _ in range(chooser.randrange(2, 12))]
    while True:
        yield from map(list, texts)


def forks(chooser, max_tokens):
    """Prompts that leave a common beginning at any token."""
    trunk = tokens(chooser, max_tokens - 120)
    while True:
        yield [*trunk[: chooser.randrange(1, len(trunk))], *tokens(chooser, chooser.randrange(80))]


def tokens(chooser, count):
    return [chooser.choice(VOCABULARY) for _ in range(count)]


class AtOnce:
    """A worker whose transfers have ended when somebody asks, in the order in which they began: as in a simulation in
    which they take no time. Else which of two threads is faster would be chance."""

    def __init__(self, worker):
        self._worker = worker
        self._begun = []

    def __getattr__(self, name):
        return getattr(self._worker, name)

    def submit_store(self, job_id, chunks):
        self._begun.append(job_id)
        self._worker.submit_store(job_id, chunks)

    def submit_load(self, job_id, chunks):
        self._begun.append(job_id)
        self._worker.submit_load(job_id, chunks)

    def get_finished(self):
        assert self._worker.wait(self._begun, 10.0)
        place = {job_id: number for number, job_id in enumerate(self._begun)}
        self._begun.clear()
        return sorted(self._worker.get_finished(), key=lambda result: place[result.job_id])


def serve(engine, talks, case):
    """A few at a time, each with its answer appended; before the next ones all transfers end."""
    numbered = enumerate(talks)
    while batch := dict(islice(numbered, case.at_once)):
        for number, talk in batch.items():
            params = SamplingParams(max_tokens=1 + number % case.most_tokens, temperature=0, ignore_eos=True)
            engine.add_request(str(number), talk, params)
        while engine.has_unfinished:
            for output in engine.step():
                batch[int(output.request_id)].extend(output.token_ids)
        while engine._offload.has_pending_work():
            engine.rest()


@dataclass
class Case:
    """What is served, and with what."""

    family: str
    traffic: Callable[..., Iterator[list[int]]] = conversations
    policy: str = "resume_points"
    memory_bytes: int = 3 << 20
    disk_bytes: int = 0
    loads: LoadRule = LoadRule.MEASURED
    """With a disk all loads are begun: else it would be chance which are quicker than computing."""
    device_bytes: int = 1 << 20
    max_step_tokens: int = 96
    attention_block_size: int = 8
    state_block_size: int = 16
    most_tokens: int = 7
    at_once: int = 1


def random_case(seed):
    chooser = random.Random(seed)
    choose = chooser.choice
    return Case(
        family=choose(sorted(TINY_MODELS)),
        traffic=choose([conversations, documents, loops, forks]),
        policy=choose(["resume_points", "lru", "arc"]),
        memory_bytes=choose([300_000, 1 << 20, 3 << 20, 8 << 20]),
        device_bytes=choose([800_000, 1 << 20, 2 << 20]),
        max_step_tokens=choose([64, 96, 100, 256, 512]),
        attention_block_size=choose([8, 16, 24]),
        state_block_size=choose([16, 32, 48]),
        most_tokens=chooser.randrange(2, 25),
        at_once=choose([1, 1, 3, 8]),
    )


def replay(plan, case, requests):
    """What a simulation with this plan resumes of each request, by medium."""
    config = SimConfig(
        plan=plan,
        memory_bytes=case.memory_bytes,
        disk_bytes=case.disk_bytes,
        policy=case.policy,
        speeds=INSTANT,
        loads=case.loads,
        max_num_seqs=MAX_NUM_SEQS,
    )
    simulated = SimulatedEngine(config)
    for number, request in enumerate(requests):
        if not number % case.at_once:
            simulated.run_until(number * 1000.0)
        simulated.submit(number, request)
    simulated.finish()
    for outcome in simulated.outcomes:
        assert outcome.num_lost_tokens + outcome.num_resumed_tokens >= outcome.num_seen_tokens
    return [dict(outcome.resumed) for outcome in simulated.outcomes]


def record(case, folder, monkeypatch, num_requests):
    """Serves requests, and returns the engine's plan and what it recorded of them."""
    make = lambda *args, **options: AtOnce(make_worker(*args, **options))  # noqa: E731
    monkeypatch.setattr("octavo.transfer.make_worker", make)
    save_tiny_model(case.family, folder / "model")
    config = EngineConfig(
        model=folder / "model",
        device_memory_bytes=case.device_bytes,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_step_tokens=case.max_step_tokens,
        attention_block_size=case.attention_block_size,
        state_block_size=case.state_block_size,
        record=folder / "recording.jsonl",
    )
    asked = {"memory": case.memory_bytes, "policy": case.policy, "loads": case.loads.value}
    if case.disk_bytes:
        asked["disk"] = {"path": str(folder / "disk"), "size": case.disk_bytes}
    offload = OffloadConfig.from_mapping(asked)
    engine = Engine.from_config(config, make_offload=offload_maker(config, offload))
    talks = case.traffic(random.Random(repr(case)), MAX_MODEL_LEN - case.most_tokens)
    serve(engine, islice(talks, num_requests), case)
    engine.close()
    requests = read_trace(folder / "recording.jsonl").requests
    assert len(requests) == num_requests
    return engine.manager.config, requests


@pytest.mark.parametrize("family", FAMILIES)
def test_a_replay_resumes_what_the_engine_resumed(family, tmp_path, monkeypatch):
    case = Case(family)
    plan, requests = record(case, tmp_path, monkeypatch, 67)
    found = replay(plan, case, requests)
    assert found == [dict(request.resumed) for request in requests]
    assert {medium for resumed in found for medium in resumed} == {"device", "memory"}


@pytest.mark.parametrize("seed", range(NUM_RANDOM))
def test_a_replay_of_other_geometries_and_traffic_does_too(seed, tmp_path, monkeypatch):
    case = random_case(seed)
    plan, requests = record(case, tmp_path, monkeypatch, 40)
    assert replay(plan, case, requests) == [dict(request.resumed) for request in requests], case


@pytest.mark.parametrize("family", FAMILIES)
def test_a_replay_with_a_disk_does_too(family, tmp_path, monkeypatch):
    """The same tokens; from which medium may be chance, as a disk's threads end when they do."""
    case = Case(family, documents, "lru", memory_bytes=500_000, disk_bytes=256 << 20, loads=LoadRule.ALWAYS)
    plan, requests = record(case, tmp_path, monkeypatch, 40)
    found = replay(plan, case, requests)
    assert [sum(resumed.values()) for resumed in found] == [sum(request.resumed.values()) for request in requests]
    assert "disk" in {medium for resumed in found for medium in resumed}
