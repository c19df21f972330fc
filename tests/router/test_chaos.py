"""Engines and routers that restart or are cut off under load: no request is lost that had not begun to answer, none is
answered twice, and routers know what engines hold as soon as they hear of them again."""

import signal

import pytest

from octavo.engine import save_tiny_model
from rigs.distant_engine import DistantEngine, Load
from rigs.network_link import NetworkLink
from rigs.octavo_process import OctavoProcess
from rigs.running_router import RouterAt, RunningRouter, resumed_tokens
from rigs.running_server import MODEL

NAMES = ("a", "b")


@pytest.fixture
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chaos") / "qwen3_next"
    save_tiny_model("qwen3_next", folder)
    return folder


@pytest.fixture
def engines(model, running, tmp_path):
    return [running(DistantEngine(model, name, tmp_path)) for name in NAMES]


@pytest.fixture
def router(engines, running):
    router = running(RunningRouter([engine.address for engine in engines]))
    router.wait_until_known(len(engines))
    return router


def state_of(seen, name):
    return next(engine for engine in seen["engines"] if engine["name"] == name)


def wait_until_told(router, engines):
    """Until the router knows exactly the blocks that the engines hold, which compute nothing meanwhile."""
    for engine in engines:
        engine.engine.wait_until_idle()
    held = {engine.name: engine.num_blocks for engine in engines}

    def knows(seen):
        return all(
            engine["knows_all_blocks"] and engine["num_blocks"] == held[engine["name"]] for engine in seen["engines"]
        )

    router.wait_until(knows)


def check_predictions(router, engines, prompts):
    """On a quiet fleet, what the router expects to be resumed is."""
    resumed = 0
    with router.client() as client:
        for prompt in prompts:
            wait_until_told(router, engines)
            answer = client.post("/v1/completions", json={"model": MODEL, "prompt": [*prompt, 7, 8], "max_tokens": 1})
            cached = resumed_tokens(answer)
            assert router.look()["decisions"][-1]["choice"]["resumed_tokens"] == cached
            resumed += cached
    assert resumed


def test_an_engine_that_restarts_under_load_is_empty_and_then_known_again(router, engines):
    a, _ = engines
    with Load(router.url) as load:
        load.wait_for_answers(12)
        load.wait_for_pieces(10)
        assert state_of(router.look(), "a")["num_blocks"] > 0
        a.break_off()
        router.wait_until(lambda seen: not state_of(seen, "a")["is_reachable"])
        a.start_again()
        with router.client() as client:
            client.post("/fleet/a/drain").raise_for_status()
            a.heal_http()
            seen = router.wait_until(lambda seen: state_of(seen, "a")["is_reachable"])
            assert state_of(seen, "a")["num_blocks"] == 0
            a.heal_events()
            router.wait_until(lambda seen: state_of(seen, "a")["knows_all_blocks"])
            client.delete("/fleet/a/drain").raise_for_status()
        router.wait_until(lambda seen: state_of(seen, "a")["num_blocks"] > 0)
        load.wait_for_answers(12)
        asked = load.stop()
    assert {one.engine for one in asked if not one.is_whole} <= {"a"}
    check_predictions(router, engines, [one.prompt for one in asked[-4:]])


def test_requests_leave_an_engine_that_is_cut_off_before_it_answers(router, engines):
    a, _ = engines
    with a.engine.held_engine(), Load(router.url) as load:
        router.wait_until(lambda seen: state_of(seen, "a")["open_requests"])
        a.http.freeze()
        router.wait_until(lambda seen: not state_of(seen, "a")["is_reachable"])
        load.wait_for_answers(12)
        asked = load.stop()
        assert all(one.is_whole for one in asked)
        assert state_of(router.look(), "a")["open_requests"] == 0
    a.heal_http()
    router.wait_until_known(2)
    a.engine.check_nothing_is_left()
    check_predictions(router, engines, [one.prompt for one in asked[-4:]])


@pytest.mark.parametrize("is_silent", [False, True], ids=["briefly", "until it counts as silent"])
def test_blocks_are_known_again_when_events_come_again(router, engines, is_silent):
    a, _ = engines
    with Load(router.url) as load:
        load.wait_for_answers(12)
        if is_silent:
            a.promise_heartbeats(1.0)
            router.wait_until_told([a])
        for link in (a.events, a.replay):
            link.freeze() if is_silent else link.break_off()
        load.wait_for_answers(12)
        if is_silent:
            router.wait_until(lambda seen: "silent" in state_of(seen, "a")["problem"])
            a.promise_heartbeats(10.0)
        a.heal_events()
        load.wait_for_answers(12)
        asked = load.stop()
    assert all(one.is_whole for one in asked)
    check_predictions(router, engines, [one.prompt for one in asked[:2] + asked[-2:]])


def test_a_router_is_killed_and_started_again_beside_another_one(router, engines, running):
    addresses = [engine.address for engine in engines]
    killed = running(OctavoProcess("route", "--port", "0", *addresses))
    link = running(NetworkLink(killed.url))
    first = RouterAt(link.url)
    first.wait_until_known(2)
    with Load(first.url, router.url) as load:
        load.wait_for_answers(12)
        load.wait_for_pieces(10)
        killed.signal(signal.SIGKILL)
        router.wait_until(lambda seen: seen["requests"] >= 12)
        link.heal(running(OctavoProcess("route", "--port", "0", *addresses)).url)
        first.wait_until(lambda seen: seen["requests"] >= 12)
        asked = load.stop()
    assert all(one.num_tries == 1 for one in asked if not one.is_whole)
    assert {one.num_tries for one in asked} == {1, 2}
    check_predictions(first, engines, [one.prompt for one in asked[:2] + asked[-2:]])
    wait_until_told(router, engines)
