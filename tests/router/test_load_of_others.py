"""Several routers before the same engines: each counts what the others have sent, and nothing twice."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from octavo.http import PREFILL, ROUTER, Load
from octavo.router import load_of_others
from rigs.running_router import RoutedEngine, RunningRouter
from rigs.running_server import MODEL

URL = "http://engine:8000"


def line(requests, prefill_tokens):
    return msgspec.json.encode(Load(requests=requests, prefill_tokens=prefill_tokens)) + b"\n"


def heard_of(*answers, monkeypatch):
    """What is heard of an engine that answers so, one answer after the other, and then is none that tells."""
    left, heard, asked = [*answers], [], []

    def answer(request):
        asked.append(request)
        told = left.pop(0) if left else httpx.Response(404)
        if isinstance(told, Exception):
            raise told
        return told

    async def follow():
        monkeypatch.setattr(load_of_others, "_RETRY_S", 0)
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await load_of_others.follow_load(client, URL, "me", {"authorization": "Bearer key"}, heard.append)

    asyncio.run(follow())
    assert {str(one.url) for one in asked} == {f"{URL}/load?router=me"}
    assert {one.headers["authorization"] for one in asked} == {"Bearer key"}
    return heard


class Pieces(httpx.AsyncByteStream):
    def __init__(self, *pieces):
        self._pieces = pieces

    async def __aiter__(self):
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


def stream(*pieces):
    return httpx.Response(200, stream=Pieces(*pieces))


def test_each_line_is_heard_and_the_last_of_those_that_came_together(monkeypatch):
    first, second, third = line(1, 10), line(2, 20), line(3, 30)
    heard = heard_of(stream(first, second + third[:5], third[5:] + first + second), monkeypatch=monkeypatch)
    assert heard == [Load(requests=n, prefill_tokens=10 * n) for n in (1, 2, 2)] + [Load()] * 2


@pytest.mark.parametrize(
    "end",
    [
        stream(line(1, 10), httpx.ReadTimeout("")),
        stream(line(1, 10), b'{"requests": -1}\n'),
        stream(line(1, 10), b"\xff\n"),
        stream(line(1, 10), b" " * 257),
        stream(line(1, 10)),
    ],
)
def test_an_engine_that_tells_no_more_has_no_load_of_others_until_it_tells_again(end, monkeypatch):
    heard = heard_of(end, httpx.ConnectError(""), httpx.Response(503), stream(line(2, 20)), monkeypatch=monkeypatch)
    told = [Load(requests=1, prefill_tokens=10), *[Load()] * 3, Load(requests=2, prefill_tokens=20), *[Load()] * 2]
    assert heard == told


def seen_by(router):
    return {engine["name"]: engine for engine in router.look()["engines"]}


def complete(router, prompt):
    with router.client() as client:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "temperature": 0}
        return client.post("/v1/completions", json=body)


def test_a_router_goes_round_what_another_one_has_sent(model, running):
    engines = [running(RoutedEngine(model)) for _ in range(2)]
    routers = [running(RunningRouter([engine.url for engine in engines])) for _ in range(2)]
    for router in routers:
        router.wait_until_known(2)
    first, second = routers
    with ThreadPoolExecutor() as clients, engines[0].held_engine(), engines[1].held_engine():
        sent = [clients.submit(complete, first, [5] * 300)]
        told = second.wait_until(lambda seen: any(one["others_open_requests"] for one in seen["engines"]))
        busy = next(one for one in told["engines"] if one["others_open_requests"])
        assert (busy["others_open_requests"], busy["others_prefill_tokens"], busy["open_requests"]) == (1, 300, 0)
        own = seen_by(first)[busy["name"]]
        assert (own["open_requests"], own["prefill_tokens"], own["others_open_requests"]) == (1, 300, 0)
        sent.append(clients.submit(complete, second, [9] * 100))
        first.wait_until(lambda seen: any(one["others_open_requests"] for one in seen["engines"]))
    assert [one.result().status_code for one in sent] == [200, 200]
    assert sent[0].result().headers["x-octavo-engine"] == busy["name"] != sent[1].result().headers["x-octavo-engine"]
    for router in routers:
        seen = router.wait_until(lambda seen: not any(one["others_open_requests"] for one in seen["engines"]))
        assert {(one["open_requests"], one["others_prefill_tokens"]) for one in seen["engines"]} == {(0, 0)}


def test_requests_that_no_router_has_sent_count_too(model, running):
    engine = running(RoutedEngine(model))
    router = running(RunningRouter([engine.url]))
    router.wait_until_known(1)
    with ThreadPoolExecutor() as clients, engine.held_engine():
        sent = clients.submit(complete, engine, [5] * 300)
        router.wait_until(lambda seen: seen["engines"][0]["others_prefill_tokens"] == 300)
    assert sent.result().status_code == 200


def test_a_client_cannot_name_itself_a_router(model, running):
    engine = running(RoutedEngine(model))
    router = running(RunningRouter([engine.url]))
    router.wait_until_known(1)
    forged = {ROUTER: "somebody", PREFILL: "1"}
    with router.client(headers=forged) as client, ThreadPoolExecutor() as clients, engine.held_engine():
        body = {"model": MODEL, "prompt": [5] * 300, "max_tokens": 2}
        sent = clients.submit(client.post, "/v1/completions", json=body)
        router.wait_until(lambda seen: seen["engines"][0]["open_requests"] == 1)
        with engine.client() as asking, asking.stream("GET", "/load?router=nobody") as answer:
            told = next(told for told in map(msgspec.json.decode, answer.iter_lines()) if told["requests"])
        assert told == {"requests": 1, "prefill_tokens": 300, "load_speeds": {}}
        assert router.look()["engines"][0]["others_open_requests"] == 0
    assert sent.result().status_code == 200
