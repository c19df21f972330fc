"""What a picker does while its fleet changes, or is full."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

from octavo.gateway import Picker
from octavo.http import ROUTER, ApiError, EngineFacts
from octavo.router import EngineAddress, Fleet

URLS = ["http://one:8000", "http://two:8000"]


LATER = b'{"priority": 1}'


@asynccontextmanager
async def a_fleet(**bounds):
    """Two engines that answer, at addresses of which nobody asks."""
    async with httpx.AsyncClient() as client:
        fleet = Fleet(EngineAddress.parse_all(URLS), client, **bounds)
        for member in fleet.members.values():
            member.lost = ""
        yield fleet


async def look_up(name, port):
    return {"10.0.0.1" if name == "one" else "10.0.0.2"}


def test_a_full_fleet_is_no_broken_fleet():
    async def pick():
        async with a_fleet(most_per_engine=4) as fleet:
            picker = Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up)
            later = [await picker.pick(LATER, {}) for _ in range(6)]
            assert (len(later[0].endpoints), len(later[-1].endpoints)) == (2, 1), "a full engine is no fallback"
            with pytest.raises(ApiError, match="every engine") as refused:
                await picker.pick(LATER, {})
            assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "1")
            for _ in range(2):
                await picker.pick(b"{}", {})
            with pytest.raises(ApiError, match="every engine"):
                await picker.pick(b"{}", {})
            later[0].end()
            await picker.pick(b"{}", {})

    asyncio.run(pick())


def test_a_request_counts_where_it_is_answered():
    async def pick():
        async with a_fleet() as fleet:
            taken = []
            picked = await Picker(fleet, taken.append, fallbacks=1, look_up=look_up).pick(LATER, {})
            loads, (first, second) = fleet.placement.loads, picked.endpoints
            at = {"10.0.0.1:8000": loads["one:8000"], "10.0.0.2:8000": loads["two:8000"]}
            counted = []
            for endpoint in ("10.0.0.3:8000", "", first, second, second, first):
                picked.answered_by(endpoint)
                counted.append((at[first].num_requests, at[second].num_requests))
            assert counted == [(1, 0)] * 3 + [(0, 1)] * 2 + [(1, 0)]
            picked.answered_by(second)
            picked.begun()
            assert len(taken) == 1
            picked.end()
            picked.answered_by(first)
            assert {load.num_requests for load in loads.values()} == {0}, "it has ended"

    asyncio.run(pick())


@pytest.mark.parametrize("falls_back", [False, True])
def test_an_engines_speed_is_learned_from_what_it_had_first(falls_back, monkeypatch):
    monkeypatch.setattr("octavo.router.placement._FEWEST_TOKENS", 0)

    async def pick():
        async with a_fleet() as fleet:
            picked = await Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up).pick(LATER, {})
            picked.answered_by(picked.endpoints[falls_back])
            picked.begun()
            return [load.own.seconds > 0 for load in fleet.placement.loads.values()]

    assert asyncio.run(pick()).count(True) == (not falls_back)


def test_who_answers_may_have_left_the_fleet():
    async def pick():
        async with a_fleet() as fleet:
            picked = await Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up).pick(LATER, {})
            fleet.set_engines([])
            for endpoint in reversed(picked.endpoints):
                picked.answered_by(endpoint)
            picked.begun()
            picked.end()

    asyncio.run(pick())


def test_an_engine_that_leaves_while_addresses_are_looked_up_is_not_picked():
    async def pick():
        async with a_fleet() as fleet:

            async def look_up(name, port):
                fleet.set_engines(EngineAddress.parse_all(URLS[1:]))
                return {"10.0.0.1" if name == "one" else "10.0.0.2"}

            return await Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up).pick(None, {})

    picked = asyncio.run(pick())
    assert picked.endpoints == ("10.0.0.2:8000",)
    assert list(picked.marks) == [ROUTER]  # its prompt is not known here: the engine counts it


def test_a_resolver_that_hangs_holds_up_no_request(monkeypatch):
    monkeypatch.setattr("octavo.gateway.picker._ADDRESS_LASTS_S", 0)
    asked = []

    async def look_up(name, port):
        asked.append(name)
        if len(asked) > len(URLS):
            await asyncio.Event().wait()
        return {"10.0.0.1" if name == "one" else "10.0.0.2"}

    async def pick():
        async with a_fleet() as fleet:
            picker = Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up)
            return [(await picker.pick(None, {})).endpoints for _ in range(4)]

    assert {frozenset(endpoints) for endpoints in asyncio.run(pick())} == {
        frozenset(["10.0.0.1:8000", "10.0.0.2:8000"])
    }
    assert sorted(asked) == ["one", "one", "two", "two"], "one question at a time for each engine"


def test_an_engine_whose_name_the_resolver_does_not_answer_is_left_out(monkeypatch):
    monkeypatch.setattr("octavo.gateway.picker._PATIENCE_S", 0.01)

    async def look_up(name, port):
        if name == "one":
            await asyncio.Event().wait()
        return {"10.0.0.2"}

    async def pick():
        async with a_fleet() as fleet:
            return (await Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up).pick(None, {})).endpoints

    assert asyncio.run(pick()) == ("10.0.0.2:8000",)


@pytest.mark.parametrize(
    ("lost", "allowed", "told"),
    [
        ("one:8000", None, "no engine that has 'm' can be reached"),
        ("two:8000", None, "no engine's name can be looked up"),
        ("two:8000", ["10.0.0.1:8000"], "no engine that this request may use is ready"),
    ],
)
def test_why_there_is_no_engine_is_told_as_it_is(lost, allowed, told):
    """It was "what can be reached is drained"."""

    async def look_up(name, port):
        raise OSError

    async def pick():
        async with a_fleet() as fleet:
            fleet.members["one:8000"].facts = EngineFacts(model="m", max_model_len=9, hash_algorithm="", hash_seed="")
            fleet.members[lost].lost = "it is gone"
            await Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up).pick(
                b'{"model": "m"}', {}, allowed=allowed
            )

    with pytest.raises(ApiError) as refused:
        asyncio.run(pick())
    assert (refused.value.status, refused.value.message) == (503, told)
