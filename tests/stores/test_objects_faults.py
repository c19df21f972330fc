"""The object store tier, where a network or a server fails between it and a real S3 server.

Whatever goes wrong is a miss: the driver compares every byte that a load brings.
"""

import asyncio
import itertools
import logging

import obstore
import pytest

from octavo.chunks import ALL_BLOCKS, NO_TENANT, ChunkChain, SequenceNames
from octavo.errors import TierError
from octavo.stores.objects import ObjectsClient, ObjectsConfig, open_store
from octavo.testing import tier_driver
from octavo.tiers import TierContext, TierState, spec_from_config
from rigs import fault_proxy
from rigs.fault_proxy import FaultProxy, refuse
from rigs.network_link import NetworkLink

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]  # a server that starts
HANGS = [fault_proxy.drip, fault_proxy.say_nothing]
FAULTS = {
    "a 500": refuse("500 Internal Server Error"),
    "throttled": refuse("503 Slow Down", "Retry-After: 3600", code="SlowDown"),
    "throttled, as Google does": refuse("429 Too Many Requests", "Retry-After: 3600", code="TooManyRequests"),
    "reset": fault_proxy.vanish,
    "reset in the middle": fault_proxy.reset_in_the_middle,
    "ended too soon": fault_proxy.end_too_soon,
    "short": fault_proxy.shorten,
    "another range": fault_proxy.give_another_range,
    "other bytes": fault_proxy.give_other_bytes,
    "drips": fault_proxy.drip,
    "hangs": fault_proxy.say_nothing,
}
KEYS = range(6)
LONG_S = 3600.0
"""Longer than any pause, and than an answer is remembered."""


@pytest.fixture
def proxy(server):
    with FaultProxy(server) as proxy:
        yield proxy


@pytest.fixture(params=FAULTS.values(), ids=FAULTS.keys())
def fault(request):
    return request.param


class Bench:
    """Tiers over one prefix, with a clock that is set by hand."""

    def __init__(self, prefix, server, proxy):
        self.prefix, self.server, self.proxy = prefix, server, proxy
        self.now = 100.0
        self.store = open_store(ObjectsConfig.from_mapping(self.config(server)))
        self._open = []

    def config(self, endpoint):
        return {"url": f"s3://octavo/{self.prefix}", "endpoint": endpoint}

    def open(self, endpoint=None, *, identity=None, **limits):
        """Through the proxy, unless an endpoint is given; patient, unless a limit is."""
        names = ("find_seconds", "load_seconds", "store_seconds", "remember_seconds")
        config = {"type": "objects", **dict.fromkeys(names, 600), **self.config(endpoint or self.proxy.endpoint)}
        size = tier_driver.MAX_CHUNK_BYTES
        context = TierContext(namespace=tier_driver.NAMESPACE, max_chunk_bytes=size, identity=identity or {})
        tier = spec_from_config({**config, **limits}).build(context)
        self._open.append(tier)
        return tier_driver.TierDriver(tier, lambda tier: tier.flush(0.001), lambda: self.now)

    def fill(self, wanted):
        assert self.open(self.server).store(wanted) == frozenset()

    def later(self, driver, seconds=LONG_S):
        self.now += seconds
        driver.poll()

    def objects(self):
        found = itertools.chain.from_iterable(obstore.list(self.store))
        return [meta["path"] for meta in found if "/epochs/" not in meta["path"]]

    def close(self):
        for tier in self._open:
            tier.close()


@pytest.fixture
def bench(server, proxy, tmp_path):
    bench = Bench(tmp_path.name, server, proxy)
    yield bench
    bench.close()


def limit(fault, name):
    """Short enough where a fault has no end of its own."""
    return {name: 0.5} if fault in HANGS else {}


def is_listing(request):
    return request.is_listing


def is_read(request):
    return request.is_read


def is_write(request):
    return request.is_write


def counters(driver):
    return driver.tier.status().counters


def recover(bench, driver):
    """Time passes until the tier has found the store in order."""

    def is_back():
        bench.now += LONG_S
        return driver.tier.status().state is TierState.OK

    driver.poll_until(is_back, "the store to be back")
    bench.now += LONG_S
    driver.poll()


def comes_to(bench, driver, call, wanted):
    """A short limit may pass on a machine that is busy, and then it is a miss once more."""

    def is_so():
        recover(bench, driver)
        return call() == wanted

    driver.poll_until(is_so, "what the store has")


