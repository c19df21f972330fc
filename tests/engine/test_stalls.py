"""An engine whose requests get no further says so, and gives the oldest one all there is."""

import logging

import pytest
from hash_runner import HashEngine
from test_engine_offload import RecordingOffload

from octavo.engine.offload_hooks import Readiness
from octavo.engine.outputs import FinishReason
from octavo.testing import full, small_model

MODEL = small_model(full())
PROMPTS = {name: [number] * 40 for number, name in enumerate("abc", 1)}


class TakesPagesFromAll(RecordingOffload):
    """Takes the pages of all that runs, after every step, until one request is to run alone."""

    engine: HashEngine

    def poll(self, now):
        scheduler = self.engine.scheduler
        if not scheduler.running.keys() & {scheduler._alone}:
            for choice in list(scheduler.running):
                scheduler._preempt(choice, now)


class NeverReady(RecordingOffload):
    """Has every request wait for its load until it is told to go on without."""

    def __init__(self, manager):
        super().__init__(manager)
        self.gone_on = set()

    def prepare(self, request, now, *, may_borrow, may_start):
        return Readiness.READY if request.request_id in self.gone_on else Readiness.WAIT

    def started(self, request):
        self.gone_on.add(request.request_id)


@pytest.fixture
def clock():
    return [0.0]


def make(offload, clock):
    engine = HashEngine(
        MODEL, make_offload=offload, spare=2, max_step_tokens=24, is_caching=False, clock=lambda: clock[0]
    )
    engine._offload.engine = engine
    for name, prompt in PROMPTS.items():
        engine.add(name, prompt, 8)
    return engine


@pytest.mark.parametrize("offload", [TakesPagesFromAll, NeverReady])
def test_an_engine_that_gets_nowhere_says_so_and_goes_on(offload, clock, caplog):
    engine = make(offload, clock)
    while clock[0] < 100 and not engine.snapshot().is_stalled:
        engine.run_step()
        clock[0] += 1
    assert engine.has_unfinished
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "no request gets further" in caplog.text
    for _ in range(12):
        engine.run_step()
    assert engine.last("a").finish_reason is FinishReason.LENGTH, "the oldest goes on"
    while engine.has_unfinished:
        engine.run_step()
        clock[0] += 1
    for name, prompt in PROMPTS.items():
        assert engine.tokens(name) == engine.model.greedy(prompt, 8)
    engine.rest()
    snapshot = engine.snapshot()
    assert not snapshot.is_stalled
    assert 1 <= snapshot.counters.stalls <= len(PROMPTS)


def test_an_engine_that_gets_further_or_has_nothing_to_do_does_not_stall(clock):
    engine = HashEngine(MODEL, clock=lambda: clock[0])
    for _ in range(3):
        for name, prompt in PROMPTS.items():
            engine.add(f"{name}{clock[0]}", prompt, 30)
        while engine.has_unfinished:
            engine.run_step()
            clock[0] += 20  # a slow machine
        engine.rest()
        clock[0] += 1000
    assert engine.counters.stalls == 0
