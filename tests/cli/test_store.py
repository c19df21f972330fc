"""`octavo store`: what it says of a store that engines share; what it deletes, and what it leaves."""

import json
import os
import re
import time
from contextlib import closing, contextmanager
from struct import Struct

import pytest
from xxhash import xxh3_128_digest

from octavo.chunks import name_tenant
from octavo.offload import SharedConfig
from octavo.stores import Envelopes
from octavo.testing import tier_driver
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskSpec, DiskTier, RecordCipher
from rigs.objects_suite import PATIENT, ObjectsSuite

DAY_S = 86400
KEY = bytes([0x5A]) * 32
NAMED = {"model": "org/kiel", "dtype": "bfloat16"}


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
    assert "1 other object\n" in ran.out
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
    packed[-32] += 1  # the version
    (store / path).write_bytes(packed)
    ran = octavo("store", "verify", f"file://{store}")
    assert (ran.code, ran.out.rpartition(": ")[2]) == (0, "0 damaged, 1 of a later format, which were not checked\n")


def test_gc_by_age(octavo, store):
    paths = sorted(objects(store))
    make_older(store, paths[1], 8 * DAY_S)
    make_older(store, paths[2], 6 * DAY_S)
    ran = octavo("store", "gc", f"file://{store}", "--older-than", "7d", "--dry-run")
    assert ran.out.startswith("1 object, ")
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


def test_what_is_of_the_future_has_no_age_and_goes_first_where_there_is_too_much(octavo, store):
    """The clock was wrong when it was stored. Otherwise all others would go before it, for ever."""
    paths = sorted(objects(store))
    for number, path in enumerate(paths[:2], 1):
        make_older(store, path, -number * 400 * DAY_S)
    size = sum(found.num_bytes for path, found in objects(store).items() if path in paths[1:])
    ran = octavo("store", "gc", f"file://{store}", "--older-than", "7d")
    assert re.match(r"[\d.]+ KiB are dated in the future, .*\n0 objects, 0 B deleted, of 4 objects", ran.out)
    octavo("store", "gc", f"file://{store}", "--size", f"{size}B")
    left = sorted(objects(store))
    assert len(left) == 3
    assert left[-2:] == paths[2:]
    octavo("store", "gc", f"file://{store}", "--size", f"{size - 1}B")
    assert sorted(objects(store)) == paths[2:]


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
    assert (ran.code, ran.out.split(",")[0]) == (0, "1 object")
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
        (["gc", "file:///tmp", "--older-than", "week"], "--older-than: "),
        (["gc", "file:///tmp", "--size", "much"], "--size: "),
        (["ls", "file:///tmp", "--region", "eu-central-1"], "region is for s3://: leave it out"),
        (["ls", "file:///tmp", "--endpoint", "https://a"], "endpoint is for s3://, az://: leave it out"),
        (["ls", "file:///tmp", "--ca-file", "/a"], "ca_file is for s3://, gs://, az://: leave it out"),
        (["ls", "gs://bucket", "--region", "eu-central-1"], "region is for s3://: leave it out"),
        (["ls", "gs://bucket", "--endpoint", "https://a"], "endpoint is for s3://, az://: leave it out"),
        (["ls", "redis://127.0.0.1:1", "--region", "a"], "region is for object stores: leave it out"),
        (["ls", "redis://127.0.0.1:1", "--ca-file", "/a"], "ca_file is for TLS: give rediss://host:port/db"),
        (["ls", "s3://bucket/p?region=eu"], "url s3://bucket/p: nothing may follow it after ? or #"),
        (["ls", "gs://bucket/p#a"], "url gs://bucket/p: nothing may follow it after ? or #"),
        (["ls", "s3://bucket", "--region", ""], "region must be a region such as eu-central-1, not ''"),
        (["ls", "s3://bucket", "--endpoint", ""], "endpoint must be https://host:port, not ''"),
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


def warm(octavo, store, disk, *options):
    namespace = ("--namespace", tier_driver.NAMESPACE.hex())
    return octavo("store", "warm", f"file://{store}", "--disk", disk, "--size", "4MiB", *namespace, *options)


