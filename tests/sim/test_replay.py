"""A replay's accounts: what was resumed and what was lost make up what had been seen; more memory loses nothing; and
several steps taken at once are several steps."""

import random
from dataclasses import replace

import numpy as np
import pytest

from octavo.errors import InputError
from octavo.planning import plan_kv_cache
from octavo.sim import PLACEMENTS, SimConfig, Speeds, Trace, TraceRequest, replay
from octavo.sim.engine import SimulatedEngine
from octavo.specs import FullAttentionSpec, RequestLimits
from octavo.testing import full, small_model, state, window
from octavo.why import Cause

MODELS = {
    "full": small_model(full(8)),
    "window + full": small_model(window(13), full(4)),
    "state + full": small_model(state(4), full(4)),
}
BLOCK = 4


def requests(count, seed=1):
    """Sessions that grow, some from a common beginning."""
    chooser = random.Random(seed)
    fresh = iter(range(100, 1 << 20))
    sessions = [[chooser.randrange(2), *(next(fresh) for _ in range(2))] for _ in range(6)]
    for number in range(count):
        index = chooser.randrange(len(sessions))
        session = sessions[index]
        if len(session) > 16:
            session[:] = session[:1]
        session += [next(fresh) for _ in range(chooser.randrange(1, 3))]
        prompt = len(session) * BLOCK - chooser.randrange(BLOCK)
        yield TraceRequest(
            arrival_s=number * 0.05,
            num_prompt_tokens=prompt,
            num_output_tokens=chooser.randrange(0, 9),
            block_ids=np.array(session, dtype=np.int32),
            block_tokens=BLOCK,
            knows_output=False,
            session=str(index),
        )


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]


def trace_of(count=120):
    return Trace(requests=list(requests(count)), block_tokens=BLOCK)


def config_of(model, *, spare=3.0, memory_bytes=1 << 16, **others):
    return SimConfig(plan=model.plan(spare), memory_bytes=memory_bytes, **others)


def test_the_accounts_agree(model):
    report = replay(trace_of(), config_of(model, disk_bytes=1 << 20))
    assert report.is_whole
    assert report.num_requests == 120
    assert 0 < sum(report.resumed_tokens.values()) <= report.seen_tokens < report.prompt_tokens
    lost = sum(lost.num_tokens for lost in report.lost)
    assert sum(report.resumed_tokens.values()) + lost == report.seen_tokens
    assert report.ttft_p50_s <= report.ttft_p99_s


def test_a_crowd_resumes_what_memory_has(model):
    """All come at once to a device of two requests: what it had of those who wait is evicted before their turn."""
    crowd = [replace(asked, arrival_s=0.0) for asked in requests(200)]
    report = replay(Trace(requests=crowd, block_tokens=BLOCK), config_of(model, spare=2.0, memory_bytes=1 << 20))
    late = sum(lost.num_tokens for lost in report.lost if lost.cause is Cause.TOO_LATE)
    assert late < 0.02 * report.seen_tokens


def test_a_device_for_one_request_waits_for_what_is_being_stored(model):
    """Copies to a slow memory hold the pages that the next request needs: it fits as soon as they have ended."""
    soon = [replace(asked, arrival_s=asked.arrival_s / 50) for asked in requests(60)]
    slow = config_of(model, spare=1.0, speeds=Speeds(memory_bytes_per_s=1e4))
    assert replay(Trace(requests=soon, block_tokens=BLOCK), slow).num_requests == 60


def test_with_room_for_all_full_attention_loses_nothing():
    report = replay(trace_of(), config_of(MODELS["full"], spare=400.0, memory_bytes=0))
    assert report.resumed_tokens == {"device": report.seen_tokens}
    assert report.lost == []


def test_memory_brings_what_the_device_has_lost(model):
    without = replay(trace_of(), config_of(model, memory_bytes=0))
    instant = Speeds(memory_bytes_per_s=1e18)
    with_memory = replay(trace_of(), config_of(model, memory_bytes=1 << 22, speeds=instant))
    assert with_memory.resumed_share > without.resumed_share
    assert with_memory.resumed_tokens["memory"] > 0


def test_the_same_trace_gives_the_same_report(model):
    assert replay(trace_of(), config_of(model)) == replay(trace_of(), config_of(model))


def test_steps_taken_at_once_are_steps(model, monkeypatch):
    several = replay(trace_of(), config_of(model))
    monkeypatch.setattr(SimulatedEngine, "_take_several", lambda _self, chunks, *_: chunks)
    one_by_one = replay(trace_of(), config_of(model))
    assert several.resumed_tokens == one_by_one.resumed_tokens
    assert several.duration_s == pytest.approx(one_by_one.duration_s)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_several_engines_serve_all(name):
    report = replay(trace_of(), config_of(MODELS["state + full"]), num_engines=3, make_place=PLACEMENTS[name])
    assert report.num_requests == 120
    if name == "sticky":
        spread = replay(trace_of(), config_of(MODELS["state + full"]), num_engines=3)
        assert report.resumed_share > spread.resumed_share


