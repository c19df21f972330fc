"""What a router asks engines again and again: whether they are well, and what they serve."""

import asyncio
import logging

import httpx
import msgspec
import pytest

from octavo.http import EngineFacts
from octavo.router import EngineAddress
from octavo.router.fleet import Fleet

ENGINE = "10.0.0.5:8000"
FACTS = EngineFacts(model="m", max_model_len=64, hash_algorithm="", hash_seed="")


@pytest.fixture(autouse=True)
def _all_lines(caplog):
    caplog.set_level(logging.INFO)


def fleet_of(client):
    return Fleet([EngineAddress.parse(f"http://{ENGINE}")], client)


async def lives_of(*names, num_lives, monkeypatch):
    """Of an engine that is well all the time and tells these names one after the other, each as soon as the router
    knows those before: the names at each time that its events were begun to be read."""
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0)
    monkeypatch.setattr("octavo.router.fleet.NAMES_INTERVAL_S", 0)
    heard, are_known, left = asyncio.Queue(), asyncio.Event(), [*names]

    async def hear(member, facts, indexes):
        heard.put_nowait(facts.names)

    def answer(request):
        facts = fleet.members[ENGINE].facts
        if facts is not None and facts.names == frozenset(left[0]):
            are_known.set() if len(left) == 1 else left.pop(0)
        cards = [{"id": name, "parent": parent} for name, parent in left[0].items()]
        answers = {"/v1/models": httpx.Response(200, json={"data": cards}), "/health": httpx.Response(200)}
        return answers.get(request.url.path, httpx.Response(404))

    monkeypatch.setattr("octavo.router.fleet.listen", hear)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        fleet = fleet_of(client)
        running = asyncio.create_task(fleet.run())
        lives = [await heard.get() for _ in range(num_lives)]
        await are_known.wait()
        running.cancel()
        await asyncio.wait([running])
    assert heard.empty()
    return lives


def test_an_adapter_that_is_loaded_later_is_known_and_costs_no_knowledge(monkeypatch):
    names = [{"m": None}, {"m": None, "tuned": "m"}, {"m": None}]
    assert asyncio.run(lives_of(*names, num_lives=1, monkeypatch=monkeypatch)) == [frozenset({"m"})]


def test_another_engine_at_the_same_address_is_known_by_its_names(monkeypatch, caplog):
    names = [{"m": None}, {"other": None, "m": None}]
    lives = asyncio.run(lives_of(*names, num_lives=2, monkeypatch=monkeypatch))
    assert lives == [frozenset({"m"}), frozenset({"other", "m"})]
    assert not any("is lost" in message for message in caplog.messages)


async def seen_after(rounds, monkeypatch, *, of_health, facts_path):
    """Whether an engine can be reached after it was asked for its health so many times."""
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0)
    asked = asyncio.Semaphore(0)
    told = {
        "/engine": httpx.Response(200, content=msgspec.json.encode(FACTS)),
        "/v1/models": httpx.Response(200, json={"data": [{"id": "m"}]}),
    }

    def answer(request):
        if request.url.path == "/health":
            asked.release()
            return httpx.Response(of_health)
        return told[facts_path] if request.url.path == facts_path else httpx.Response(404)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        fleet = fleet_of(client)
        running = asyncio.create_task(fleet.run())
        seen = set()
        for _ in range(rounds):
            await asked.acquire()
            seen.add(fleet.members[ENGINE].is_reachable)
        running.cancel()
        await asyncio.wait([running])
    return seen


@pytest.mark.parametrize("facts_path", ["/engine", "/v1/models"])
def test_a_server_that_is_not_well_is_lost_though_it_tells_its_facts(monkeypatch, caplog, facts_path):
    """It was reachable every other second, for requests too, and the log had a line each time."""
    seen = asyncio.run(seen_after(5, monkeypatch, of_health=500, facts_path=facts_path))
    assert seen == {False}
    said = [record.getMessage() for record in caplog.records if record.name.startswith("octavo")]
    assert said == [f"engine {ENGINE} is lost: GET /health: it answers 500 Internal Server Error"]


def test_a_server_of_openais_api_without_a_path_for_its_health_is_well_while_it_tells_its_models(monkeypatch, caplog):
    seen = asyncio.run(seen_after(5, monkeypatch, of_health=404, facts_path="/v1/models"))
    assert True in seen
    assert not any("is lost" in message for message in caplog.messages)
