"""A server that is no Redis, or a broken one: whatever it answers, people get a sentence, and an engine a miss."""

import asyncio
import re
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread

import pytest
from redis.asyncio import Redis

from octavo.cli import run
from octavo.errors import InputError, TierError
from octavo.stores.redis import RedisClient
from octavo.tiers import spec_from_config

NAME = b"octavo:" + b"ab" * 16 + b":" + b"cd" * 8 + b":" + b"ef" * 16 + b":shared:" + b"01" * 36
PAGE = b"*2\r\n$1\r\n0\r\n*1\r\n$%d\r\n%s\r\n" % (len(NAME), NAME)
NESTED = b"*1\r\n" * 3000 + b":5\r\n"
NOT_BYTES = b":5\r\n"
"""Where bytes are expected."""


class Answering(StreamRequestHandler):
    """Answers OK to each command, or what the server has for it, which may depend on a name."""

    def handle(self):
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2])
            answer = self.server.answers.get(words[0].upper(), b"+OK\r\n")
            self.wfile.write(answer(words[1]) if callable(answer) else answer)


@contextmanager
def answering(answers):
    """The address of a server that answers so, by command."""
    with ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        server.answers = answers
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "answers",
    [
        {b"SCAN": b":5\r\n"},
        {b"SCAN": b"$abc\r\n"},
        {b"SCAN": b"*2\r\n$3\r\nabc\r\n*0\r\n"},
        {b"SCAN": b"*2\r\n$1\r\n0\r\n:7\r\n"},
        {b"SCAN": b"*2\r\n$1\r\n7\r\n*0\r\n"},
        {b"SCAN": NESTED},
        {b"SCAN": b"*2\r\n$1\r\n0\r\n*1\r\n:7\r\n"},
        {b"SCAN": PAGE, b"MEMORY": b"$3\r\nabc\r\n", b"GET": b"$-1\r\n"},
        {b"SCAN": PAGE, b"MEMORY": b":100\r\n", b"GET": NOT_BYTES},
    ],
)
@pytest.mark.parametrize("command", ["ls", "stat", "verify", "gc"])
def test_a_command_tells_what_no_redis_answers(command, answers, capsys):
    with answering(answers) as url:
        assert run(["store", command, url]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert re.search(r"redis://127.0.0.1:\d+: its answer is none to what was asked", told)


def test_a_value_that_is_none_is_told(capsys):
    with answering({b"SCAN": PAGE, b"MEMORY": b":100\r\n", b"GET": b"$8\r\n" + b"\xcd" * 8 + b"\r\n"}) as url:
        assert run(["store", "verify", url]) == 1
    assert "damaged" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [b"$abc\r\n", b"x" * (1 << 17), b":5\r\n", NESTED])
def test_an_engine_takes_it_for_a_store_that_is_down(answer, caplog):
    async def ask(url):
        client = RedisClient(Redis.from_url(url), namespace=bytes(16), family=b"", most_chunk_bytes=1, keep_s=60)
        try:
            await client.probe()
        finally:
            await client.close()

    with answering({b"GET": answer}) as url, pytest.raises(TierError, match="its answer is none"):
        asyncio.run(ask(url))


def test_a_probe_that_fails_leaves_no_read_behind():
    """One of its reads fails at once, and the server has not answered the others by then."""
    names, ended = [], Event()

    def get(name):
        names.append(name)
        if len(names) == 1:
            return b"$abc\r\n"
        ended.wait(300)
        return b"$-1\r\n"

    async def ask(url):
        redis = Redis.from_url(url, socket_timeout=2)  # which a read may take to end
        client = RedisClient(redis, namespace=bytes(16), family=b"", most_chunk_bytes=1, keep_s=60)
        try:
            await client.probe()
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            ended.set()
            await client.close()
            assert left == set()

    with answering({b"GET": get}) as url, pytest.raises(TierError, match="its answer is none"):
        asyncio.run(ask(url))


@pytest.mark.parametrize("answer", [NOT_BYTES, NESTED, b"$-1\r\n", b"+OK\r\n"])
def test_what_does_not_give_back_what_it_was_given_is_told_at_the_start(answer, caplog):
    with answering({b"GET": answer}) as url:
        spec_from_config({"type": "redis", "url": url}).check()
    assert [message for message in caplog.messages if message.endswith("its answer is none to what was asked")]


def test_a_host_whose_name_cannot_be_looked_up_is_no_odd_answer(capsys):
    told = "redis://a..b: its host has no name that can be looked up; give another one in the url"
    assert run(["store", "ls", "redis://a..b"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    with pytest.raises(TierError, match=re.escape(told)):
        spec_from_config({"type": "redis", "url": "redis://a..b"}).check()


def test_a_server_of_a_cluster_that_has_most_values_is_refused_too():
    """Whether the one name that was tried is another server's was chance."""

    def get(name):
        return b"-MOVED 1 127.0.0.1:1\r\n" if name.endswith(b"-7") else b"$6\r\noctavo\r\n"

    answers = {b"GET": get, b"GETRANGE": get(b"")}
    with answering(answers) as url, pytest.raises(TierError, match="it is part of a cluster"):
        spec_from_config({"type": "redis", "url": url}).check()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://127.0.0.1:1/0?nonsense=1", "'nonsense' is not one of its options client_name, db, .*username$"),
        ("redis://127.0.0.1:1/0?protocol=3", "'protocol' is not one of its options"),
        ("unix:///nobody?decode_responses=1", "'decode_responses' is not one of its options"),
        ("redis://127.0.0.1:1/0?ssl_cert_reqs=none", "'ssl_cert_reqs' is not one of its options"),
        ("rediss://127.0.0.1:1/0?ssl_nonsense=1", "the package redis refuses its options: .*'ssl_nonsense'"),
        ("rediss://127.0.0.1:1/0?ssl_cert_reqs=no", "the package redis refuses its options: .*Flag: no"),
        ("rediss://127.0.0.1:1/0?nonsense", "'nonsense' is not one of its options client_name.*, username, ssl_...$"),
    ],
)
def test_an_option_that_a_url_cannot_have_is_named(url, told, capsys):
    with pytest.raises(InputError, match=f"^Redis tier: url {url.partition('?')[0]}: {told}"):
        spec_from_config({"type": "redis", "url": url}).check()
    assert run(["store", "ls", url]) == 2
    assert re.search(told.rstrip("$"), " ".join(capsys.readouterr().err.split()))


def test_what_a_url_may_say_is_taken(caplog):
    with answering(dict.fromkeys((b"GET", b"GETRANGE"), b"$6\r\noctavo\r\n")) as url:
        spec_from_config({"type": "redis", "url": f"{url}/0?db=1&client_name=octavo&health_check_interval=9"}).check()
    assert not caplog.messages
