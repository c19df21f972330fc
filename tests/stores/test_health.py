"""A store that answers some calls and fails others for long: it is said once, and no more is off than fails."""

import logging
import threading
import time

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.stores import HeldChunk, RemoteClient, StoreDownError
from octavo.stores.envelope import Envelopes
from octavo.stores.tier import RemoteTier
from octavo.testing import tier_driver
from octavo.tiers import TierState

WANTED = tier_driver.chunks(range(6))
EVERY_PLACE = set(range(6))


class PartlyDown(RemoteClient):
    """A store in a dictionary. The calls named in `down` fail; a probe never does."""

    medium = "objects"

    def __init__(self):
        self.values = {}
        self.never_asked = {}
        """What it finds besides, of no sequence."""
        self.down = set()
        self.calls = []

    async def probe(self):
        self.calls.append("probe")

    async def find(self, sequence):
        self._call("find")
        asked = {key: held for chain in sequence.chains for key in chain.keys if (held := self._held(key))}
        return {**asked, **self.never_asked}

    async def put(self, chunks, is_wanted):
        self._call("put")
        self.values |= {chunk.key: (chunk.held_blocks, chunk.num_bytes, bytes(chunk.envelope)) for chunk in chunks}
        return [self._held(chunk.key) for chunk in chunks]

    async def get(self, wanted):
        self._call("get")
        return [memoryview(self.values[key][2]) if key in self.values else None for key, _ in wanted]

    async def forget_all(self):
        self.values.clear()

    async def close(self):
        pass

    def _held(self, key):
        return HeldChunk(*self.values[key][:2]) if key in self.values else None

    def _call(self, name):
        self.calls.append(name)
        if name in self.down:
            raise StoreDownError(f"no {name} today")


class Bench:
    """A tier over such a store, with a clock that is set by hand."""

    def __init__(self, clock=time.monotonic):
        self.now = 100.0
        self.client = PartlyDown()
        self.tier = RemoteTier(self.client, Envelopes(tier_driver.NAMESPACE), what="the store", clock=clock)
        self.driver = tier_driver.TierDriver(self.tier, lambda tier: time.sleep(0.0005), lambda: self.now)

    def repeat(self, number, do, *, pause_s=1.0):
        """Does something after each pause, when a probe that was due has ended."""
        for _ in range(number):
            self.now += pause_s
            num_probes = self.num_probes
            self.driver.poll()
            if self.num_probes > num_probes:
                self.driver.poll_until(lambda: self.tier.status().state is TierState.OK, "a probe to end")
            do()
            self.driver.poll_until(lambda: not self.driver.stores and not self.driver.loads, "jobs to end")

    @property
    def num_probes(self):
        return self.tier.status().counters["probes"]

    def store(self):
        return self.driver.submit_store(tier_driver.chunks([500]))


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.tier.close()


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_store_that_is_full_is_read_as_ever_and_tried_now_and_then(bench, said):
    assert bench.driver.store(WANTED) == frozenset()
    bench.client.down = {"put"}
    bench.client.calls.clear()

    def use():
        bench.store()
        assert bench.driver.found(range(6)) == [ALL_BLOCKS] * 6
        assert bench.driver.load(WANTED) == frozenset()
        assert bench.tier.status().state is TierState.OK

    bench.repeat(3, use)
    assert bench.tier.status().reason == "no put today"
    bench.repeat(197, use)
    assert said() == ["Storing in the store is turned off, and is tried now and then: no put today"]
    assert bench.client.calls.count("put") == 3 + len([1, 2, 4, 8, 16, 32, 60, 60])
    bench.client.down = set()
    bench.repeat(61, use)
    assert said()[1:] == ["Storing in the store is back"]
    assert bench.driver.load(tier_driver.chunks([500])) == frozenset()


def test_a_store_that_may_take_again_gets_one_job_at_first(bench):
    bench.client.down = {"put"}
    bench.repeat(3, bench.store)
    bench.client.down = set()
    bench.now += 1.0
    bench.driver.poll()  # the pause begins
    bench.now += 1.0
    bench.driver.poll()
    first = bench.driver.submit_store(WANTED)
    assert bench.driver.submit_store(tier_driver.chunks([10])) is None
    assert bench.driver.finish(first) == frozenset()
    assert bench.driver.store(tier_driver.chunks([10])) == frozenset()


@pytest.mark.parametrize("call", ["find", "get"])
def test_a_store_whose_probe_alone_works_is_said_once(bench, said, call):
    """A right that was lost: the probe needs it not."""
    assert bench.driver.store(WANTED) == frozenset()
    bench.client.down = {call}
    bench.client.calls.clear()

    def use():
        bench.driver.found(range(6))
        bench.driver.submit_load(WANTED)

    bench.repeat(100, use, pause_s=10.0)  # as long as an answer is remembered
    assert len(said()) == 1
    assert said()[0].startswith("the store is turned off")
    assert bench.client.calls.count(call) < 40
    bench.client.down = set()
    bench.repeat(20, use, pause_s=10.0)
    assert said()[1:] == ["the store is back"]
    assert bench.driver.load(WANTED) == frozenset()


@pytest.mark.parametrize("name", [b"", b"\0", tier_driver.key(1)[:-4] + bytes([0, 0, 0, 77]), bytes(5000)])
def test_what_nobody_asked_for_is_not_found(bench, name):
    """Anybody who may write to a store can write such names, and an engine knows no such group."""
    assert bench.driver.store(WANTED) == frozenset()
    bench.client.never_asked = {name: HeldChunk(ALL_BLOCKS, 10)}
    assert bench.driver.found(range(6)) == [ALL_BLOCKS] * 6
    assert bench.tier.lookup([name]) == [0]
    assert bench.driver.announced == {chunk.key for chunk in WANTED}


@pytest.mark.parametrize(("idle_s", "num_questions"), [(29.0, 1), (31.0, 2)])
def test_an_answer_that_an_idle_engine_did_not_take_is_asked_for_again(idle_s, num_questions):
    """Another engine may have reset the store meanwhile."""
    seconds, is_answered = [0.0], threading.Event()

    def clock():
        is_answered.set()
        return seconds[0]

    bench = Bench(clock)
    assert bench.tier.ask(tier_driver.ALL_KEYS)
    assert is_answered.wait(300)
    seconds[0] = idle_s
    bench.driver.await_answer()
    assert bench.client.calls.count("find") == num_questions
    bench.tier.close()
