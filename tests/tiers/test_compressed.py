"""Compressed tiers: the contract's suite over a memory tier, and what is their own."""

import struct
import sys

import numpy as np
import pytest
import zstandard
from hypothesis import given, strategies as st

from octavo.chunks import make_offload_key
from octavo.errors import InputError
from octavo.host import BOOKKEEPING_BYTES_PER_SLOT, PAGE_BYTES
from octavo.ids import BlockHash
from octavo.policies import LRUPolicy
from octavo.testing import NAMESPACE, TierSuite, tier_driver
from octavo.tiers.base import TierContext
from octavo.tiers.codecs import Int8Rows, ZstdPlanes
from octavo.tiers.compressed import CompressedTier
from octavo.tiers.memory import MemoryTier
from octavo.tiers.registry import spec_from_config

KEYS = [make_offload_key(BlockHash(b"h" * 16), group_idx) for group_idx in range(3)]


class TestZstdTier(TierSuite):
    def codec(self):
        return ZstdPlanes((2,), level=1)

    def open_tier(self, folder, namespace):
        num_slots = self.budget_bytes // (PAGE_BYTES + BOOKKEEPING_BYTES_PER_SLOT)
        return CompressedTier(MemoryTier(num_slots, PAGE_BYTES, LRUPolicy((), num_slots)), self.codec())

    def await_progress(self, tier):
        tier.flush(1.0)

    def test_what_was_stored_is_found_and_loaded(self, tmp_path):
        """Otherwise than the suite has it: stored lengths are those of encoded chunks."""
        with self.driver(tmp_path) as driver:
            wanted = [*tier_driver.chunks(range(3)), *tier_driver.chunks([3], 0b0101)]
            assert driver.store(wanted) == frozenset()
            assert driver.found(range(5)) == [-1, -1, -1, 0b0101, 0]
            assert driver.load(wanted[::-1]) == frozenset()
            assert driver.tier.stored_bytes([chunk.key for chunk in wanted] + [tier_driver.key(9)])[-1] == 0
            counters = driver.tier.status().counters
            assert counters["raw_bytes"] == sum(len(chunk.content) for chunk in wanted)
            assert 0 < counters["encoded_bytes"] <= counters["raw_bytes"] + len(wanted)

    def test_what_the_inner_tier_has_but_cannot_be_decoded_fails(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks([0]))
            driver.tier._codec = Int8Rows(("bf16",), 100)
            other = tier_driver.chunks([0])
            driver.tier._codec.decode = lambda *_: None
            assert driver.load(other) == {0}


class TestRawInt8Tier(TestZstdTier):
    """Bytes that are no numbers stay as they are."""

    def codec(self):
        return Int8Rows(("raw",), 8)


class TestZstd:
    @given(data=st.binary(max_size=500), width=st.sampled_from([1, 2, 4]), repeats=st.integers(1, 9))
    def test_lossless(self, data, width, repeats):
        codec = ZstdPlanes((width,), 1)
        data = np.frombuffer(data * repeats, dtype=np.uint8)
        encoded = codec.encode(KEYS[0], data)
        assert len(encoded) <= len(data) + 1
        assert codec.decode(KEYS[0], memoryview(encoded), len(data)).tobytes() == data.tobytes()

    def test_planes_make_floats_smaller(self):
        values = np.random.default_rng(0).normal(size=1 << 16).astype(np.float32)
        bf16 = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        planes, in_order = (len(ZstdPlanes((width,), 1).encode(KEYS[0], bf16)) for width in (2, 1))
        assert planes < 0.8 * len(bf16)
        assert planes < in_order

    @given(data=st.binary(max_size=200), num_bytes=st.integers(0, 300))
    def test_junk_is_none_or_of_the_right_length(self, data, num_bytes):
        for codec in (ZstdPlanes((2,), 1), Int8Rows(("bf16",), 4)):
            for head in (b"", b"\0", b"\1", b"\2", b"\1\x28\xb5\x2f\xfd"):
                found = codec.decode(KEYS[0], memoryview(head + data), num_bytes)
                assert found is None or len(found) == num_bytes

    def test_a_bomb_is_not_unpacked(self):
        bomb = b"\1" + zstandard.ZstdCompressor().compress(bytes(1 << 24))
        assert ZstdPlanes((1,), 1).decode(KEYS[0], memoryview(bomb), 1000) is None
        claims = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
        assert zstandard.get_frame_parameters(bytes(claims)).content_size == 100_000
        position = claims.index(struct.pack("<I", 100_000)[:4])
        claims[position : position + 4] = struct.pack("<I", 1000)
        assert ZstdPlanes((1,), 1).decode(KEYS[0], memoryview(b"\1" + claims), 1000) is None

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(InputError, match=r"octavo\[zstd\]"):
            ZstdPlanes((2,), 1)


