"""The Redis tier over a real Redis and Valkey, where they are installed: a tier's contract, and what can be wrong."""

import asyncio
import re
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import urlsplit

import pytest
from redis.asyncio import BlockingConnectionPool, Redis as AsyncRedis

from octavo.chunks import ALL_BLOCKS
from octavo.cli import run
from octavo.stores.redis import RedisClient
from octavo.testing import tier_driver
from octavo.tiers import TierContext, spec_from_config
from rigs.network_link import NetworkLink
from rigs.redis_suite import RedisSuite, descriptions, emptied, values

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]


class TestRedis(RedisSuite):
    machine_examples = 10

    @pytest.fixture(autouse=True)
    def use(self, redis):
        self.url = redis["URL"]


class TestEncryptedRedis(RedisSuite):
    machine_examples = 2

    @pytest.fixture(autouse=True)
    def use(self, redis, tmp_path_factory):
        self.url = redis["URL"]
        self.key_file = tmp_path_factory.mktemp("key") / "key"
        self.key_file.write_text("5a" * 32)

    def config(self, folder):
        return {"url": self.url, "key_file": str(self.key_file)}


@pytest.fixture
def suite(redis):
    made = RedisSuite()
    made.url = redis["URL"]
    return made


@pytest.fixture
def server(redis):
    """The server itself, empty."""
    with emptied(redis) as server:
        yield server


def test_what_is_stored_ends(suite, server, tmp_path):
    with suite.driver(tmp_path) as driver:
        driver.store(tier_driver.chunks(range(6)))
    lives = [server.pttl(name) for name in values(server)]
    assert len(lives) == 6
    assert all(0 < life <= 7 * 86_400_000 for life in lives)


def test_a_description_ends_when_the_last_of_its_chunks_does(suite, server, tmp_path):
    wanted, others = tier_driver.chunks(range(6)), tier_driver.chunks(range(6, 9))
    with suite.driver(tmp_path) as driver:
        assert not descriptions(server)
        for use, chunks in ((driver.store, wanted), (driver.load, wanted), (driver.store, others)):
            assert use(chunks) == frozenset()
            (name,) = descriptions(server)
            assert 6 * 86_400_000 < server.pttl(name) <= 7 * 86_400_000
            server.pexpire(name, 86_400_000)


def test_the_first_description_stays(suite, server, tmp_path):
    with suite.driver(tmp_path) as driver:
        driver.store(tier_driver.chunks([0]))
    (name,) = descriptions(server)
    server.set(name, b"the first")
    with suite.driver(tmp_path) as driver:
        driver.store(tier_driver.chunks([1]))
    assert server.get(name) == b"the first"


def test_equal_work_of_two_engines_is_stored_once(suite, server, tmp_path):
    wanted = tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as first, suite.driver(tmp_path) as second:
        assert first.store(wanted) == frozenset()
        before = {name: server.get(name) for name in values(server)}
        assert second.store(wanted) == frozenset()
        assert {name: server.get(name) for name in values(server)} == before
        assert first.load(wanted) == second.load(wanted) == frozenset()


@pytest.mark.parametrize(
    "spoil",
    [lambda value: value[:-1], lambda value: value + b"x", lambda value: value[:200] + b"\0\1\2" + value[203:]],
    ids=["cut", "longer", "changed"],
)
def test_damage_is_a_miss_and_is_written_anew(suite, server, tmp_path, spoil):
    wanted = tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as driver:
        driver.store(wanted)
        for name in values(server):
            server.set(name, spoil(server.get(name)))
    with suite.driver(tmp_path) as driver:
        assert driver.found(range(6)) == [ALL_BLOCKS] * 6
        assert driver.load(wanted) == set(range(6))
        assert driver.found(range(6)) == [0] * 6
        assert driver.store(wanted) == frozenset()
        assert driver.load(wanted) == frozenset()


def test_a_chunk_that_another_engine_stored_with_other_blocks_is_found_anew(suite, server, tmp_path):
    """It is no damage: this engine never found it again."""
    now = count(step=100)
    with suite.driver(tmp_path) as first, suite.driver(tmp_path) as opened:
        second = tier_driver.TierDriver(opened.tier, lambda tier: tier.flush(0.001), lambda: next(now))
        part, whole = tier_driver.chunks([0], 0b0101), tier_driver.chunks([0])
        assert first.store(part) == frozenset()
        assert second.found([0]) == [0b0101]
        assert first.store(whole) == frozenset()
        assert second.load(part) == {0}
        assert second.tier.status().counters["corrupt"] == 0
        second.poll_until(lambda: second.found([0]) == [ALL_BLOCKS], "the whole chunk")
        assert second.load(whole) == frozenset()