def test_chunks_are_stored_though_the_description_is_not(bench, fault):
    bench.proxy.break_with(fault, lambda request: "/names/" in request.target)
    wanted = tier_driver.chunks(KEYS)
    driver = bench.open(identity={"model": "org/kiel"}, store_seconds=50)  # less than obstore waits for an answer
    assert driver.store(wanted) == frozenset()
    other = bench.open(bench.server)
    assert all(other.found(KEYS))
    assert other.load(wanted) == frozenset()


def test_a_lookup_that_fails_is_a_miss(bench, fault):
    if fault in (fault_proxy.give_another_range, fault_proxy.give_other_bytes):
        pytest.skip("a listing has no ranges")
    bench.fill(tier_driver.chunks(KEYS))
    driver = bench.open(**limit(fault, "find_seconds"))
    bench.proxy.break_with(fault, is_listing)
    assert driver.found(KEYS) == [0] * 6
    bench.proxy.heal()
    comes_to(bench, driver, lambda: driver.found(KEYS), [ALL_BLOCKS] * 6)


def test_a_look_for_a_new_epoch_costs_no_round_trip(bench):
    bench.fill(tier_driver.chunks(KEYS))
    store = open_store(ObjectsConfig.from_mapping(bench.config(bench.proxy.endpoint)))
    client = ObjectsClient(store, namespace=tier_driver.NAMESPACE, family=b"", clock=lambda: bench.now)

    def count_listings():
        return sum(map(is_listing, bench.proxy.requests))

    async def find_twice():
        await client.find(tier_driver.ALL_KEYS)  # the first look asks for what is filed too
        num_before = count_listings()
        bench.now += LONG_S
        found = [await client.find(tier_driver.ALL_KEYS)]
        num_listings = count_listings() - num_before
        bench.now += LONG_S
        bench.proxy.break_with(fault_proxy.answer_together(num_listings), is_listing)
        async with asyncio.timeout(30):
            return [*found, await client.find(tier_driver.ALL_KEYS)]

    assert [sorted(found) for found in asyncio.run(find_twice())] == [[tier_driver.key(number) for number in KEYS]] * 2


def test_an_answer_that_is_no_listing_brings_no_former_epoch_back(bench):
    """An error with status 200, or a page of a proxy: obstore reads a listing without objects from it."""
    bench.fill(tier_driver.chunks(KEYS))
    other = bench.open(bench.server)
    other.tier.reset()
    other.poll_until(other.tier.is_reset_durable, "the reset")
    looks = itertools.count()

    def is_first_look(request):
        is_look = is_listing(request) and ("delimiter" in request.target or "epochs" in request.target)
        return is_look and next(looks) < 2

    bench.proxy.break_with(refuse("200 OK"), is_first_look)
    assert bench.open().found(KEYS) == [0] * 6
    assert next(looks) >= 2


def test_an_index_that_cannot_be_read_is_a_miss(bench, fault):
    bench.fill(tier_driver.chunks(KEYS))
    driver = bench.open(**limit(fault, "find_seconds"))
    bench.proxy.break_with(fault, is_read)
    assert driver.found(KEYS) == [0] * 6
    bench.proxy.heal()
    comes_to(bench, driver, lambda: driver.found(KEYS), [ALL_BLOCKS] * 6)
    assert driver.load(tier_driver.chunks(KEYS)) == frozenset()


def test_a_load_that_fails_is_a_miss(bench, fault):
    wanted = tier_driver.chunks(KEYS)
    bench.fill(wanted)
    driver = bench.open(**limit(fault, "load_seconds"))
    assert driver.found(KEYS) == [ALL_BLOCKS] * 6
    bench.proxy.break_with(fault, is_read)
    assert driver.load(wanted) == set(KEYS)
    bench.proxy.heal()
    recover(bench, driver)
    assert driver.store(wanted) == frozenset()  # computed anew
    comes_to(bench, driver, lambda: driver.load(wanted), frozenset())


def test_a_store_that_fails_leaves_nothing_wrong(bench, fault):
    wanted = tier_driver.chunks(KEYS)
    driver = bench.open(**limit(fault, "store_seconds"))
    assert driver.found(KEYS) == [0] * 6
    bench.proxy.break_with(fault, is_write)
    failed = driver.store(wanted)
    assert failed in (frozenset(), set(KEYS))  # the store may have it, though its answer was lost
    bench.proxy.heal()
    comes_to(bench, driver, lambda: driver.store(wanted), frozenset())
    assert driver.load(wanted) == frozenset()
    assert bench.open().found(KEYS) == [ALL_BLOCKS] * 6