class TestInt8:
    @pytest.mark.parametrize(
        ("element", "dtype", "rounding"), [("fp32", "<f4", 1e-7), ("fp16", "<f2", 1e-3), ("bf16", None, 8e-3)]
    )
    def test_the_error_is_half_a_step(self, element, dtype, rounding):
        values = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)
        values[3] = 0
        values *= np.logspace(-3, 3, 64, dtype=np.float32)[:, None]
        if dtype:
            values = values.astype(dtype)
            data, read = values, lambda found: found.view(dtype).astype(np.float32)
        else:
            data = (values.view(np.uint32) >> 16).astype(np.uint16)
            read = lambda found: (found.view(np.uint16).astype(np.uint32) << 16).view(np.float32)  # noqa: E731
        raw = data.reshape(-1).view(np.uint8)
        expected = read(raw).reshape(64, 128)
        codec = Int8Rows((element,), 128)
        encoded = codec.encode(KEYS[0], raw)
        assert len(encoded) == 1 + 64 * (4 + 128)
        found = read(codec.decode(KEYS[0], memoryview(encoded), len(raw))).reshape(64, 128)
        largest = np.abs(expected).max(axis=1, keepdims=True)
        assert (np.abs(found - expected) <= largest * (0.5 / 127 + rounding) * 1.001).all()

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    def test_what_is_not_finite_stays_as_it_is(self, bad):
        values = np.ones(256, dtype=np.float32)
        values[77] = bad
        raw = values.view(np.uint8)
        codec = Int8Rows(("fp32",), 128)
        assert codec.decode(KEYS[0], memoryview(codec.encode(KEYS[0], raw)), 1024).tobytes() == raw.tobytes()

    def test_by_group_and_whole_rows_only(self):
        raw = np.arange(512, dtype=np.float32).view(np.uint8)
        codec = Int8Rows(("fp32", "raw"), 128)
        assert len(codec.encode(KEYS[0], raw)) < 600
        for group_idx, data in ((1, raw), (2, raw), (0, raw[:-4])):
            encoded = codec.encode(KEYS[group_idx], data)
            assert codec.decode(KEYS[group_idx], memoryview(encoded), len(data)).tobytes() == data.tobytes()

    def test_tiny_numbers_become_zero(self):
        raw = np.full(128, 1e-44, dtype=np.float32).view(np.uint8)
        codec = Int8Rows(("fp32",), 128)
        assert not codec.decode(KEYS[0], memoryview(codec.encode(KEYS[0], raw)), 512).any()


MEMORY = {"type": "memory", "size": "1MiB"}


class TestSpecs:
    @pytest.mark.parametrize(
        "config", [{"type": "zstd"}, {"type": "int8", "lossy": "int8", "elements": ["bf16", "raw"]}]
    )
    def test_builds_what_it_lies_upon(self, config):
        spec = spec_from_config({**config, "tier": MEMORY})
        tier = spec.build(TierContext(namespace=NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES))
        assert tier.medium == "memory"
        tier.close()

    @pytest.mark.parametrize(
        ("config", "named"),
        [
            ({"type": "zstd"}, "a tier is a mapping with a type"),
            ({"type": "zstd", "level": 23}, "level must be a whole number from 1 to 22"),
            ({"type": "zstd", "element_bytes": [2, 3]}, "element_bytes must be one of 1, 2, 4"),
            ({"type": "zstd", "element_bytes": []}, "element_bytes must be one of 1, 2, 4"),
            ({"type": "zstd", "lossy": "int8", "tier": MEMORY}, "unknown setting 'lossy'"),
            ({"type": "zstd", "tier": {"type": "zstd", "tier": MEMORY}}, "cannot lie upon another one"),
            ({"type": "int8", "elements": "bf16", "tier": MEMORY}, "say that you want it with `lossy: int8`"),
            ({"type": "int8", "lossy": "int8", "tier": MEMORY}, "must know what the elements are"),
            ({"type": "int8", "lossy": "int8", "elements": "int4", "tier": MEMORY}, "one of bf16, fp16, fp32, raw"),
        ],
    )
    def test_wrong_settings_are_named(self, config, named):
        with pytest.raises(InputError, match=named):
            spec_from_config(config)
