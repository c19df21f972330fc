"""The object store tier over a folder: the contract of a tier, and the state machine; and what damage does."""

import asyncio
import shutil
from itertools import count

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.stores.objects.epochs import Epochs
from octavo.stores.objects.layout import pack_object, parse_tail
from octavo.testing import tier_driver
from octavo.tiers import Mount, TierState
from rigs.objects_suite import ObjectsSuite


class TestObjectsInAFolder(ObjectsSuite):
    machine_examples = 12


class TestEncryptedObjects(ObjectsSuite):
    machine_examples = 3

    @pytest.fixture(autouse=True)
    def give_key(self, tmp_path_factory):
        self.key_file = tmp_path_factory.mktemp("key") / "key"
        self.key_file.write_text("5a" * 32)

    def config(self, folder):
        return {**super().config(folder), "key_file": str(self.key_file)}

    def test_another_key_finds_nothing(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks(range(6)))
        for path in objects_in(tmp_path):
            assert tier_driver.Chunk(tier_driver.key(0)).content[:64] not in path.read_bytes()
        self.key_file.write_text("a5" * 32)
        with self.driver(tmp_path) as driver:
            assert not any(driver.found(range(6)))


def objects_in(folder):
    return [path for path in folder.rglob("*") if path.is_file() and "epochs" not in path.parts]


def test_damage_is_a_miss_and_is_written_anew(tmp_path):
    suite, wanted = ObjectsSuite(), tier_driver.chunks(range(12))
    with suite.driver(tmp_path) as driver:
        assert driver.store(wanted) == frozenset()
    (path,) = objects_in(tmp_path)
    whole = path.read_bytes()
    for position in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with suite.driver(tmp_path) as driver:
            there = [number for number, mask in zip(count(), driver.found(range(12)), strict=False) if mask]
            failed = driver.load(tier_driver.chunks(there))  # which compares every byte of what did not fail
            assert len(failed) <= 1
            assert driver.store(wanted) == frozenset()
            assert driver.load(wanted) == frozenset()
        assert path.stat().st_size == len(whole)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.999])