@contextmanager
def warmed(disk, cipher=None):
    config = DiskConfig(path=disk, size_bytes=4 << 20)
    context = TierContext(namespace=tier_driver.NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
    with closing(DiskTier(config, context, DiskIO(), cipher)) as tier:
        yield tier_driver.TierDriver(tier, lambda tier: tier.wait(1.0))


def test_warm_copies_a_namespace_into_a_disk(octavo, store, tmp_path):
    disk = tmp_path / "disk"
    ran = warm(octavo, store, disk, "--dry-run")
    assert ran.out.startswith("3 objects, ")
    assert not disk.exists()
    ran = warm(octavo, store, disk)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 objects, ")
    with warmed(disk) as driver:
        wanted = tier_driver.chunks([0, 100, 200])
        assert driver.found([0, 1, 100, 200]) == [-1, 0, -1, -1]
        assert driver.load(wanted) == frozenset()
    ran = warm(octavo, store, disk)
    assert ran.out.startswith("0 objects, 0 B copied; 3 objects, ")


def test_warm_goes_on_with_what_is_missing(octavo, store, tmp_path):
    with warmed(tmp_path) as driver:
        assert driver.store(tier_driver.chunks([100])) == frozenset()
    ran = warm(octavo, store, tmp_path)
    assert ran.out.startswith("2 objects, ")
    assert "; 1 object, " in ran.out


def test_warm_takes_the_newest_that_fit_and_no_disk_gives_one_of_them_up(octavo, store, tmp_path):
    with ObjectsSuite().driver(store) as driver:
        for number in range(1, 400):
            if number not in (100, 200):
                driver.store(tier_driver.chunks([number]))
    for path in objects(store):
        make_older(store, path, 60)
    (newest,) = objects_with(store, 5)
    make_older(store, newest, 0)
    (ahead,) = objects_with(store, 6)  # of a clock that was wrong
    make_older(store, ahead, -400 * DAY_S)
    disk = tmp_path / "disk"
    ran = warm(octavo, store, disk)
    copied = int(ran.out.split()[0])
    assert 100 < copied < 400
    with warmed(disk) as driver:
        assert driver.tier.status().num_chunks == copied
        assert driver.store(tier_driver.chunks(range(500, 560))) == frozenset()  # for which older ones are given up
        assert driver.tier.status().num_chunks < copied + 60
        assert driver.found([5, 6]) == [-1, 0]


def objects_with(store, number):
    return {path for path in objects(store) if tier_driver.key(number) in (store / path).read_bytes()}


def test_warm_copies_the_newest_of_two_with_one_key_and_tells_whose_it_is(octavo, store, tmp_path):
    (older,) = objects_with(store, 100)
    make_older(store, older, 60)
    with ObjectsSuite().driver(store) as driver:
        driver.store(tier_driver.chunks([100], 0b0101))
    (newer,) = objects_with(store, 100) - {older}
    move_to_tenant(store, newer, "a tenant")
    for told in ("3 objects, ", "0 objects, 0 B copied; 3 objects, "):
        assert warm(octavo, store, tmp_path / "disk").out.startswith(told)
        with warmed(tmp_path / "disk") as driver:
            assert driver.found([100]) == [0b0101]
            owned = driver.tier.owned_by([name_tenant("a tenant")])
            assert [key for key, *_ in owned] == [tier_driver.key(100)]


def test_warm_encrypts_with_the_key_of_the_disk(octavo, store, tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text("5a" * 32)
    assert warm(octavo, store, tmp_path / "disk", "--disk-key-file", key_file).code == 0
    with warmed(tmp_path / "disk") as driver:
        assert driver.found([0]) == [0]
    with warmed(tmp_path / "disk", RecordCipher(bytes([0x5A]) * 32)) as driver:
        assert driver.load(tier_driver.chunks([0, 100, 200])) == frozenset()


def test_warm_leaves_out_what_is_damaged(octavo, store, tmp_path):
    (path, other, *_) = sorted(path for path in objects(store) if f"/{tier_driver.NAMESPACE.hex()}/" in path)
    packed = (store / path).read_bytes()
    (store / path).write_bytes(packed[:300] + bytes([packed[300] ^ 1]) + packed[301:])
    (store / other).write_bytes((store / other).read_bytes()[:-1])
    ran = warm(octavo, store, tmp_path / "disk")
    assert ran.code == 1
    assert ran.out.startswith("1 object, ")
    assert "; 2 objects, " in ran.out
    with warmed(tmp_path / "disk") as driver:
        assert driver.tier.status().num_chunks == 1


def test_warm_says_what_it_cannot_do(octavo, store, tmp_path):
    disk = ("--disk", tmp_path / "disk", "--size", "4MiB")
    ran = octavo("store", "warm", f"file://{store}", *disk)
    assert ran.code == 2
    both = f"{tier_driver.NAMESPACE.hex()} (model unknown) or {tier_driver.OTHER_NAMESPACE.hex()}"
    assert f"--namespace {both} (model unknown)" in ran.err.replace("\n", " ")
    ran = octavo("store", "warm", f"file://{store}", *disk, "--namespace", "ff")
    assert "no namespace whose digest begins with 'ff'" in ran.err.replace("\n", " ")
    ran = octavo("store", "warm", "redis://127.0.0.1:1", *disk)
    assert "give the url of an object store" in ran.err.replace("\n", " ")
    with warmed(tmp_path / "disk"):
        ran = warm(octavo, store, tmp_path / "disk")
        assert ran.code == 2
        assert "is in use by" in ran.err.replace("\n", " ")


@pytest.fixture
def encrypted(tmp_path):
    return fill_encrypted(tmp_path / "store", tmp_path / "store-key")


def fill_encrypted(store, key_file, identity=NAMED):
    """A store, the key of which it is encrypted with, and a disk that is to be warmed: arguments of `store warm`."""
    key_file.write_text(KEY.hex())
    spec = SharedConfig.from_mapping({"url": f"file://{store}", "key_file": str(key_file), **PATIENT}).spec
    context = TierContext(
        namespace=tier_driver.NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES, identity=identity
    )
    with closing(spec.build(context)) as tier:
        driver = tier_driver.TierDriver(tier, lambda tier: tier.flush(0.001))
        for number in (0, 100):
            assert driver.store(tier_driver.chunks([number])) == frozenset()
    return ("store", "warm", f"file://{store}", "--disk", store.parent / "disk", "--size", "4MiB")


def test_warm_opens_what_is_encrypted(octavo, tmp_path, encrypted):
    ran = octavo(*encrypted, "--key-file", tmp_path / "store-key")
    assert (ran.code, ran.err) == (0, "")
    with warmed(tmp_path / "disk") as driver:
        assert driver.load(tier_driver.chunks([0, 100])) == frozenset()
    ran = octavo(*encrypted, "--key-file", tmp_path / "store-key")
    assert "0 objects, 0 B copied" in ran.out


@pytest.mark.parametrize("disk_key", [None, KEY.hex()])
def test_what_warm_has_copied_is_described_in_the_folder(octavo, tmp_path, encrypted, disk_key):
    flags = ["--key-file", tmp_path / "store-key"]
    if disk_key:
        (tmp_path / "disk-key").write_text(disk_key)
        flags += ["--disk-key-file", tmp_path / "disk-key"]
    assert octavo(*encrypted, *flags).code == 0
    assert "org/kiel" in octavo("cache", "ls", tmp_path / "disk").out
    (found,) = json.loads(octavo("cache", "ls", tmp_path / "disk", "--json").out)["namespaces"]
    assert found["description"]["model"] == "org/kiel"
    assert found["description"]["encryption"].startswith("key " if disk_key else "none")
    assert "namespace" not in found["description"]


def test_an_engine_after_warm_is_told_no_part_that_a_store_does_not_tell(octavo, tmp_path, encrypted):
    assert octavo(*encrypted, "--key-file", tmp_path / "store-key").code == 0

    def cold_start(identity, namespace=tier_driver.OTHER_NAMESPACE):
        spec = DiskSpec(DiskConfig(path=tmp_path / "disk", size_bytes=4 << 20))
        context = TierContext(
            namespace=namespace, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES, identity=NAMED | identity
        )
        with closing(spec.build(context)) as tier:
            return tier.cold_start

    assert cold_start({"hash_seed": "a", "dtype": "float32"}, tier_driver.NAMESPACE) == ""
    (tmp_path / "disk" / f"namespace-{tier_driver.NAMESPACE.hex()}.json").unlink()
    assert octavo(*encrypted, "--key-file", tmp_path / "store-key").code == 0
    assert "dtype was 'bfloat16' and is 'float32'" in cold_start({"hash_seed": "a", "dtype": "float32"})


def test_warm_leaves_out_what_others_have_forged(octavo, tmp_path, encrypted):
    """Whoever may write to the store can make names and checksums right, but no tag."""
    store = tmp_path / "store"
    (path,) = objects_with(store, 100)
    packed = memoryview(bytearray((store / path).read_bytes()))
    (num_bytes,) = Struct("<Q").unpack_from(packed, 24)
    envelope = packed[: Envelopes(tier_driver.NAMESPACE, RecordCipher(KEY)).size(num_bytes)]
    envelope[-1] ^= 1
    envelope[160:176] = xxh3_128_digest(xxh3_128_digest(envelope[:160]) + xxh3_128_digest(envelope[176:]))
    (store / path).write_bytes(packed)
    ran = octavo(*encrypted, "--key-file", tmp_path / "store-key")
    assert ran.code == 1
    assert ran.out.endswith(" damaged, gone or of a later format; of 2\n")
    with warmed(tmp_path / "disk") as driver:
        assert driver.found([0, 100]) == [-1, 0]


@pytest.mark.parametrize("flags", [(), ("--key-file", "other-key")])
def test_warm_refuses_what_its_key_does_not_open(octavo, tmp_path, encrypted, flags):
    (tmp_path / "other-key").write_text("a5" * 32)
    ran = octavo(*encrypted, *(tmp_path / flag if flag == "other-key" else flag for flag in flags))
    assert ran.code == 2
    assert "is encrypted, and no description that the key opens tells" in ran.err.replace("\n", " ")


def test_warm_refuses_what_no_description_tells_of(octavo, tmp_path):
    encrypted = fill_encrypted(tmp_path / "store", tmp_path / "store-key", {})
    ran = octavo(*encrypted, "--key-file", tmp_path / "store-key")
    assert ran.code == 2
    assert "is encrypted, and no description that the key opens tells" in ran.err.replace("\n", " ")
