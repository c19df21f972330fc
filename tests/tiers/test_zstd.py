"""The zstd tier: the contract's suite over a disk, and its codec."""

import struct
import sys
from threading import Event

import numpy as np
import pytest
import zstandard
from hypothesis import given, strategies as st

from octavo.chunks import ALL_BLOCKS, make_offload_key
from octavo.errors import InputError
from octavo.ids import BlockHash
from octavo.testing import NAMESPACE, TierSuite, tier_driver
from octavo.tiers.base import TierContext
from octavo.tiers.registry import spec_from_config
from octavo.tiers.zstd import ZstdPlanes

KEYS = [make_offload_key(BlockHash(b"h" * 16), group_idx) for group_idx in range(3)]


def disk_config(folder, size=1 << 20):
    return {"type": "disk", "path": str(folder / "tier"), "size": size, "segment_size": 40_960, "read_threads": 2}


def open_zstd(folder, namespace=NAMESPACE, *, size=1 << 20, **settings):
    spec = spec_from_config({"type": "zstd", **settings, "tier": disk_config(folder, size)})
    return spec.build(TierContext(namespace=namespace, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES))


DISK = {"type": "disk", "path": "/nvme/octavo", "size": "1MiB"}


class TestZstdTier(TierSuite):
    is_durable = True

    def open_tier(self, folder, namespace):
        return open_zstd(folder, namespace, size=self.budget_bytes)

    def await_progress(self, tier):
        tier.flush(1.0)

    def check_invariants(self, tier):
        tier._inner.check_invariants()

    def test_what_was_stored_is_found_and_loaded(self, tmp_path):
        """Otherwise than the suite has it: stored lengths are those of encoded chunks."""
        with self.driver(tmp_path) as driver:
            wanted = [*tier_driver.chunks(range(3)), *tier_driver.chunks([3], 0b0101)]
            assert driver.store(wanted) == frozenset()
            assert driver.found(range(5)) == [-1, -1, -1, 0b0101, 0]
            assert driver.load(wanted[::-1]) == frozenset()
            assert driver.tier.stored_bytes([chunk.key for chunk in wanted] + [tier_driver.key(9)])[-1] == 0
            work = driver.tier.status().work
            assert work["raw_bytes"] == sum(len(chunk.content) for chunk in wanted)
            assert 0 < work["encoded_bytes"] <= work["raw_bytes"] + len(wanted)

    def test_a_chunk_that_cannot_be_decoded_fails(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks([0]))
            driver.tier._codec.decode = lambda *_: None
            assert driver.load(tier_driver.chunks([0])) == {0}

    def test_a_reset_reaches_loads_in_the_thread(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks([0]))
            load = driver.submit_load(tier_driver.chunks([0]))
            driver.tier.reset()
            assert driver.finish(load) == {0}

    def test_what_is_removed_while_it_is_encoded_does_not_land(self, tmp_path):
        with self.driver(tmp_path) as driver:
            store = driver.submit_store(tier_driver.chunks(range(3)))
            driver.tier.remove([tier_driver.key(1)])
            assert driver.finish(store) == {1}
            assert driver.found(range(3)) == [ALL_BLOCKS, 0, ALL_BLOCKS]
            assert driver.store(tier_driver.chunks([1])) == frozenset()  # a newer one is another matter
            assert driver.found([1]) == [ALL_BLOCKS]

    def test_after_closing_it_refuses(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.tier.close()
            assert driver.submit_store(tier_driver.chunks([0])) is None
            assert driver.submit_load(tier_driver.chunks([0])) is None


class TestAnotherConfiguration:
    """What a folder holds is read as it was written, or is a miss."""

    WANTED = tier_driver.chunks(range(4))

    def test_other_settings_read_what_is_there(self, tmp_path):
        for number, settings in enumerate(
            ({"element_bytes": 2}, {"element_bytes": 4}, {"element_bytes": [1, 2]}, {"level": 9})
        ):
            driver = tier_driver.TierDriver(open_zstd(tmp_path, **settings), lambda tier: tier.flush(1.0))
            assert driver.store([self.WANTED[number]]) == frozenset()
            assert driver.load(self.WANTED[: number + 1]) == frozenset()
            driver.tier.close()

    def test_with_and_without_it_a_folder_holds_two_namespaces(self, tmp_path):
        plain = spec_from_config(disk_config(tmp_path))
        context = TierContext(namespace=NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
        for expected in (0, ALL_BLOCKS):
            for build in (lambda: open_zstd(tmp_path), lambda: plain.build(context)):
                driver = tier_driver.TierDriver(build(), lambda tier: tier.flush(1.0))
                assert driver.found(range(4)) == [expected] * 4
                driver.load(self.WANTED)  # checks the bytes of those that did not fail
                driver.store(self.WANTED)
                driver.tier.close()


class TestZstd:
    @given(data=st.binary(max_size=500), width=st.sampled_from([1, 2, 4]), repeats=st.integers(1, 9))
    def test_lossless(self, data, width, repeats):
        codec = ZstdPlanes((width,), 1)
        data = np.frombuffer(data * repeats, dtype=np.uint8)
        encoded = codec.encode(KEYS[0], data)
        assert len(encoded) <= len(data) + 1
        assert codec.decode(memoryview(encoded), len(data)).tobytes() == data.tobytes()

    def test_planes_make_floats_smaller(self):
        values = np.random.default_rng(0).normal(size=1 << 16).astype(np.float32)
        bf16 = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        planes, in_order = (len(ZstdPlanes((width,), 1).encode(KEYS[0], bf16)) for width in (2, 1))
        assert planes < 0.8 * len(bf16)
        assert planes < in_order

    @given(data=st.binary(max_size=200), num_bytes=st.integers(0, 300))
    def test_junk_is_none_or_of_the_right_length(self, data, num_bytes):
        codec = ZstdPlanes((2,), 1)
        for head in (b"", b"\0", b"\1", b"\2", b"\3", b"\1\x28\xb5\x2f\xfd"):
            found = codec.decode(memoryview(head + data), num_bytes)
            assert found is None or len(found) == num_bytes

    def test_a_bomb_is_not_unpacked(self):
        bomb = b"\1" + zstandard.ZstdCompressor().compress(bytes(1 << 24))
        assert ZstdPlanes((1,), 1).decode(memoryview(bomb), 1000) is None
        claims = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
        assert zstandard.get_frame_parameters(bytes(claims)).content_size == 100_000
        position = claims.index(struct.pack("<I", 100_000)[:4])
        claims[position : position + 4] = struct.pack("<I", 1000)
        assert ZstdPlanes((1,), 1).decode(memoryview(b"\1" + claims), 1000) is None

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(InputError, match=r"octavo\[zstd\]"):
            ZstdPlanes((2,), 1)


class TestSpec:
    def test_its_medium_is_that_of_the_tier_it_lies_upon(self, tmp_path):
        tier = open_zstd(tmp_path)
        assert tier.medium == "disk"
        tier.close()

    @pytest.mark.parametrize(
        ("config", "named"),
        [
            ({"tier": None}, "a tier is a mapping with a type"),
            ({"level": 23}, "level must be a whole number from 1 to 22"),
            ({"element_bytes": [2, 3]}, r"element_bytes\[1\] must be 1, 2 or 4, not 3"),
            ({"element_bytes": []}, "element_bytes must be 1, 2 or 4 or a list of them"),
            ({"element_bytes": True}, "element_bytes must be 1, 2 or 4 or a list of them, not true"),
            ({"lossy": "int8", "tier": DISK}, "unknown setting 'lossy'"),
            ({"tier": {"type": "zstd", "tier": DISK}}, "cannot lie upon another one"),
        ],
    )
    def test_wrong_settings_are_named(self, config, named):
        with pytest.raises(InputError, match=named):
            spec_from_config({"type": "zstd", "tier": DISK, **config})

    def test_the_tier_below_is_asked_for_in_a_persons_words(self):
        with pytest.raises(InputError, match=r"tier is missing; give the tier below it, such as \{type: disk, "):
            spec_from_config({"type": "zstd"})


def test_a_load_waits_for_no_store(tmp_path):
    driver = tier_driver.TierDriver(open_zstd(tmp_path), lambda tier: tier._inner.wait(0.01))
    wanted = tier_driver.chunks(range(2))
    assert driver.store(wanted) == frozenset()
    goes_on, encode = Event(), driver.tier._codec.encode
    driver.tier._codec.encode = lambda *chunk: (goes_on.wait(), encode(*chunk))[1]
    number = 10
    while driver.submit_store(tier_driver.chunks([number])) is not None:
        number += 1
    assert number > 20
    assert driver.load(wanted) == frozenset()
    goes_on.set()
    driver.tier.close()


def test_closing_waits_for_the_chunk_that_is_being_encoded_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("octavo.tiers.zstd.tier._CLOSE_TIMEOUT_S", 0.01)
    driver = tier_driver.TierDriver(open_zstd(tmp_path), lambda tier: tier._inner.wait(0.01))
    codec, thread = driver.tier._codec, driver.tier._encoder
    encoded, begins, goes_on = [], Event(), Event()
    encode, shutdown = codec.encode, thread.shutdown

    def encode_slowly(key, data):
        encoded.append(key)
        begins.set()
        goes_on.wait()
        return encode(key, data)

    def shut_down(**options):
        goes_on.set()
        shutdown(**options)

    codec.encode, thread.shutdown = encode_slowly, shut_down
    driver.submit_store(tier_driver.chunks(range(3)))
    begins.wait()
    driver.tier.close()
    assert encoded == [tier_driver.key(0)]
