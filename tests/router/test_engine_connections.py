"""The connections to engines: how many there are must not matter, and none must be left behind."""

import asyncio
import gc
import math
import re
import ssl
import warnings
import weakref
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

import httpcore
import httpx
import pytest

from octavo.router.engine_client import open_engine_client
from octavo.router.engine_connections import EngineConnections
from octavo.router.reasons import reason_of
from rigs.certificates import make_certificate

NUM_STREAMS = 100
KEPT_IDLE_S = 1000.0
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Engine:
    """Answers each request with `ok`, and tells of the connections that it has had."""

    def __init__(self):
        self.num_opened = 0
        self.num_open = 0
        self.asked = asyncio.Event()
        self.waits_for = asyncio.Event()
        self.waits_for.set()
        self.holds_back = False
        self.hangs_up = False
        """Whether it ends each connection after an answer."""
        self.head = ANSWER
        self.adds = b""
        """Bytes after each answer, in the same packet."""
        self.most_answers = math.inf
        """On one connection. It is closed at the next request, as if it had been closed just before."""
        self.left = asyncio.Condition()

    async def serve(self, reader, writer):
        self.num_opened += 1
        self.num_open += 1
        try:
            for number in count():
                if not await self._answer(reader, writer, number):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.num_open -= 1
            async with self.left:
                self.left.notify_all()

    async def _answer(self, reader, writer, number):
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        await self.waits_for.wait()
        if number >= self.most_answers:
            return False
        writer.write(self.head + (b"" if self.holds_back else b"ok") + self.adds)
        await writer.drain()
        return not self.hangs_up

    async def wait_until_open(self, number):
        async with self.left:
            await self.left.wait_for(lambda: self.num_open == number)