def test_a_copy_that_a_step_hides_is_not_taken_for_slow():
    """One request decodes all the time, a step every half second. A copy of 20 MiB takes a fiftieth of a second, and is
    seen when the step ends. Computing takes a tenth of a second, so loading is worth it, and goes on being."""
    large = FullAttentionSpec(block_size=16, num_kv_heads=64, head_size=256)  # 1 MiB a block
    limits = RequestLimits(max_model_len=512, max_step_tokens=512)
    plan = plan_kv_cache({"layer": large}, memory_bytes=80 << 20, limits=limits)

    def asks(number, first_id, prompt, output):
        ids = np.arange(first_id, first_id + -(-prompt // 16), dtype=np.int32)
        return TraceRequest(
            arrival_s=5.0 * number,
            num_prompt_tokens=prompt,
            num_output_tokens=output,
            block_ids=ids,
            block_tokens=16,
            knows_output=False,
        )

    asked = [asks(0, 9000, 20, 480), *(asks(number, 1000 * (number % 5), 330, 1) for number in range(1, 40))]
    speeds = Speeds(prefill_tokens_per_s=3_300.0, step_s=0.5, memory_bytes_per_s=1e9)
    engine = SimulatedEngine(SimConfig(plan=plan, memory_bytes=256 << 20, speeds=speeds))
    for number, request in enumerate(asked):
        engine.run_until(request.arrival_s)
        engine.submit(number, request)
    engine.finish()
    again = [outcome.resumed for outcome in engine.outcomes[6:]]
    assert again.count({"memory": 320}) > 20
    assert all(sum(resumed.values()) == 320 for resumed in again)
    assert engine.offload.stats().loads_too_slow == 0


def test_an_interrupted_replay_tells_of_what_was_served():
    def interrupt(number):
        if number == 100:
            raise KeyboardInterrupt

    report = replay(trace_of(), config_of(MODELS["full"]), note_progress=interrupt)
    assert not report.is_whole
    assert 0 < report.num_requests < 120


def test_a_request_that_does_not_fit_is_told_before(model):
    trace = Trace(
        requests=[
            TraceRequest(
                arrival_s=0.0,
                num_prompt_tokens=400,
                num_output_tokens=1,
                block_ids=np.arange(100, dtype=np.int32),
                block_tokens=BLOCK,
            )
        ],
        block_tokens=BLOCK,
    )
    with pytest.raises(InputError, match="401 tokens"):
        replay(trace, config_of(model))


def test_no_more_is_resumed_than_was_computed_before():
    """The next turn comes while the answer before it is still written, and goes on with what of it is there."""
    ids = np.arange(200, dtype=np.int32)

    def turn(arrival_s, num_prompt_tokens, num_output_tokens):
        return TraceRequest(
            arrival_s=arrival_s,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            block_ids=ids,
            block_tokens=BLOCK,
        )

    trace = Trace(requests=[turn(0.0, 16, 48), turn(0.3, 60, 1)], block_tokens=BLOCK)
    report = replay(trace, config_of(MODELS["full"]))
    assert report.resumed_tokens["device"] > 16
    assert report.seen_tokens == sum(report.resumed_tokens.values()) + sum(lost.num_tokens for lost in report.lost)
    assert report.resumed_share <= report.seen_share


def conversations(count, turns, seed=1):
    """Each turn comes some time after the answer to the one before."""
    chooser = random.Random(seed)
    for index in range(count):
        ids, before = [index % 3], ""
        for turn in range(turns):
            ids = [*ids, *(1000 * (index + 1) + 10 * turn + n for n in range(chooser.randrange(1, 4)))]
            place, delay_s = f"{index}, {turn}", chooser.choice([0.0, 0.1, 2.0])
            yield TraceRequest(
                arrival_s=index * 0.2,
                num_prompt_tokens=len(ids) * BLOCK,
                num_output_tokens=chooser.randrange(0, 40),
                block_ids=np.array(ids, dtype=np.int32),
                block_tokens=BLOCK,
                knows_output=False,
                place=place,
                follows=before,
                delay_s=delay_s,
            )
            before = place


@pytest.mark.parametrize("num_engines", [1, 3])
def test_who_follows_another_comes_after_its_end(model, num_engines):
    trace = Trace(requests=list(conversations(12, 4)), block_tokens=BLOCK)
    numbers = {asked.place: number for number, asked in enumerate(trace.requests)}
    came, ahead, fleet = {}, [], []

    def make_place(engines):
        fleet.extend(engines)

        def place(number, asked):
            assert asked.arrival_s >= max(came.values(), default=0.0)
            came[number] = asked.arrival_s
            ahead.append(max(engine.now for engine in engines) - asked.arrival_s)
            return number % num_engines

        return place

    speeds = Speeds(prefill_tokens_per_s=2000.0)
    report = replay(trace, config_of(model, speeds=speeds), num_engines=num_engines, make_place=make_place)
    assert report.num_requests == len(came) == 48
    ends = {outcome.number: outcome.end_s for engine in fleet for outcome in engine.outcomes}
    for number, asked in enumerate(trace.requests):
        if asked.follows:
            assert came[number] == ends[numbers[asked.follows]] + asked.delay_s
    longest_step_s = 0.2
    assert max(ahead) < longest_step_s, "no engine was further ahead of who comes than a step takes"


def test_on_a_slower_engine_those_who_follow_come_later():
    trace = Trace(requests=list(conversations(6, 4)), block_tokens=BLOCK)
    fast, slow = (
        replay(trace, config_of(MODELS["full"], speeds=Speeds(prefill_tokens_per_s=rate))) for rate in (1e5, 5.0)
    )
    assert slow.arrivals_s > 2 * fast.arrivals_s
    assert not slow.is_overloaded


def test_who_follows_one_that_is_left_out_comes_as_soon_as_it_could():
    first, _, third = conversations(1, 3)
    trace = Trace(requests=[first, replace(third, arrival_s=7.0)], block_tokens=BLOCK)
    report = replay(trace, config_of(MODELS["full"]))
    assert (report.num_requests, report.arrivals_s) == (2, 7.0)
