"""`octavo store`: what it says of a store that engines share; what it deletes, and what it leaves."""

import json
import os
import time

import pytest

from octavo.chunks import name_tenant
from octavo.offload import SharedConfig
from octavo.testing import tier_driver
from rigs.objects_suite import ObjectsSuite

DAY_S = 86400


@pytest.fixture
def store(tmp_path):
    """Four objects in an hour each, the last ones of another namespace; then what is not Octavo's."""
    suite, folder = ObjectsSuite(), tmp_path / "store"
    with suite.driver(folder) as driver:
        for number in (0, 100, 200):
            driver.store(tier_driver.chunks([number]))
    with suite.driver(folder, tier_driver.OTHER_NAMESPACE) as driver:
        driver.store(tier_driver.chunks([0]))
    (folder / "notes.txt").write_text("somebody else's")
    return folder


def objects(folder):
    keeper = SharedConfig(url=f"file://{folder}").spec.open_keeper()
    return {found.name: found for found in keeper.entries() if found is not None}


def make_older(folder, path, seconds):
    then = int(time.time()) - seconds
    os.utime(folder / path, (then, then))


def move_to_tenant(folder, path, salt):
    target = folder / path.replace("/shared/", f"/{name_tenant(salt).hex()}/")
    target.parent.mkdir(parents=True)
    (folder / path).rename(target)
    return str(target.relative_to(folder))


def test_ls_and_stat(octavo, store):
    ran = octavo("store", "ls", f"file://{store}")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split("  ")[0] for line in ran.out.splitlines()] == sorted(
        [tier_driver.NAMESPACE.hex(), tier_driver.OTHER_NAMESPACE.hex()]
    )
    (first, second) = json.loads(octavo("store", "ls", f"file://{store}", "--json").out)
    assert (first["count"], second["count"], first["epoch"]) == (3, 1, 0)
    ran = octavo("store", "stat", f"file://{store}")
    assert ran.out.startswith("4 objects, ")
    assert "1 other objects" in ran.out
    assert "without a salt: 4 objects" in ran.out
    assert json.loads(octavo("store", "stat", f"file://{store}", "--json").out)["others"] == 1


def test_verify(octavo, store):
    ran = octavo("store", "verify", f"file://{store}")
    assert (ran.code, ran.out.rpartition(": ")[2]) == (0, "0 damaged\n")
    (path, *_) = sorted(objects(store))
    packed = bytearray((store / path).read_bytes())
    for index, says in ((300, "chunk 0 of 1 is damaged"), (len(packed) - 50, "its index is damaged")):
        (store / path).write_bytes(packed[:index] + bytes([packed[index] ^ 1]) + packed[index + 1 :])
        ran = octavo("store", "verify", f"file://{store}")
        assert ran.code == 1
        assert ran.out.splitlines()[0] == f"{path}: {says}"


def test_gc_by_age(octavo, store):
    paths = sorted(objects(store))
    make_older(store, paths[1], 8 * DAY_S)
    make_older(store, paths[2], 6 * DAY_S)
    ran = octavo("store", "gc", f"file://{store}", "--older-than", "7d", "--dry-run")
    assert ran.out.startswith("1 objects, ")
    assert "would be deleted, of 4 objects" in ran.out
    assert sorted(objects(store)) == paths
    assert octavo("store", "gc", f"file://{store}", "--older-than", "7d").code == 0
    assert sorted(objects(store)) == [paths[0], *paths[2:]]
    assert (store / "notes.txt").exists()


def test_gc_by_size_takes_the_oldest(octavo, store):
    paths = sorted(objects(store))
    for age, path in enumerate(paths):
        make_older(store, path, 3600 * (age + 1))
    kept = sum(objects(store)[path].num_bytes for path in paths[:2])
    assert octavo("store", "gc", f"file://{store}", "--size", f"{kept}B").code == 0
    assert sorted(objects(store)) == paths[:2]
    assert octavo("store", "gc", f"file://{store}", "--size", f"{kept}B").out.startswith("0 objects")


def test_gc_of_one_second_takes_no_more_than_it_must(octavo, store):
    paths = sorted(objects(store))
    for path in paths:
        make_older(store, path, 3600)
    total = sum(found.num_bytes for found in objects(store).values())
    assert octavo("store", "gc", f"file://{store}", "--size", f"{total - 1}B").code == 0
    assert len(objects(store)) == 3


def test_gc_takes_what_a_reset_left_behind(octavo, store):
    suite = ObjectsSuite()
    with suite.driver(store) as driver:
        driver.tier.reset()
        driver.poll_until(driver.tier.is_reset_durable, "the reset")
        driver.store(tier_driver.chunks([1]))
    assert "left behind by a reset" in octavo("store", "ls", f"file://{store}").out
    assert octavo("store", "gc", f"file://{store}").out.startswith("3 objects")
    assert {(found.namespace, found.epoch) for found in objects(store).values()} == {
        (tier_driver.NAMESPACE.hex(), 1),
        (tier_driver.OTHER_NAMESPACE.hex(), 0),
    }
    with suite.driver(store) as driver:
        assert [bool(mask) for mask in driver.found([0, 1])] == [False, True]


def test_gc_beside_an_engine_is_misses(octavo, store):
    suite, wanted = ObjectsSuite(), tier_driver.chunks([0])
    with suite.driver(store) as driver:
        assert all(driver.found([0]))
        assert octavo("store", "gc", f"file://{store}", "--size", "1B").code == 0
        assert driver.load(wanted) == {0}
        assert driver.store(wanted) == driver.load(wanted) == frozenset()


def test_delete_of_a_tenant(octavo, store):
    paths = sorted(objects(store))
    moved = move_to_tenant(store, paths[0], "alice")
    move_to_tenant(store, paths[1], "bob")
    ran = octavo("store", "delete", f"file://{store}", "--salt", "alice", "--yes")
    assert (ran.code, ran.out.split(",")[0]) == (0, "1 objects")
    assert len(objects(store)) == 3
    assert moved not in objects(store)


def test_delete_of_a_namespace(octavo, store):
    octavo("store", "delete", f"file://{store}", "--namespace", tier_driver.OTHER_NAMESPACE.hex()[:4], "--yes")
    assert {found.namespace for found in objects(store).values()} == {tier_driver.NAMESPACE.hex()}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ls", "bucket"], "url must be s3://bucket/prefix"),
        (
            ["ls", "s3://bk/prefix"],
            "(the name of a bucket or container has at least 3 characters), not 's3://bk/prefix'",
        ),
        (["delete", "file:///tmp"], "say which objects: --salt or --namespace"),
        (["delete", "file:///tmp", "--namespace", "xyz"], "--namespace: 'xyz' must be hexadecimal digits"),
        (["gc", "file:///tmp", "--older-than", "week"], "--older-than: "),
        (["gc", "file:///tmp", "--size", "much"], "--size: "),
    ],
)
def test_bad_input(octavo, arguments, says):
    ran = octavo("store", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_folder_that_is_not_there_is_not_made(octavo, tmp_path):
    ran = octavo("store", "ls", f"file://{tmp_path}/none")
    assert (ran.code, ran.err) == (2, f"octavo: {tmp_path}/none: there is no such folder\n")
    assert not (tmp_path / "none").exists()