def test_what_is_no_string_is_a_miss_and_is_overwritten(suite, server, tmp_path, capsys):
    """Others may write to the server."""
    wanted = tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as driver:
        driver.store(wanted)
        name = next(name for name in values(server) if name.endswith(wanted[0].key.hex().encode()))
        server.delete(name)
        server.rpush(name, "somebody else's")
        assert run(["store", "verify", suite.url]) == 1
        assert re.search(r"^6 values, [\d.]+ KiB: 1 damaged$", capsys.readouterr().out, re.MULTILINE)
        with suite.driver(tmp_path) as other:
            assert other.found(range(6)) == [0] + [ALL_BLOCKS] * 5
            assert driver.load(wanted) == {0}
            assert other.store(wanted[:1]) == frozenset()
            assert other.load(wanted) == frozenset()


def test_a_value_that_claims_too_much_is_not_asked_for(suite, server, tmp_path):
    with suite.driver(tmp_path) as driver:
        driver.store(tier_driver.chunks([0]))
        (name,) = values(server)
        server.setrange(name, 24, (1 << 40).to_bytes(8, "little"))
    with suite.driver(tmp_path) as driver:
        assert driver.found([0]) == [0]


def test_a_server_that_has_lost_all_is_a_miss(suite, server, tmp_path):
    wanted = tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as driver:
        driver.store(wanted)
        described = descriptions(server)
        server.flushdb()
        assert driver.load(wanted) == set(range(6))
        job = driver.submit_store(wanted)
        assert driver.tier.flush(60)  # the tier hears at once of the new epoch, and of what was stored in it
        assert driver.finish(job) == frozenset()
        assert driver.load(wanted) == frozenset()
        assert descriptions(server) == described


def test_a_server_that_gives_up_the_name_of_an_epoch_is_told_once(suite, server, tmp_path, caplog):
    with suite.driver(tmp_path) as driver:
        for number in range(3):
            assert driver.store(tier_driver.chunks([number])) == frozenset()
            (epoch,) = (name for name in server.scan_iter("octavo:*") if name.count(b":") == 1)
            server.delete(epoch)
        driver.tier.reset()
        driver.poll_until(driver.tier.is_reset_durable, "the reset")
    assert [record.message.split(" is gone, ")[0] for record in caplog.records] == [f"Redis tier: {epoch.decode()}"]
    assert "its maxmemory-policy should be volatile-lru" in caplog.text


@pytest.mark.parametrize("hears_first", [True, False], ids=["in its next lookup", "in its next store"])
def test_a_reset_that_the_server_has_lost_is_done_once_more(suite, server, tmp_path, caplog, hears_first):
    """After a failover, or a restart from a snapshot, the epoch before the reset is back, and so are its chunks."""
    wanted = tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as driver:
        assert driver.store(wanted) == frozenset()
        snapshot = {name: server.dump(name) for name in server.scan_iter("octavo:*")}
        driver.tier.reset()
        driver.poll_until(driver.tier.is_reset_durable, "the reset")
        server.flushdb()
        for name, value in snapshot.items():
            server.restore(name, 0, value)
        if hears_first:
            assert driver.found(range(6)) == [0] * 6
        assert driver.store(wanted[:3]) == frozenset()
        with suite.driver(tmp_path) as other:
            assert other.found(range(6)) == [ALL_BLOCKS] * 3 + [0] * 3
    assert len([record for record in caplog.records if "gone back to a former epoch" in record.message]) == 1


class Late(AsyncRedis):
    """Gives one answer in the place of another."""

    late = None

    async def get(self, name):
        answer = await super().get(name)
        answer, self.late = answer if self.late is None else self.late, None
        return answer


@asynccontextmanager
async def begun(redis):
    """An empty server, a client that has entered its epoch, and the name under which that stands."""
    async with Late.from_url(redis["URL"]) as server:
        await server.flushdb()
        client = RedisClient(server, namespace=bytes(16), family=b"", most_chunk_bytes=1, keep_s=60)
        await client.probe()
        (name,) = await server.keys("octavo:*")
        yield server, client, name


def test_a_late_answer_resets_nothing(redis):
    """It tells the epoch before a reset that has reached the server since."""

    async def ask():
        async with begun(redis) as (server, client, name):
            former = await server.get(name)
            await client.forget_all()
            server.late = former
            await client.probe()
            return former, await server.get(name), client.generation

    former, now, generation = asyncio.run(ask())
    assert now != former
    assert generation == 1