@pytest.mark.parametrize("fault", [fault_proxy.vanish, FAULTS["a 500"]], ids=["down", "a 500"])
def test_a_store_that_is_down_is_said_once_and_left_alone(bench, fault, caplog):
    wanted = tier_driver.chunks(KEYS)
    bench.fill(wanted)
    driver = bench.open()
    assert driver.found(KEYS) == [ALL_BLOCKS] * 6
    bench.proxy.break_with(fault)
    with caplog.at_level(logging.WARNING, "octavo.stores"):
        for _ in range(3):
            assert driver.load(wanted) == set(KEYS)
        assert driver.tier.status().state is TierState.DEGRADED
        assert driver.submit_load(wanted) is driver.submit_store(wanted) is None
        assert driver.found(KEYS) == [0] * 6
        for second, num_probes in enumerate([1, 1, 2, 2, 2, 2, 3, 3, 3, 3], 1):
            bench.now += 1.0
            driver.poll_until(lambda: counters(driver)["probes"] == counters(driver)["probes_failed"], "a probe to end")
            assert counters(driver)["probes"] == num_probes, f"after {second} s"
            driver.poll()  # the next pause begins
        bench.proxy.heal()
        recover(bench, driver)
        assert driver.found(KEYS) == [ALL_BLOCKS] * 6
        assert driver.load(wanted) == frozenset()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "is turned off" in said[0]
    assert "is back" in said[1]


@pytest.mark.parametrize("fault", [FAULTS["throttled"], FAULTS["throttled, as Google does"]], ids=["503", "429"])
def test_a_store_that_throttles_is_left_alone_at_once(bench, fault):
    wanted = tier_driver.chunks(KEYS)
    bench.fill(wanted)
    driver = bench.open()
    assert driver.found(KEYS) == [ALL_BLOCKS] * 6
    bench.proxy.break_with(fault)
    assert driver.load(wanted) == set(KEYS)
    status = driver.tier.status()
    assert status.state is TierState.DEGRADED
    assert "throttles" in status.reason


def test_connections_that_lead_nowhere_are_left_behind(bench):
    """A firewall has forgotten them, or the name leads elsewhere by now: nobody is told, and new ones work."""
    wanted = tier_driver.chunks(range(0, 60, 3))
    link = NetworkLink(bench.server)
    try:
        driver = bench.open(link.url, load_seconds=0.5)
        for chunk in wanted:
            assert driver.store([chunk]) == frozenset()
        for job in [driver.submit_load([chunk]) for chunk in wanted]:  # each on a connection of its own
            driver.finish(job)
        recover(bench, driver)  # a server that opens so many connections may be late, and then the tier is off
        link.lose_connections()

        while driver.tier.status().state is TierState.OK:
            assert driver.load(wanted[:1]) == {0}
        recover(bench, driver)
        comes_to(bench, driver, lambda: driver.load(wanted[:1]), frozenset())
    finally:
        bench.close()
        link.close()


def test_objects_that_change_places_are_misses(bench):
    """What an index said of an object is not true any more: another one is there now, shorter or longer."""
    first, second = tier_driver.chunks(KEYS), tier_driver.chunks(range(300, 302))
    bench.fill(first)
    bench.fill(second)
    driver = bench.open()
    assert driver.found([*KEYS, 300, 301]) == [ALL_BLOCKS] * 8
    paths = bench.objects()
    packed = [bytes(obstore.get(bench.store, path).bytes()) for path in paths]
    for path, other in zip(paths, reversed(packed), strict=True):
        obstore.put(bench.store, path, other)
    for wanted in (first, second):
        assert driver.load(wanted) == set(range(len(wanted)))
    assert driver.tier.status().state is TierState.OK
    for wanted in (first, second):
        assert driver.store(wanted) == frozenset()
        assert driver.load(wanted) == frozenset()


def test_a_bucket_that_is_emptied_is_misses(bench):
    wanted = tier_driver.chunks(KEYS)
    bench.fill(wanted)
    driver = bench.open()
    assert driver.found(KEYS) == [ALL_BLOCKS] * 6
    obstore.delete(bench.store, bench.objects())
    assert driver.load(wanted) == set(KEYS)
    assert driver.found(KEYS) == [0] * 6
    assert driver.tier.status().state is TierState.OK
    assert driver.store(wanted) == frozenset()
    assert bench.open().found(KEYS) == [ALL_BLOCKS] * 6


