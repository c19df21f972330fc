"""The Mooncake tier over a real master, where its package is there: the contract of a tier, and what can be wrong."""

import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.errors import InputError
from octavo.testing import tier_driver
from octavo.tiers import TierContext, TierState, spec_from_config
from rigs.objects_suite import PATIENT, ObjectsSuite
from rigs.processes import children_of, command_of

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]
LONG_S = 3600.0
"""Longer than any pause, and than an answer is remembered."""


@pytest.fixture(scope="module")
def pool(run_mooncake, tmp_path_factory):
    with run_mooncake(tmp_path_factory.mktemp("mooncake")) as told:
        yield told


@pytest.fixture
def own_pool(run_mooncake, tmp_path):
    """One that a test may break."""
    with run_mooncake(tmp_path / "pool") as told:
        yield told


class MooncakeSuite(ObjectsSuite):
    """Each folder is a family of its own in the one pool."""

    key_file = None

    @pytest.fixture(autouse=True)
    def use(self, pool):
        self.url = pool["URL"]

    def config(self, folder):
        return {"url": self.url, "key_file": self.key_file}

    def open_tier(self, folder, namespace):
        return open_tier(folder, namespace, **self.config(folder))


def open_tier(folder, namespace=tier_driver.NAMESPACE, **config):
    family = sha256(str(folder).encode() + namespace).digest()[:16]
    context = TierContext(namespace=namespace, family=family, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
    return spec_from_config({"type": "mooncake", **PATIENT, **config}).build(context)


class TestMooncake(MooncakeSuite):
    machine_examples = 10


class TestEncryptedMooncake(MooncakeSuite):
    machine_examples = 2

    @pytest.fixture(autouse=True)
    def key(self, tmp_path_factory):
        self.key_file = str(tmp_path_factory.mktemp("key") / "key")
        Path(self.key_file).write_text("5a" * 32)


class Bench:
    """Tiers over one pool, with a clock that is set by hand."""

    def __init__(self, folder):
        self.folder = folder
        self.now = 100.0
        self._open = []

    def open(self, pool, **config):
        tier = open_tier(self.folder, **{"url": pool["URL"], **config})
        self._open.append(tier)
        return tier_driver.TierDriver(tier, lambda tier: tier.flush(0.001), lambda: self.now)

    def later(self, driver):
        """Time passes until the tier has found the store in order, and asks it anew."""

        def is_back():
            self.now += LONG_S
            return driver.tier.status().state is TierState.OK

        driver.poll_until(is_back, "the store to be back")
        self.now += LONG_S
        driver.poll()

    def comes_to(self, driver, call, wanted):
        def is_so():
            self.later(driver)
            return call() == wanted

        driver.poll_until(is_so, "what the store has")

    def close(self):
        for tier in self._open:
            tier.close()


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


WANTED = tier_driver.chunks(range(6))
EVERY_PLACE = set(range(6))
SPOIL = """
import os, sys
from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0
for name in sys.argv[3:]:
    value = bytearray(store.get(name))
    exec(sys.argv[2])
    assert store.upsert(name, bytes(value)) == 0
os._exit(0)
"""


def names(pool):
    """Of chunks: what else is there names an epoch."""
    with urlopen(f"{pool['METRICS']}/get_all_keys", timeout=300) as answer:
        return [name for name in answer.read().decode().split() if name.count(":") > 1]


def test_the_first_stores_of_a_new_pool_are_all_taken(own_pool, bench):
    """Each of them finds that the pool has no epoch yet."""
    driver = bench.open(own_pool)
    jobs = [driver.submit_store([chunk]) for chunk in WANTED]
    assert [driver.finish(job) for job in jobs] == [frozenset()] * len(WANTED)
    assert driver.load(WANTED) == frozenset()


def test_equal_work_of_two_engines_is_stored_once(own_pool, bench):
    first, second = bench.open(own_pool), bench.open(own_pool)
    assert first.store(WANTED) == second.store(WANTED) == frozenset()
    assert len(names(own_pool)) == 6
    assert first.load(WANTED) == second.load(WANTED) == frozenset()


@pytest.mark.parametrize(
    "spoil", ["del value[-1]", "value += b'x'", "value[200] ^= 1"], ids=["cut", "longer", "changed"]
)
def test_damage_is_a_miss_and_is_written_anew(own_pool, bench, spoil):
    bench.open(own_pool).store(WANTED)
    master = own_pool["URL"].removeprefix("mooncake://")
    subprocess.run(
        [sys.executable, "-c", SPOIL, master, spoil, *names(own_pool)], check=True, stderr=subprocess.DEVNULL
    )
    driver = bench.open(own_pool)
    assert driver.found(range(6)) == [ALL_BLOCKS] * 6
    assert driver.load(WANTED) == EVERY_PLACE
    assert driver.found(range(6)) == [0] * 6
    assert driver.store(WANTED) == frozenset()
    assert driver.load(WANTED) == frozenset()


def test_a_chunk_that_another_engine_stored_with_other_blocks_is_found_anew(own_pool, bench):
    """It is no damage, for which this engine would not find it again."""
    first, second = bench.open(own_pool), bench.open(own_pool)
    part, whole = tier_driver.chunks([0], 0b0101), tier_driver.chunks([0])
    for stored, other in ((part, whole), (whole, part)):  # the one is larger than what is asked for, the other smaller
        assert first.store(stored) == frozenset()
        bench.comes_to(second, lambda: second.found([0]), [stored[0].held_blocks])
        assert first.store(other) == frozenset()
        assert second.load(stored) == {0}
        assert second.tier.status().counters["corrupt"] == 0
        bench.comes_to(second, lambda: second.found([0]), [other[0].held_blocks])
        assert second.load(other) == frozenset()


def test_a_full_pool_takes_no_more_and_still_answers(own_pool, bench):
    """A pool that has no memory at all is one that is full for ever."""
    driver = bench.open(own_pool)
    driver.store(WANTED[:1])
    os.kill(int(own_pool["CLIENT"]), signal.SIGKILL)

    def is_told():
        if (job := driver.submit_store(WANTED)) is not None:
            driver.finish(job)
        bench.now += LONG_S
        return "the pool has no room: give it some with segment_size" in driver.tier.status().reason

    driver.poll_until(is_told, "that there is no room")


def test_more_memory_than_there_is_is_told_with_its_setting(own_pool, bench, caplog):
    driver = bench.open(own_pool, segment_size="1024TiB")
    assert "of memory for Mooncake's pool is more than" in caplog.text

    def is_told():
        if (job := driver.submit_store(WANTED)) is not None:
            driver.finish(job)
        bench.now += LONG_S
        return "asked for 1,125,899,906,842,624 bytes of memory (segment_size)" in driver.tier.status().reason

    driver.poll_until(is_told, "why the library does not start")


@pytest.mark.parametrize("size", ["1B", "15MiB"])
def test_a_segment_that_the_library_does_not_take_is_refused(size):
    with pytest.raises(InputError, match="segment_size must be 16MiB or more, or left out, not"):
        spec_from_config({"type": "mooncake", "url": "mooncake://host:1", "segment_size": size})


def test_a_machine_that_leaves_takes_its_chunks_along(own_pool, bench):
    own = bench.open(own_pool, segment_size="64MiB")
    own.store(tier_driver.chunks([9]))
    driver = bench.open(own_pool)
    assert driver.store(WANTED) == frozenset()
    os.kill(int(own_pool["CLIENT"]), signal.SIGKILL)
    bench.comes_to(driver, lambda: driver.store(WANTED) or driver.load(WANTED), frozenset())


def test_a_master_that_dies_is_a_miss_and_comes_back(run_mooncake, own_pool, bench, tmp_path):
    driver = bench.open(own_pool)
    assert driver.store(WANTED) == frozenset()
    os.kill(int(own_pool["MASTER"]), signal.SIGKILL)
    for _ in range(3):
        assert driver.load(WANTED) == EVERY_PLACE
    status = driver.tier.status()
    assert (status.state, status.reason) == (TierState.DEGRADED, "the master is not reached")
    with run_mooncake(tmp_path / "again", own_pool["URL"].rpartition(":")[2]):
        bench.comes_to(driver, lambda: driver.store(WANTED), frozenset())
        assert driver.load(WANTED) == frozenset()
        driver.tier.close()


def test_a_master_that_hangs_costs_a_deadline_and_no_more(own_pool, bench):
    driver = bench.open(own_pool, load_seconds=0.5, find_seconds=0.5)
    bench.comes_to(driver, lambda: driver.store(WANTED), frozenset())
    master = int(own_pool["MASTER"])
    os.kill(master, signal.SIGSTOP)
    try:
        for _ in range(3):
            assert driver.load(WANTED) == EVERY_PLACE
        assert driver.tier.status().state is TierState.DEGRADED
        bench.open(own_pool, find_seconds=0.5).tier.close()
    finally:
        os.kill(master, signal.SIGCONT)
    bench.comes_to(driver, lambda: driver.store(WANTED) or driver.load(WANTED), frozenset())


def test_its_own_process_may_die(pool, bench):
    driver = bench.open(pool)
    assert driver.store(WANTED) == frozenset()
    for pid in children_of(os.getpid()):
        if "worker.py" in command_of(pid):
            os.kill(pid, signal.SIGKILL)
    bench.comes_to(driver, lambda: driver.load(WANTED), frozenset())


def test_what_is_wrong_is_said_with_the_remedy(pool, caplog, monkeypatch):
    spec_from_config({"type": "mooncake", "url": pool["URL"]}).check()
    assert caplog.text == ""
    with pytest.raises(InputError, match="leave ca_file out"):
        spec_from_config({"type": "mooncake", "url": pool["URL"], "ca_file": "/a"}).check()
    spec_from_config({"type": "mooncake", "url": "mooncake://127.0.0.1:1"}).check()
    assert "is tried again while the engine runs" in caplog.text
    with pytest.raises(InputError, match=r"keeps its pool: .* http://127\.0\.0\.1:9003/metrics/summary"):
        spec_from_config({"type": "mooncake", "url": pool["URL"]}).open_keeper()
    with urlopen(f"{pool['METRICS']}/metrics/summary", timeout=300) as summary:
        assert b"Mem Storage: " in summary.read()
    monkeypatch.setitem(sys.modules, "mooncake", None)
    with pytest.raises(InputError, match=r"pip install 'octavo\[mooncake\]'"):
        spec_from_config({"type": "mooncake", "url": pool["URL"]}).check()
