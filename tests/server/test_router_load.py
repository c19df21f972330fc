"""What an engine tells a router of the requests that others have sent: all of them, each once, and never its own."""

import asyncio
import threading
from dataclasses import replace

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from octavo.http import PREFILL, ROUTER, Load, LoadBook
from octavo.offload import LoadSpeed
from rigs.running_server import ENDLESS, LONG_CONTEXT, RunningServer
from rigs.tier_report import REPORT

LONGEST = 1000
ROUTERS = ["a", "b", "c"]


def head(router=None, prefill=None):
    told = {ROUTER: router, PREFILL: prefill}
    return {name.encode(): str(value).encode() for name, value in told.items() if value is not None}


class Book(RuleBasedStateMachine):
    """Beside it, each open request as a list of who sent it and what it has to compute."""

    def __init__(self):
        super().__init__()
        self.book = LoadBook(max_model_len=LONGEST)
        self.open = []

    @rule(router=st.sampled_from([None, *ROUTERS]), prefill=st.none() | st.integers(0, 2 * LONGEST))
    def begin(self, router, prefill):
        entry = self.book.begin(head(router, prefill))
        self.open.append([entry, router, 0 if prefill is None else min(prefill, LONGEST), prefill is None])

    @rule(which=st.integers(0, 9), num_tokens=st.integers(1, LONGEST))
    def read(self, which, num_tokens):
        for one in self.open[which : which + 1]:
            one[0].read(num_tokens)
            if one[2] is not None:
                one[2] = num_tokens if one[3] else min(one[2], num_tokens)

    @rule(which=st.integers(0, 9))
    def begun(self, which):
        for one in self.open[which : which + 1]:
            one[0].begun()
            one[2] = None

    @rule(which=st.integers(0, 9))
    def end(self, which):
        for one in self.open[which : which + 1]:
            one[0].end()
            self.open.remove(one)

    @invariant()
    def agrees(self):
        for asking in [*ROUTERS, "unknown"]:
            others = [one for one in self.open if one[1] != asking]
            told = Load(requests=len(others), prefill_tokens=sum(one[2] or 0 for one in others))
            assert self.book.others(asking) == told


TestBook = Book.TestCase


@pytest.mark.parametrize("prefill", ["-5", "1e3", "", "9" * 40, "\N{SUPERSCRIPT TWO}"])
def test_a_number_that_is_none_does_not_count(prefill):
    book = LoadBook(max_model_len=LONGEST)
    entry = book.begin({ROUTER.encode(): b"a" * 65, PREFILL.encode(): prefill.encode("latin-1", "replace")})
    assert book.others("a" * 65) == Load(requests=1)
    entry.read(7)
    assert book.others("") == Load()
    assert book.others("b") == Load(requests=1, prefill_tokens=7)


def test_what_changes_in_between_is_told_in_one_line():
    async def tell():
        book = LoadBook(max_model_len=LONGEST)
        news = book.news("a")
        lines = [await anext(news)]
        entries = [book.begin(head("b", 10)) for _ in range(5)]
        lines.append(await anext(news))
        book.begin(head("a", 10))
        for entry in entries:
            entry.end()
        lines.append(await anext(news))
        book.close()
        return lines, [line async for line in news]

    assert asyncio.run(tell()) == ([Load(), Load(requests=5, prefill_tokens=50), Load()], [])


def test_requests_that_have_ended_are_told_with_what_comes_next():
    async def tell():
        book = LoadBook(max_model_len=LONGEST)
        ending = [book.begin(head("b", 0)) for _ in range(3)]
        news = book.news("a")
        lines = [await anext(news)]
        ending.pop().end()
        lines.append(await anext(news))  # nothing comes next
        coming = asyncio.ensure_future(anext(news))
        for _ in range(3):  # it waits by now
            await asyncio.sleep(0)
        ending.pop().end()
        book.begin(head("b", 5))
        return [*lines, await coming]

    assert asyncio.run(tell()) == [Load(requests=3), Load(requests=2), Load(requests=2, prefill_tokens=5)]


def test_the_load_is_told_again_though_nothing_changes(monkeypatch):
    monkeypatch.setattr("octavo.http.load_book.LOAD_HEARTBEAT_S", 0)

    async def tell():
        news = LoadBook(max_model_len=LONGEST).news("a")
        return [await anext(news) for _ in range(3)]

    assert asyncio.run(tell()) == [Load()] * 3


def test_the_speeds_of_loads_are_told_with_the_load():
    speeds = {"memory": LoadSpeed(0.001, 1e-6), "disk": LoadSpeed(0.01, 1e-5)}

    async def tell():
        book = LoadBook(max_model_len=LONGEST)
        news = book.news("a")
        lines = [await anext(news)]
        book.load_speeds = speeds
        book.begin(head("b", 10))
        return [*lines, await anext(news)]

    told = [msgspec.json.decode(msgspec.json.encode(line), type=Load) for line in asyncio.run(tell())]
    assert told == [Load(), Load(requests=1, prefill_tokens=10, load_speeds=speeds)]


@pytest.fixture
def running(model_folder):
    server = RunningServer(model_folder, max_model_len=LONG_CONTEXT)
    yield server
    server.close()


def lines_of(client, router):
    return client.stream("GET", "/load", params={"router": router})


def wait_for(lines, **load):
    for line in lines:
        if Load(**load) == msgspec.json.decode(line, type=Load):
            return


def test_what_offloading_has_measured_is_told(model_folder, monkeypatch):
    monkeypatch.setattr("octavo.http.load_book.LOAD_HEARTBEAT_S", 0.01)
    speeds = {"disk": LoadSpeed(0.5, 1e-5)}
    measured = REPORT._replace(stats=replace(REPORT.stats, load_speeds=speeds))
    server = RunningServer(model_folder, read_offload=lambda: measured)
    try:
        with server.client() as client, lines_of(client, "a") as told:
            lines = told.iter_lines()
            assert any(msgspec.json.decode(line, type=Load) == Load(load_speeds=speeds) for line in lines)
    finally:
        server.close()


def test_a_request_is_told_to_others_as_long_as_it_is_open(running):
    leave = threading.Event()

    def ask():
        body, told = {"prompt": [5] * 40, **ENDLESS}, {ROUTER: "a", PREFILL: "30"}
        with running.client() as client, client.stream("POST", "/v1/completions", json=body, headers=told) as answer:
            lines = answer.iter_lines()  # who drops it goes away
            next(lines)
            leave.wait()

    asking = threading.Thread(target=ask)
    with running.client() as client, lines_of(client, "a") as own, lines_of(client, "b") as others:
        own_lines, lines = own.iter_lines(), others.iter_lines()
        wait_for(own_lines)
        wait_for(lines)
        with running.held_engine():
            asking.start()
            wait_for(lines, requests=1, prefill_tokens=30)
        wait_for(lines, requests=1)
        assert running.server.service.load.others("a") == Load()
        leave.set()
        wait_for(lines)
        running.ask_to_end()
        assert list(own_lines) == []  # nothing has come since
    asking.join()


def test_a_server_that_ends_ends_what_it_tells(running):
    with running.client() as client, lines_of(client, "a") as answer:
        lines = answer.iter_lines()
        wait_for(lines)
        running.ask_to_end()
        assert list(lines) == []


def test_nothing_is_left_of_a_router_that_goes_away(running):
    with running.client() as client, lines_of(client, "a") as answer:
        wait_for(answer.iter_lines())
    with running.client() as client:
        while len(running.server.server_state.tasks) > 1:
            client.get("/health")
