"""Clocks that a machine may have: after a sleep, in a paused guest, coarse, or broken. Deadlines are then wrong, and
loads may be given up for nothing or waited for too long; but every answer comes, and is right."""

import random
from itertools import count

import pytest
from workloads import check_nothing_is_held, families, forget_device, greedy

from octavo.engine.tiny_families import VOCAB_SIZE

FAMILIES = ["gemma3", "qwen3_next"]
NEW_TOKENS = 8
MOST_STEPS = 20_000
WEEK_S = 7 * 24 * 3600.0


def standing():
    return lambda: 5.0


def leaping():
    """A machine that sleeps for a week between any two looks at the clock."""
    ticks = count(1)
    return lambda: next(ticks) * WEEK_S


def going_back():
    ticks = count(1)
    return lambda: 1e9 - 10.0 * next(ticks)


def tossed():
    chooser = random.Random(7)
    return lambda: chooser.uniform(0.0, 1e6)


def tiny():
    """Seconds so small that sums of them are lost beside the deadlines."""
    ticks = count(1)
    return lambda: 1e15 + next(ticks) * 1e-9


CLOCKS = [standing, leaping, going_back, tossed, tiny]


class SwitchedClock:
    """An orderly clock until it is spoiled, and again when it is mended."""

    def __init__(self):
        self.skipped = 0.0
        self.hostile = None

    def __call__(self):
        return self.hostile() if self.hostile else self.skipped

    def skip(self, seconds):
        self.hostile = None
        self.skipped += seconds


family = families(*FAMILIES)


@pytest.fixture(scope="module")
def prompts(family):
    chooser = random.Random(family.name)
    shared = [chooser.randrange(3, VOCAB_SIZE) for _ in range(50)]
    return [family.choose(chooser, prefix, own, NEW_TOKENS) for prefix, own in ((shared, 17), ([], 120), (shared, 40))]


def serve(engine, family, prompts, name):
    """Every answer comes within some number of steps, whatever the clock says, and is right."""
    answers = {}
    for number, prompt in enumerate(prompts):
        engine.add_request(f"{name}-{number}", prompt, greedy(NEW_TOKENS))
    for _ in range(MOST_STEPS):
        for output in engine.step():
            answers.setdefault(output.request_id, []).extend(output.token_ids)
        if not engine.has_unfinished:
            break
        engine._offload.wait(0.001)
    else:
        raise AssertionError("the engine hangs")
    for number, prompt in enumerate(prompts):
        assert answers[f"{name}-{number}"] == family.answer(prompt, NEW_TOKENS).tokens


@pytest.mark.parametrize("make_clock", CLOCKS, ids=lambda make: make.__name__)
def test_answers_come_and_are_right(family, prompts, make_clock, tmp_path):
    clock = SwitchedClock()
    tiers = [{"type": "disk", "path": str(tmp_path), "size": "64MiB"}]
    engine = family.engine(offload={"memory": "2MiB", "tiers": tiers}, clock=clock)
    serve(engine, family, prompts, "stored")
    for turn in range(3):
        forget_device(engine)
        clock.hostile = make_clock()
        serve(engine, family, prompts, f"hostile-{turn}")
        clock.hostile = None
    forget_device(engine)
    clock.skip(3600.0)  # every pause is over
    engine.rest()
    before = sum(engine.counters.tokens_resumed.values())
    serve(engine, family, prompts, "mended")
    assert sum(engine.counters.tokens_resumed.values()) > before, "nothing is resumed once the clock is in order"
    check_nothing_is_held(engine, clock)
    engine.close()
