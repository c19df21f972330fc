"""A reset reaches every namespace of the model in the folder: other codecs, other keys; and none of another model."""

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.testing import tier_driver
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskIO, DiskSpec
from octavo.tiers.disk.cipher import KEY_VARIABLE
from octavo.tiers.zstd import ZstdSpec

NAMESPACE, SAME_MODEL, OTHER_MODEL = bytes(range(16)), b"f" * 16, b"g" * 16
KEYS = {"plain": None, "key": "11" * 32, "other key": "22" * 32}
WANTED = tier_driver.chunks(range(3))


@pytest.fixture
def open_tier(tmp_path, monkeypatch):
    opened = []

    def open_as(key, *, is_zstd=False, family=SAME_MODEL, namespace=NAMESPACE):
        if KEYS[key] is None:
            monkeypatch.delenv(KEY_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(KEY_VARIABLE, KEYS[key])
        disk = {"path": str(tmp_path / "tier"), "size": "4MiB", "segment_size": "64KiB"}
        spec = ZstdSpec.from_config({"tier": {"type": "disk", **disk}}) if is_zstd else DiskSpec.from_config(disk)
        context = TierContext(namespace=namespace, family=family, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
        tier = spec.build(context)
        opened.append(tier)
        return tier_driver.TierDriver(tier, lambda tier: getattr(tier, "_inner", tier).wait(0.2))

    yield open_as
    for tier in opened:
        tier.close()


def test_a_reset_reaches_every_namespace_of_the_model(open_tier, tmp_path):
    ways = [("plain", False), ("plain", True), ("key", False), ("key", True), ("other key", False)]
    for key, is_zstd in ways:
        driver = open_tier(key, is_zstd=is_zstd)
        assert driver.store(WANTED) == frozenset()
        driver.tier.close()
    other = open_tier("plain", family=OTHER_MODEL, namespace=bytes(16))
    other.store(WANTED)
    other.tier.close()
    for key, is_zstd in ways:  # each of them is there
        driver = open_tier(key, is_zstd=is_zstd)
        assert driver.found(range(3)) == [ALL_BLOCKS] * 3
        driver.tier.close()
    driver = open_tier("key")
    driver.tier.reset()
    driver.poll_until(driver.tier.is_reset_durable, "the reset to be durable")
    driver.poll_until(lambda: not list((tmp_path / "tier").glob("reset-*")), "all files to be deleted")
    driver.tier.close()
    for key, is_zstd in ways:
        driver = open_tier(key, is_zstd=is_zstd)
        assert driver.found(range(3)) == [0] * 3
        driver.tier.close()
    assert open_tier("plain", family=OTHER_MODEL, namespace=bytes(16)).found(range(3)) == [ALL_BLOCKS] * 3


def test_a_reset_that_was_cut_off_reaches_them_too(open_tier, monkeypatch):
    """The marker is durable, and no file was deleted."""
    for key in ("plain", "key"):
        driver = open_tier(key)
        driver.store(WANTED)
        driver.tier.close()
    with monkeypatch.context() as patched:
        patched.setattr(DiskIO, "unlink", _cannot)
        driver = open_tier("plain")
        driver.tier.reset()
        driver.poll_until(driver.tier.is_reset_durable, "the reset to be durable")
        driver.tier.close()
    driver = open_tier("key")
    assert driver.found(range(3)) == [0] * 3
    driver.tier.close()
    assert open_tier("plain").found(range(3)) == [0] * 3


def _cannot(io, name):
    raise OSError(5, "as if it was killed")