def test_one_object_that_fails_fails_no_other(bench):
    first, second = tier_driver.chunks(KEYS), tier_driver.chunks(range(300, 302))
    bench.fill(first)
    (broken,) = bench.objects()
    bench.fill(second)
    driver = bench.open()
    assert driver.found([*KEYS, 300, 301]) == [ALL_BLOCKS] * 8
    bench.proxy.break_with(FAULTS["a 500"], lambda request: request.is_read and broken in request.target)
    assert driver.load([*first, *second]) == set(KEYS)


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_what_another_write_was_in_the_way_of_is_not_stored(bench, code):
    """obstore says of it that the object is there."""
    wanted = tier_driver.chunks(KEYS)
    driver = bench.open()
    bench.proxy.break_with(refuse("409 Conflict", code=code), is_write)
    assert driver.store(wanted) == set(KEYS)
    assert driver.found(KEYS) == [0] * 6
    driver.tier.reset()
    driver.poll_until(lambda: driver.tier.status().state is not TierState.OK, "the reset to fail")
    assert f"409 {code}" in driver.tier.status().reason
    bench.proxy.heal()
    recover(bench, driver)
    assert driver.tier.is_reset_durable()
    assert driver.store(wanted) == frozenset()
    assert driver.load(wanted) == frozenset()


def test_a_lookup_that_has_failed_sends_no_more_listings(bench):
    """A store that throttles would get hundreds of them for a prompt that nobody waits for any more."""
    keys = [tier_driver.key(number) for number in range(100 * 64)]
    sequence = SequenceNames(NO_TENANT, [ChunkChain(16, keys, is_prefix=False)])
    stretches = [f"{number:032x}" for number in range(0, len(keys), 64)]
    driver = bench.open(remember_seconds=0.001)
    begun, ended = [], []

    async def fail_one_and_say_nothing_to_others(exchange):
        if stretches[10] in exchange.request.target:
            await refuse("404 Not Found", code="NoSuchBucket")(exchange)
        else:
            begun.append(exchange)
            await exchange.reader.read()  # until the client gives up
            ended.append(exchange)

    def is_answered():
        return not driver.tier.ask(sequence)

    bench.proxy.break_with(
        fail_one_and_say_nothing_to_others, lambda request: any(n in request.target for n in stretches[4:])
    )
    driver.poll_until(is_answered, "the lookup to fail")
    assert counters(driver)["asks_failed"] == 1
    driver.poll_until(lambda: len(begun) == len(ended), "the others to be given up")
    bench.proxy.heal()
    bench.later(driver)
    driver.poll_until(is_answered, "an answer")
    assert counters(driver)["asks_failed"] == 1
    assert sum(stretches[-1] in request.target for request in bench.proxy.requests) == 1


def test_stores_that_hang_delay_no_lookup_and_no_load(bench):
    wanted = tier_driver.chunks(KEYS)
    bench.fill(wanted)
    driver = bench.open()
    bench.proxy.break_with(fault_proxy.say_nothing, is_write)
    jobs = [driver.submit_store([chunk]) for chunk in tier_driver.chunks(range(300, 340))]
    assert driver.found(KEYS) == [ALL_BLOCKS] * 6
    assert driver.load(wanted) == frozenset()
    for job in jobs:
        driver.cancel(job)


@pytest.mark.parametrize("half", [ALL_BLOCKS, 0b0101], ids=["equal", "other blocks"])
def test_two_writers_of_one_key(bench, half):
    """Equal work is stored once; of different work the later one counts, and a reader of the former has a miss."""
    drivers = [bench.open(), bench.open()]
    chosen = [tier_driver.chunks(KEYS), tier_driver.chunks(KEYS, half)]
    for driver in drivers:
        driver.await_answer()
    jobs = [driver.submit_store(wanted) for driver, wanted in zip(drivers, chosen, strict=True)]
    for driver, job, wanted in zip(drivers, jobs, chosen, strict=True):
        assert driver.finish(job) == frozenset()
        assert driver.load(wanted) == frozenset()
    assert len(bench.objects()) == len({half, ALL_BLOCKS})
    reader = bench.open()
    masks = reader.found(KEYS)
    assert len(set(masks)) == 1
    assert masks[0] in (half, ALL_BLOCKS)
    assert reader.load(tier_driver.chunks(KEYS, masks[0])) == frozenset()


def test_a_store_without_conditional_writes_is_refused_at_the_start(bench):
    """Nothing would ever be stored there."""
    refuses = refuse("501 Not Implemented", code="NotImplemented")
    bench.proxy.break_with(refuses, lambda request: any(line.lower().startswith(b"if-none") for line in request.head))
    spec = spec_from_config({"type": "objects", **bench.config(bench.proxy.endpoint)})
    with pytest.raises(TierError, match="; take a store that knows conditional writes"):
        spec.check()
    bench.proxy.heal()
    spec.check()