def test_an_object_that_was_cut_is_not_found(tmp_path, kept):
    suite, wanted = ObjectsSuite(), tier_driver.chunks(range(12))
    with suite.driver(tmp_path) as driver:
        driver.store(wanted)
    (path,) = objects_in(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with suite.driver(tmp_path) as driver:
        assert not any(driver.found(range(12)))
        assert driver.store(wanted) == frozenset()
        assert driver.load(wanted) == frozenset()


def test_an_object_that_goes_between_index_and_read_is_a_miss(tmp_path):
    suite, wanted = ObjectsSuite(), tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as driver:
        driver.store(wanted)
        for path in objects_in(tmp_path):
            path.unlink()
        assert driver.found(range(6)) == [ALL_BLOCKS] * 6
        assert driver.load(wanted) == set(range(6))
        assert driver.found(range(6)) == [0] * 6


def test_an_answer_becomes_known_with_a_poll_alone(tmp_path):
    """Else who looks a chunk up, and then hears that no answer is under way, takes it for missing."""
    suite = ObjectsSuite()
    with suite.driver(tmp_path) as driver:
        driver.store(tier_driver.chunks(range(6)))
    with suite.driver(tmp_path) as driver:
        tier, keys = driver.tier, [tier_driver.key(number) for number in range(6)]
        assert tier.ask(tier_driver.ALL_KEYS)
        while not tier._ended:
            suite.await_progress(tier)
        assert tier.lookup(keys) == [0] * 6
        assert tier.ask(tier_driver.ALL_KEYS)
        driver.poll()
        assert tier.lookup(keys) == [ALL_BLOCKS] * 6
        assert not tier.ask(tier_driver.ALL_KEYS)


def test_an_object_of_the_future_hides_no_other(tmp_path):
    """The clock of its writer was wrong. Otherwise half a chunk would hide the whole one, for years."""
    suite = ObjectsSuite()
    with suite.driver(tmp_path) as driver:
        driver.store(tier_driver.chunks([0], 0b0101))
    (path,) = objects_in(tmp_path)
    packed = memoryview(path.read_bytes())
    index = parse_tail(packed, len(packed), tier_driver.NAMESPACE)
    envelopes = [
        (entry.key, entry.held_blocks, entry.num_bytes, packed[entry.offset :][: entry.length])
        for entry in index.chunks
    ]
    path.write_bytes(b"".join(pack_object(tier_driver.NAMESPACE, index.written_ns + 10**18, envelopes)))
    with suite.driver(tmp_path) as driver:
        assert driver.found([0]) == [0b0101]
        assert driver.store(tier_driver.chunks([0])) == frozenset()
    with suite.driver(tmp_path) as driver:
        assert driver.found([0]) == [ALL_BLOCKS]


def test_equal_work_of_two_engines_is_stored_once(tmp_path):
    suite, wanted = ObjectsSuite(), tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as first, suite.driver(tmp_path) as second:
        assert first.store(wanted) == second.store(wanted) == frozenset()
        assert len(objects_in(tmp_path)) == 1
        assert first.load(wanted) == second.load(wanted) == frozenset()


class TestAMarkThatALifecycleRuleHasDeleted:
    """The mark of the first reset. Its objects are younger, and stay."""

    @pytest.fixture
    def driver(self, tmp_path):
        with ObjectsSuite().driver(tmp_path) as driver:
            reset(driver)
            shutil.rmtree(next(tmp_path.rglob("epochs")))
            yield driver

    def test_engines_that_start_share_with_those_that_run(self, driver, tmp_path):
        assert driver.store(tier_driver.chunks(range(6))) == frozenset()
        with ObjectsSuite().driver(tmp_path) as other:
            assert other.found(range(6)) == [ALL_BLOCKS] * 6
        assert [path.name for path in tmp_path.rglob("epochs/*")] == ["00000001"], "it is there again"

    def test_the_next_reset_holds_for_what_was_stored_meanwhile(self, driver, tmp_path):
        driver.store(tier_driver.chunks(range(6)))
        with ObjectsSuite().driver(tmp_path) as other:
            reset(other)
            assert other.found(range(6)) == [0] * 6


def test_an_engine_that_looks_again_makes_a_missing_mark_again(tmp_path):
    obstore, now = pytest.importorskip("obstore"), [1.0]
    epochs = Epochs(obstore.store.LocalStore(tmp_path), "family", clock=lambda: now[0])

    async def look_later():
        now[0] += 60
        return await epochs.refresh()

    async def lose_the_mark():
        await epochs.begin_next()
        await look_later()
        (tmp_path / "family/epochs/00000001").unlink()
        return await look_later()

    assert asyncio.run(lose_the_mark()) == 1
    assert (tmp_path / "family/epochs/00000001").exists()


@pytest.mark.parametrize("name", ["²", "٣", "9" * 200, "-1", "1_000", "notes"])
@pytest.mark.parametrize("place", ["family/epochs/{}", "family/{}/object"])
def test_what_others_put_into_a_family_is_no_epoch(tmp_path, place, name):
    obstore = pytest.importorskip("obstore")
    path = tmp_path / place.format(name)
    path.parent.mkdir(parents=True)
    path.touch()
    epochs = Epochs(obstore.store.LocalStore(tmp_path), "family")

    async def look_and_reset():
        seen = await epochs.refresh()
        await epochs.begin_next()
        return seen, epochs.current

    assert asyncio.run(look_and_reset()) == (0, 1)


def reset(driver):
    driver.tier.reset()
    driver.poll_until(driver.tier.is_reset_durable, "the reset")


@pytest.mark.parametrize("below", [".", "shared"], ids=["its root", "a folder of it"])
def test_nothing_is_written_below_a_file_system_that_is_not_mounted(tmp_path, monkeypatch, below):
    """Nothing holds the folder open, so that a system lets it be unmounted under a running engine."""
    mount, elsewhere, mounted = tmp_path / "mount", tmp_path / "elsewhere", [True]
    mount.mkdir()

    def device_of(path):
        return -1 if mounted and path.is_relative_to(mount) else path.stat().st_dev

    monkeypatch.setattr("octavo.stores.objects.folder.Mount", lambda folder: Mount(folder, device_of))
    wanted = tier_driver.chunks(range(6))
    with ObjectsSuite().driver(mount / below) as driver:
        assert driver.store(wanted) == frozenset()
        mount.rename(elsewhere)
        mount.mkdir()
        mounted.clear()
        assert driver.load(wanted) == set(range(6))
        assert driver.store(tier_driver.chunks([6])) == {0}
        driver.tier.reset()
        driver.poll_until(lambda: driver.tier.status().state is not TierState.OK, "the reset to fail")
        assert driver.tier.status().reason == "a reset did not reach it: its file system is not mounted"
        assert list(mount.iterdir()) == []
        mount.rmdir()
        elsewhere.rename(mount)
        mounted.append(True)
        driver.poll_until(driver.tier.is_reset_durable, "the reset")
        assert driver.store(wanted) == frozenset()
        assert driver.load(wanted) == frozenset()