@asynccontextmanager
async def engine_and_client(clock=lambda: 0.0):
    engine, connections = Engine(), EngineConnections(kept_idle_s=KEPT_IDLE_S, clock=clock)
    async with await asyncio.start_server(engine.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(transport=connections, base_url=url, timeout=300) as client:
            yield engine, client
        await engine.wait_until_open(0)


def test_streams_that_end_together_are_not_looked_at_again_and_again(monkeypatch):
    """httpx's pool looks at all connections for each idle one, at each end: no router answered for 40 s after 1,000."""
    looks = count()
    for name in ("is_idle", "is_available", "has_expired"):
        look = getattr(httpcore.AsyncHTTPConnection, name)
        monkeypatch.setattr(httpcore.AsyncHTTPConnection, name, lambda self, look=look: (next(looks), look(self))[1])

    async def run():
        async with engine_and_client() as (_, client), AsyncExitStack() as streams:
            answers = [await streams.enter_async_context(client.stream("GET", "/")) for _ in range(NUM_STREAMS)]
            assert [await answer.aread() for answer in answers] == [b"ok"] * NUM_STREAMS

    asyncio.run(run())
    assert next(looks) < 20 * NUM_STREAMS


def test_an_idle_connection_takes_the_next_request():
    async def run():
        async with engine_and_client() as (engine, client):
            for _ in range(3):
                assert (await client.get("/")).content == b"ok"
            assert engine.num_opened == 1
            async with client.stream("GET", "/") as answer:
                assert (await client.get("/")).content == b"ok"
                await answer.aread()
            await client.get("/")
            assert engine.num_opened == 2

    asyncio.run(run())


def test_connections_that_have_been_idle_for_long_are_closed():
    now = [0.0]

    async def run():
        async with engine_and_client(lambda: now[0]) as (engine, client):
            async with client.stream("GET", "/") as answer:
                await client.get("/")
                await answer.aread()
            assert engine.num_open == 2
            now[0] = 0.6 * KEPT_IDLE_S
            await client.get("/")
            now[0] = 1.2 * KEPT_IDLE_S
            await client.get("/")
            await engine.wait_until_open(1)
            assert engine.num_opened == 2

    asyncio.run(run())


def test_a_connection_that_the_engine_has_closed_is_opened_again():
    async def run():
        async with engine_and_client() as (engine, client):
            engine.hangs_up = True
            for number in range(3):
                assert (await client.get("/")).content == b"ok"
                await engine.wait_until_open(0)
                assert engine.num_opened == number + 1

    asyncio.run(run())


def test_what_comes_after_an_answer_is_not_the_answer_to_the_next_request():
    async def run():
        async with engine_and_client() as (engine, client):
            engine.adds = ANSWER + b"no"
            for number in range(3):
                assert (await client.get("/")).content == b"ok"
                assert engine.num_opened == number + 1

    asyncio.run(run())


@pytest.mark.parametrize("place", [b"mailto:x", b"http://xn--/", b"javascript:1", b"/elsewhere"])
def test_where_an_engine_sends_others_to_is_not_even_read(place):
    async def run():
        async with engine_and_client() as (engine, other), open_engine_client() as client:
            cookie = b"set-cookie: a=b; expires=Wed, 21 Fct 2015 07:28:00 GMT; version=1\r\n"
            engine.head = b"HTTP/1.1 302 Found\r\nlocation: " + place + b"\r\n" + cookie + ANSWER.partition(b"\r\n")[2]
            answer = await client.get(other.base_url)
            assert (answer.status_code, answer.content, answer.next_request) == (302, b"ok", None)

    with warnings.catch_warnings(action="error"):  # as Python does of cookies that it cannot read
        asyncio.run(run())


def test_a_connection_that_is_closed_while_a_request_is_on_its_way_costs_no_request():
    async def run():
        async with engine_and_client() as (engine, client):
            engine.most_answers = 1
            for number in range(3):
                assert (await client.post("/", content=b"")).content == b"ok"
                assert engine.num_opened == number + 1
            engine.most_answers = 0
            for number in range(3, 5):  # a new one that breaks off was not closed before
                with pytest.raises(httpx.RemoteProtocolError):
                    await client.get("/")
                assert engine.num_opened == number + 1

    asyncio.run(run())


def test_a_request_that_an_engine_has_had_for_a_while_is_not_sent_again():
    now = [0.0]

    async def run():
        async with engine_and_client(lambda: now[0]) as (engine, client):
            await client.get("/")
            engine.waits_for = asyncio.Event()
            engine.asked.clear()
            asking = asyncio.ensure_future(client.get("/"))
            await engine.asked.wait()
            now[0] = 2.0
            engine.most_answers = 1
            engine.waits_for.set()
            with pytest.raises(httpx.RemoteProtocolError):
                await asking
            assert engine.num_opened == 1

    asyncio.run(run())


@pytest.mark.parametrize("reads", [True, False])
def test_a_request_goes_with_its_answer_before_garbage_is_collected(reads):
    """Its body may have megabytes."""

    async def ask():
        async with engine_and_client() as (engine, client):
            async with client.stream("GET", "/") as answer:
                gone = weakref.ref(answer.request)
                if reads:
                    assert await answer.aread() == b"ok"
            del answer, engine
            return gone() is None

    gc.disable()
    try:
        assert asyncio.run(ask())
    finally:
        gc.enable()


def test_a_request_that_is_given_up_leaves_no_connection():
    async def run():
        async with engine_and_client() as (engine, client):
            engine.holds_back = True
            asking = asyncio.ensure_future(client.get("/"))
            await engine.asked.wait()
            asking.cancel()
            await asyncio.wait([asking])
            await engine.wait_until_open(0)

    asyncio.run(run())


def test_a_client_that_leaves_at_any_moment_costs_no_other_its_answer():
    """At each turn of the loop until the answer is there. A connection whose answer was read, and not yet ended, was
    given to the next request, which waited for ever."""

    async def run():
        async with engine_and_client() as (_, client):
            await client.get("/")
            for turns in count():
                asking = asyncio.ensure_future(client.get("/"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                has_answer = asking.done()
                asking.cancel()
                await asyncio.wait([asking])
                waits_for_none = httpx.Timeout(None, pool=0)
                assert (await client.get("/", timeout=waits_for_none)).content == b"ok", turns
                if has_answer:
                    break

    asyncio.run(run())


def test_a_client_that_leaves_while_old_connections_are_closed_leaves_none_behind():
    """At each of the first turns of the loop. Those that were not closed yet stayed open, and nobody knew of them."""
    now = [0.0]

    async def run():
        async with engine_and_client(lambda: now[0]) as (engine, client):
            for turns in range(6):
                await asyncio.gather(*(client.get("/") for _ in range(4)))
                now[0] += 2 * KEPT_IDLE_S
                asking = asyncio.ensure_future(client.get("/"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait([asking])
            now[0] += 2 * KEPT_IDLE_S
            await client.get("/")
            await engine.wait_until_open(1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("certificate", "ok"),
        ("", "self-signed certificate.*: name the file with its authority's certificate in SSL_CERT_FILE"),
        ("missing", "no certificates in SSL_CERT_FILE or SSL_CERT_DIR: .*No such file or directory"),
    ],
)
def test_an_engine_may_have_a_certificate_of_an_authority_of_ones_own(named, told, tmp_path, monkeypatch):
    made = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / named) if named else "")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made)

    async def ask():
        engine = Engine()
        async with await asyncio.start_server(engine.serve, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            async with httpx.AsyncClient(transport=EngineConnections(), timeout=300) as client:
                try:
                    answer = (await client.get(f"https://127.0.0.1:{port}")).text
                except httpx.ConnectError as error:
                    answer = reason_of(error)
            await engine.wait_until_open(0)
            return answer

    assert re.search(told, asyncio.run(ask()))
