"""Every family behind the whole engine: tokens and their log-probabilities are those of plain Hugging Face, whatever
medium a prefix is resumed from, and it is resumed from there."""

import random

import pytest
from workloads import Clock, check_nothing_is_held, families, forget_device, generate, resumed

from octavo.engine.tiny_families import TINY_MODELS, VOCAB_SIZE

NEW_TOKENS = 8
LONG_ANSWER = 24


family = families(*TINY_MODELS)


@pytest.fixture(scope="module")
def prompts(family):
    """Short and long ones, two of which share 80 tokens."""
    chooser = random.Random(family.name)
    shared = [chooser.randrange(3, VOCAB_SIZE) for _ in range(80)]
    shapes = [([], 5), (shared, 17), ([], 150), ([], 33), (shared, 40), ([], 64)]
    return [family.choose(chooser, prefix, num_own, NEW_TOKENS) for prefix, num_own in shapes]


def check(family, engine, prompts, medium=None, num_tokens=NEW_TOKENS):
    """All answers are right; with a medium, every prompt was resumed at its last boundary, and from there."""
    before = resumed(engine)
    answers = generate(engine, prompts, num_tokens)
    for prompt, answer in zip(prompts, answers, strict=True):
        answer.check_is(family.answer(prompt, num_tokens))
        if medium is not None:
            step = engine.manager.config.resume_granularity
            assert sum(answer.cached.values()) == (len(prompt) - 1) // step * step
            assert set(answer.cached) <= {medium, "device"}  # what one has loaded, another finds on the device
    if medium is not None:
        assert resumed(engine)[medium] - before.get(medium, 0) >= 0.7 * sum(map(len, prompts))


def test_from_memory(family, prompts):
    clock = Clock()
    engine = family.engine(offload={"memory": "8MiB"}, clock=clock)
    check(family, engine, prompts)
    assert resumed(engine).keys() <= {"device"}
    forget_device(engine)
    check(family, engine, prompts, "memory")
    check_nothing_is_held(engine, clock)
    engine.close()


def test_from_disk_and_after_a_restart(family, prompts, tmp_path):
    clock = Clock()
    tiers = {"staging": "2MiB", "tiers": [{"type": "disk", "path": str(tmp_path), "size": "64MiB"}]}
    engine = family.engine(offload=tiers, clock=clock)
    check(family, engine, prompts)
    forget_device(engine)
    check(family, engine, prompts, "disk")
    check_nothing_is_held(engine, clock)
    engine.close()

    engine = family.engine(offload=tiers, clock=clock)
    check(family, engine, prompts, "disk")
    check_nothing_is_held(engine, clock)
    engine.close()


def test_with_preemptions(family, tmp_path):
    """Answers outgrow the pool: requests give way to others, and go on from what the tiers have of them. Where a pool
    has room for one alone, some models' requests wait for each other instead. Those of DeepSeek V4 hardly grow after
    their prompts, and give way in a pool of 1.2 times that only."""
    clock, chooser = Clock(), random.Random(family.name)
    prefix = [chooser.randrange(3, VOCAB_SIZE) for _ in range(16)]
    prompts = [family.choose(chooser, prefix, 9 + 6 * i, LONG_ANSWER) for i in range(6)]
    num_preemptions = 0
    for room in (1.0, 1.2) if family.name == "deepseek_v4" else (1.0, 1.5):
        tiers = {"memory": "1MiB", "tiers": [{"type": "disk", "path": str(tmp_path / str(room)), "size": "64MiB"}]}
        engine = family.engine(int(family.least_memory() * room), offload=tiers, clock=clock)
        for _ in range(2):
            check(family, engine, prompts, num_tokens=LONG_ANSWER)
        num_preemptions += engine.counters.preemptions
        assert resumed(engine)["memory"] > 0
        check_nothing_is_held(engine, clock)
        engine.close()
    assert num_preemptions > 0