@pytest.mark.parametrize("answer", [b"", b"of a chunk"])
def test_the_answer_to_another_question_resets_nothing(redis, answer):
    async def ask():
        async with begun(redis) as (server, client, name):
            before, server.late = await server.get(name), answer
            await client.probe()
            await client.probe()
            return before, await server.get(name), client.generation

    before, now, generation = asyncio.run(ask())
    assert now == before
    assert generation == 0


def test_what_is_stored_after_a_reset_by_another_engine_is_found_by_a_third(suite, tmp_path):
    wanted = tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as first, suite.driver(tmp_path) as second:
        assert first.store(wanted) == frozenset()
        second.tier.reset()
        second.poll_until(second.tier.is_reset_durable, "the reset")
        job = first.submit_store(wanted)
        assert first.tier.flush(60)
        assert first.finish(job) == frozenset()
    with suite.driver(tmp_path) as third:
        assert third.found(range(6)) == [ALL_BLOCKS] * 6


def test_a_full_server_takes_nothing_says_so_once_and_still_answers(suite, server, tmp_path, caplog):
    first, second = tier_driver.chunks(range(3)), tier_driver.chunks(range(3, 6))
    with suite.driver(tmp_path) as driver:
        driver.store(first)
        server.config_set("maxmemory", 1)
        try:
            for _ in range(4):
                assert driver.store(second) == set(range(3))
            assert driver.load(first) == frozenset()
        finally:
            server.config_set("maxmemory", 0)
        assert driver.store(second) == frozenset()
    told = [message for message in caplog.messages if "its maxmemory-policy should be volatile-lru" in message]
    assert len(told) == 1


def test_after_a_failover_the_name_is_looked_up_again(suite, server, tmp_path):
    """The former primary answers on, as a replica: whoever keeps its connections never stores again."""
    first, second = tier_driver.chunks(range(3)), tier_driver.chunks(range(3, 6))
    with suite.driver(tmp_path) as driver:
        own = {client["id"] for client in server.client_list()}
        assert driver.store(first) == frozenset()
        before = {client["id"] for client in server.client_list()} - own
        server.replicaof("127.0.0.1", "1")
        try:
            assert driver.store(second) == set(range(3))
            assert driver.load(first) == frozenset()
        finally:
            server.replicaof("no", "one")
        assert driver.store(second) == frozenset()
        assert before
        assert before.isdisjoint(client["id"] for client in server.client_list())


def test_stores_that_are_slow_delay_no_lookup(suite, server, tmp_path):
    """They are more than there are connections."""
    with suite.driver(tmp_path) as driver, suite.driver(tmp_path) as other:
        assert driver.store(tier_driver.chunks(range(3))) == frozenset()
        server.client_pause(600_000, all=False)  # all that writes
        try:
            jobs = [other.submit_store([chunk]) for chunk in tier_driver.chunks(range(3, 43))]
            assert other.found(range(3)) == [ALL_BLOCKS] * 3
        finally:
            server.client_unpause()
        assert {other.finish(job) for job in jobs} == {frozenset()}


def test_only_the_tier_limits_how_long_an_answer_may_take(monkeypatch):
    """redis-py has a limit of its own, 5 s, and then makes the call once more."""
    given = {}

    def from_url(url, **options):
        given.update(options)
        return BlockingConnectionPool()

    monkeypatch.setattr(BlockingConnectionPool, "from_url", from_url)
    spec = spec_from_config({"type": "redis", "url": "redis://127.0.0.1:1/0"})
    spec.build(TierContext(namespace=tier_driver.NAMESPACE, max_chunk_bytes=1)).close()
    assert given["timeout"] is None
    assert given["socket_timeout"] is None


@pytest.mark.parametrize("answer", [b"$5\r\nhello\r\n", b":5\r\n", b"$-1\r\n"], ids=["bytes", "number", "nothing"])
def test_an_answer_too_many_costs_one_question(redis, tmp_path, answer):
    """Otherwise each question gets the answer to the one before it, from then on."""
    wanted = tier_driver.chunks(range(3))
    parts = urlsplit(redis["TCP_URL"])
    link = NetworkLink(f"http://{parts.hostname}:{parts.port}")
    suite = RedisSuite()
    suite.url = redis["TCP_URL"].replace(f":{parts.port}", f":{link.port}")
    try:
        with suite.driver(tmp_path) as driver:
            assert driver.store(wanted) == frozenset()
            link.slip_in(answer)
            driver.load(wanted)
            assert driver.store(wanted) == frozenset()
            assert driver.load(wanted) == frozenset()
            driver.settle()
    finally:
        link.close()
