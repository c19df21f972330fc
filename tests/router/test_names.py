"""Engines behind a name whose addresses change."""

import asyncio
import gc
import socket
from threading import current_thread
from urllib.parse import urlsplit

import pytest

from octavo.engine import save_tiny_model
from octavo.errors import InputError
from octavo.router import EngineAddress, look_up
from octavo.router.names import FORGOTTEN_AFTER_S, Names
from rigs.running_router import RoutedEngine, RunningRouter

HERE, THERE = "127.0.0.1", "127.0.0.2"


class Directory:
    """A name's addresses, as a test changes them; or an error."""

    def __init__(self, *hosts):
        self.hosts = hosts
        self.asked = []

    async def __call__(self, name, port):
        self.asked.append((name, port))
        if isinstance(self.hosts, Exception):
            raise self.hosts
        return self.hosts


def names_of(directory, text="dns://engines:8000", clock=lambda: 0.0):
    names = Names(directory, clock)
    names.follow(EngineAddress.parse_all([text]))
    return names


def found(names):
    asyncio.run(names.ask())
    return {address.name: is_listed for address, is_listed in names.engines()}


def test_a_name_stands_for_one_engine_at_each_address():
    directory = Directory("10.0.0.5", "fd00::5")
    names = names_of(directory, "dns://engines:8000,events=tcp://*:5557,keys=K")
    assert found(names) == {"10.0.0.5:8000": True, "[fd00::5]:8000": True}
    assert directory.asked == [("engines", 8000)]
    (first, _), (second, _) = names.engines()
    assert (first.url, second.url) == ("http://10.0.0.5:8000", "http://[fd00::5]:8000")
    assert first.source(None, None).endpoint == "tcp://10.0.0.5:5557"
    assert second.source(None, None).endpoint == "tcp://[fd00::5]:5557"


def test_each_address_has_all_ranks():
    names = names_of(Directory("10.0.0.5", "10.0.0.6"), "dns://engines:8000,ranks=2,events=tcp://*:5557")
    assert set(found(names)) == {f"10.0.0.{host}:8000/{rank}" for host in (5, 6) for rank in (0, 1)}
    assert {address.source(None, None).endpoint for address, _ in names.engines()} == {
        f"tcp://10.0.0.{host}:{port}" for host in (5, 6) for port in (5557, 5558)
    }


def test_an_engine_that_a_name_has_no_more_is_drained_and_then_forgotten():
    now = [0.0]
    directory = Directory("10.0.0.5", "10.0.0.6")
    names = names_of(directory, clock=lambda: now[0])
    found(names)
    directory.hosts = ("10.0.0.6", "10.0.0.7")
    now[0] = FORGOTTEN_AFTER_S - 1
    assert found(names) == {"10.0.0.5:8000": False, "10.0.0.6:8000": True, "10.0.0.7:8000": True}
    now[0] = FORGOTTEN_AFTER_S
    assert found(names) == {"10.0.0.6:8000": True, "10.0.0.7:8000": True}


@pytest.mark.parametrize("order", [("blue", "green"), ("green", "blue")])
def test_an_address_that_goes_to_another_name_is_that_ones(order):
    hosts = {"blue": ["10.0.0.5"], "green": ["10.0.0.6"]}

    async def look_up(name, _):
        return hosts[name]

    names = Names(look_up, lambda: 0.0)
    names.follow([EngineAddress.parse(f"dns://{name}:8000,seed={name}") for name in order])
    found(names)
    hosts |= {"blue": ["10.0.0.7"], "green": ["10.0.0.5"]}
    assert found(names) == {"10.0.0.5:8000": True, "10.0.0.6:8000": False, "10.0.0.7:8000": True}
    told = {address.name: address.options["seed"] for address, _ in names.engines()}
    assert told["10.0.0.5:8000"] == "green"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (socket.gaierror(-3, "try again"), "try again"),
        (TimeoutError(), "no answer in 10 s"),
        (UnicodeError("label too long"), "label too long"),
        ((), "0 addresses"),
        (tuple(f"10.0.{i >> 8}.{i & 255}" for i in range(1025)), "1,025 addresses"),
    ],
)
def test_a_name_that_cannot_be_looked_up_changes_nothing_and_it_is_said(answer, problem, caplog):
    directory = Directory("10.0.0.5")
    names = names_of(directory)
    before = found(names)
    directory.hosts = answer
    assert found(names) == found(names) == before
    assert problem in names.problems["engines:8000"]
    assert len(caplog.records) == 1
    directory.hosts = ("10.0.0.6",)
    assert found(names) == {"10.0.0.5:8000": False, "10.0.0.6:8000": True}
    assert names.problems == {"engines:8000": ""}


