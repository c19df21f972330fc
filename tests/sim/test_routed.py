"""A simulated fleet behind the router's own index: it knows what each engine resumes, and hears of it in time."""

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from octavo.events import external_hashes
from octavo.hashing import PLAIN
from octavo.sim import (
    PLACEMENTS,
    TOLD_AFTER_S,
    RoutedPlace,
    SeveralRouters,
    SimConfig,
    SimulatedEngine,
    Speeds,
    Trace,
    TraceRequest,
    replay,
)
from octavo.testing import full, small_model, state, window

MODELS = {
    "full": small_model(full(8)),
    "window + full": small_model(window(13), full(4)),
    "state + full": small_model(state(4), full(4)),
}
BLOCK = 4
APART_S = 1000.0


def documents(count=120, seed=1):
    """Questions about six documents, each with an answer of its own, far apart."""
    chooser = random.Random(seed)
    for number in range(count):
        document = chooser.randrange(6) * 100
        ids = [*range(document, document + 8), 1000 + number]
        yield TraceRequest(
            arrival_s=number * APART_S,
            num_prompt_tokens=len(ids) * BLOCK - 1,
            num_output_tokens=3,
            block_ids=np.array(ids, dtype=np.int32),
            block_tokens=BLOCK,
            knows_output=False,
        )


def fleet(model, *, count=3, memory_bytes=0):
    plan = MODELS[model].plan(3.0)
    return [SimulatedEngine(SimConfig(plan=plan, memory_bytes=memory_bytes)) for _ in range(count)]


def serve(engines, requests, look=lambda *_: None):
    """Sends each request where Octavo would."""
    place = RoutedPlace(engines)
    for number, request in enumerate(requests):
        for engine in engines:
            engine.run_until(request.arrival_s)
        chosen = place(number, request)
        look(place, chosen, request)
        engines[chosen].submit(number, request)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("memory_bytes", [0, 1 << 16])
def test_on_a_quiet_fleet_it_knows_what_is_resumed(model, memory_bytes):
    engines = fleet(model, memory_bytes=memory_bytes)
    requests = list(documents())
    answers = []

    def ask_all(place, chosen, request):
        """The request has been placed, so the chosen engine counts as having it."""
        hashes = external_hashes(engines[0].manager.hasher.hash_tokens(request.prompt(), PLAIN))
        others = [str(index) for index in range(len(engines)) if index != chosen]
        answers.append(place.index.resumes(hashes, request.num_prompt_tokens, engines=others))

    serve(engines, requests, ask_all)
    for engine in engines:
        engine.finish()
    outcomes = {outcome.number: outcome for engine in engines for outcome in engine.outcomes}
    resumed = [outcomes[number].num_resumed_tokens for number in range(len(requests))]
    assert sum(resumed) > sum(request.num_prompt_tokens for request in requests) / 2
    for number, others in enumerate(answers):  # the engines were idle: none was better than the one that was chosen
        assert max(others.values(), default=0) <= resumed[number]


def test_a_step_that_has_not_ended_is_not_known():
    engines = fleet("state + full", count=2)
    (first, second, third) = list(documents(3))
    place = RoutedPlace(engines)
    chosen = place(0, first)
    engines[chosen].submit(0, first)
    engines[chosen].run_until(0.001)  # a step of ten milliseconds has begun
    hashes = external_hashes(engines[0].manager.hasher.hash_tokens(first.prompt(), PLAIN))
    ends_s = engines[chosen].now
    place(1, replace(second, arrival_s=ends_s / 2))
    assert place.index.num_blocks_of(str(chosen)) == 0
    engines[chosen].finish()
    place(2, replace(third, arrival_s=engines[chosen].now))
    assert place.index.resumes(hashes, first.num_prompt_tokens, engines=[str(chosen)])


def test_all_groups_are_worth_knowing():
    """The questions come so fast that they spread over the engines, whose pools are small."""
    trace = Trace(
        requests=[replace(r, arrival_s=r.arrival_s / APART_S * 0.02) for r in documents(400)], block_tokens=BLOCK
    )
    config = SimConfig(plan=MODELS["state + full"].plan(4.0), speeds=Speeds(prefill_tokens_per_s=1000))
    shares = {
        name: replay(trace, config, num_engines=4, make_place=PLACEMENTS[name]).resumed_share
        for name in ("random", "longest_prefix", "octavo")
    }
    assert shares["octavo"] > shares["random"]
    assert shares["octavo"] >= shares["longest_prefix"]


def test_full_attention_alone_is_the_same_to_both():
    trace = Trace(requests=list(documents()), block_tokens=BLOCK)
    config = SimConfig(plan=MODELS["full"].plan(3.0))
    reports = [
        replay(trace, config, num_engines=3, make_place=PLACEMENTS[name]) for name in ("longest_prefix", "octavo")
    ]
    assert reports[0] == reports[1]


def several(number, *, told_after_s=TOLD_AFTER_S, apart_s=APART_S):
    requests = [replace(r, arrival_s=r.arrival_s / APART_S * apart_s) for r in documents()]
    trace = Trace(requests=requests, block_tokens=BLOCK)
    config = SimConfig(plan=MODELS["state + full"].plan(3.0))
    place = partial(SeveralRouters, num_routers=number, told_after_s=told_after_s)
    return replay(trace, config, num_engines=3, make_place=PLACEMENTS["octavo"] if number is None else place)


def test_one_of_several_routers_is_a_router():
    assert several(1) == several(None)


def test_on_a_quiet_fleet_each_router_knows_what_the_others_requests_left():
    """All has been heard of when the next request comes. A tie may go otherwise."""
    assert several(3).resumed_share > 0.9 * several(1).resumed_share


def loads_of(place):
    return {name: (load.num_requests, load.prefill_tokens) for name, load in place._placement.loads.items()}


def test_what_is_told_at_once_makes_several_routers_see_one_load():
    engines = fleet("state + full", count=3)
    routers = SeveralRouters(engines, num_routers=3, told_after_s=0.0)
    for number, request in enumerate(documents(30)):
        asked = replace(request, arrival_s=0.002 * number)
        for engine in engines:
            engine.run_until(asked.arrival_s)
        engines[routers(number, asked)].submit(number, asked)
        for place in routers._places:
            place._hear(asked.arrival_s)
        first, *others = [loads_of(place) for place in routers._places]
        assert others == [first, first]
    assert sum(requests for requests, _ in first.values()) > 3
    for engine in engines:
        engine.finish()
    for place in routers._places:
        place._hear(engines[0].now + 1e6)
        assert loads_of(place) == dict.fromkeys(first, (0, 0))


def test_what_is_never_told_is_not_known():
    assert several(3, told_after_s=None, apart_s=0.001) != several(3, told_after_s=0.0, apart_s=0.001)
