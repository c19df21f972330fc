"""The object store tier over a folder: the contract of a tier, and the state machine; and what damage does."""

from itertools import count

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.testing import tier_driver
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


def test_equal_work_of_two_engines_is_stored_once(tmp_path):
    suite, wanted = ObjectsSuite(), tier_driver.chunks(range(6))
    with suite.driver(tmp_path) as first, suite.driver(tmp_path) as second:
        assert first.store(wanted) == second.store(wanted) == frozenset()
        assert len(objects_in(tmp_path)) == 1
        assert first.load(wanted) == second.load(wanted) == frozenset()