def test_a_name_whose_look_up_hangs_is_asked_for_once_and_holds_up_no_other(monkeypatch):
    """Its threads took all that look up names, so that no engine with a name was found."""
    monkeypatch.setattr("octavo.router.names._PATIENCE_S", 0.0)
    answers, asked = {"engines": ["10.0.0.5"]}, []

    async def look_up(name, _):
        asked.append(name)
        return answers.get(name) or await answer_late

    async def ask():
        nonlocal answer_late
        answer_late = asyncio.get_running_loop().create_future()
        for _ in range(3):
            await names.ask()
            await asyncio.sleep(0)
        assert [address.name for address, _ in names.engines()] == ["10.0.0.5:8000"]
        assert names.problems == {"engines:8000": "", "slow:8000": "no answer in 0 s"}
        assert asked.count("slow") == 1
        answer_late.set_result(["10.0.0.6"])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await names.ask()
        assert {address.name for address, _ in names.engines()} == {"10.0.0.5:8000", "10.0.0.6:8000"}

    answer_late = None
    names = Names(look_up, lambda: 0.0)
    names.follow(EngineAddress.parse_all(["dns://slow:8000", "dns://engines:8000"]))
    asyncio.run(ask())


def test_a_look_up_that_hangs_is_waited_for_once():
    async def run():
        asked = asyncio.Event()

        async def hang(name, port):
            asked.set()
            await asyncio.get_running_loop().create_future()

        names = names_of(hang)
        asking = asyncio.ensure_future(names.ask())
        await asked.wait()
        asking.cancel()  # as if it had lost its patience
        await asyncio.wait([asking])
        again = asyncio.ensure_future(names.ask())
        for _ in range(10):
            await asyncio.sleep(0)
        assert again.done()
        assert names.problems == {"engines:8000": "no answer in 10 s"}

    asyncio.run(run())


def test_a_look_up_that_fails_when_its_name_is_followed_no_longer_is_no_news():
    complaints = []

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        asked, fails = asyncio.Event(), asyncio.Event()

        async def hang(name, port):
            asked.set()
            await fails.wait()
            raise OSError

        names = names_of(hang)
        asking = asyncio.ensure_future(names.ask())
        await asked.wait()
        asking.cancel()  # as if it had lost its patience
        names.follow([])
        fails.set()
        await asyncio.wait([asking])
        await asyncio.sleep(0)

    asyncio.run(run())
    gc.collect()
    assert not complaints


def test_looking_names_up_takes_none_of_the_threads_that_look_up_engines(monkeypatch):
    threads, look = [], socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *a, **k: (threads.append(current_thread().name), look(*a, **k))[1]
    )
    asyncio.run(look_up("localhost", 8000))
    assert threads == ["octavo-names"]


def test_an_address_that_is_good_on_one_link_only_is_no_engines(monkeypatch):
    found = [(socket.AF_INET6, 1, 6, "", (host, 8000, 0, 0)) for host in ("fe80::1%eth0", "fd00::1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert asyncio.run(look_up("engines", 8000)) == {"fd00::1"}


def test_names_that_are_followed_no_longer_take_their_engines_along():
    names = names_of(Directory("10.0.0.5"))
    found(names)
    names.follow(EngineAddress.parse_all(["dns://engines:8000", "dns://others:8000"]))
    assert [address.name for address, _ in names.engines()] == ["10.0.0.5:8000"]
    names.follow(EngineAddress.parse_all(["dns://engines:8000,seed=7"]))
    assert names.engines() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("dns://engines", "dns://NAME:PORT"),
        ("dns://engines:99999", "dns://NAME:PORT"),
        ("dns://engines:8000/v1", "dns://NAME:PORT"),
        ("dns://engines:8000,name=one", "without name="),
        ("dns://engines:8000,events=tcp://10.0.0.5:5557", r"events=tcp://\*:PORT"),
        ("dns://engines:8000,events=tcp://*:5557,replay=tcp://a:1", r"replay=tcp://\*:PORT"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, complaint):
    with pytest.raises(InputError, match=complaint):
        EngineAddress.parse(text)


def test_this_machine_looks_up_localhost():
    assert set(asyncio.run(look_up("localhost", 8000))) & {HERE, "::1"}
    with pytest.raises(socket.gaierror):
        asyncio.run(look_up("no-such-name.invalid", 8000))


def test_engines_join_and_leave_with_their_name(running, tmp_path):
    save_tiny_model("llama", tmp_path / "model")
    first = running(RoutedEngine(tmp_path / "model"))
    port = urlsplit(first.url).port
    directory = Directory(HERE)
    router = running(RunningRouter([f"dns://engines:{port}"], look_up=directory))
    router.wait_until_known(1)
    assert router.ask([5] * 40) == (first.name, 0)
    router.wait_until_told([first])

    second = running(RoutedEngine(tmp_path / "model", bounds={"host": THERE, "port": port}))
    directory.hosts = (HERE, THERE)
    router.wait_until_known(2)
    assert router.ask([5] * 40) == (first.name, 32)

    directory.hosts = (THERE,)
    router.wait_until(lambda seen: [engine["is_draining"] for engine in seen["engines"]] == [True, False])
    assert router.ask([5] * 40) == (second.name, 0)

    directory.hosts = socket.gaierror(-2, "gone")
    seen = router.wait_until(lambda seen: "gone" in seen["names"][f"engines:{port}"])
    assert len(seen["engines"]) == 2
    directory.hosts = (HERE, THERE)
    router.wait_until(lambda seen: not any(engine["is_draining"] for engine in seen["engines"]))
    assert router.ask([5] * 40)[1] == 32
