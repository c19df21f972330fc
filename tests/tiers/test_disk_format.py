"""The format: the golden files of version 3, what is written today, and every value that fits."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from xxhash import xxh3_128_digest

from octavo.chunks import NO_TENANT, ChunkBytes, name_tenant
from octavo.testing import tier_driver
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.layout import (
    NO_KEY_ID,
    RECORD_HEADER_BYTES,
    TAG_BYTES,
    RecordHeader,
    SegmentHeader,
    is_whole,
    pack_segment_header,
    parse_record_header,
    parse_segment_header,
    record_bytes,
    write_record_header,
)
from octavo.tiers.disk.marker import read_marker
from octavo.tiers.disk.summary import Table, Trailer, pack_table, parse_table

GOLDEN = Path(__file__).parent / "golden"
MAKER = Path(__file__).parents[2] / "scripts" / "make_disk_golden.py"
NAMESPACE = bytes(range(16))


@pytest.mark.parametrize("name", ["segment-v3.octavo", "reset-v3"])
def test_what_is_written_is_what_it_was(tmp_path, name):
    subprocess.run([sys.executable, MAKER, tmp_path], check=True, timeout=300)
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_version_3_is_read(disk):
    disk.directory.mkdir()
    (disk.directory / "segment-000000000001.octavo").write_bytes((GOLDEN / "segment-v3.octavo").read_bytes())
    driver = disk.open(namespace=NAMESPACE)
    keys = [bytes([n]) * 32 + n.to_bytes(4, "big") for n in (0, 1)]
    assert driver.tier.lookup(keys) == [-1, 0b101]
    memory = [bytearray(100), bytearray(200)]
    masks = (-1, 0b101)
    assert driver.tier.submit_load(
        1, [ChunkBytes(key, [memoryview(m)], mask) for key, m, mask in zip(keys, memory, masks, strict=True)]
    )
    results = []
    while not results:
        driver.tier.wait(1.0)
        results = driver.tier.poll(0.0)
    assert [(result.job_id, result.failed) for result in results] == [(1, frozenset())]
    assert memory == [bytes(range(100)), bytes(range(200))]


@pytest.mark.parametrize("version", [1, 2])
def test_another_version_is_left_alone_and_told(disk, caplog, version):
    disk.directory.mkdir()
    old = disk.directory / "segment-000000000001.octavo"
    old.write_bytes((GOLDEN / f"segment-v{version}.octavo").read_bytes())
    with caplog.at_level(logging.WARNING):
        driver = disk.open(namespace=NAMESPACE)
    assert f"holds segments of version {version} of the format, and this is version 3: they are not" in caplog.text
    assert driver.tier.status().levels["foreign_segments"] == 1
    assert driver.tier.lookup([bytes([0]) * 32 + bytes(4)]) == [0]
    assert driver.store(tier_driver.chunks([0])) == frozenset()
    assert old.exists()


def test_the_marker_of_version_3_is_read(tmp_path):
    (tmp_path / f"reset-{NAMESPACE.hex()}").write_bytes((GOLDEN / "reset-v3").read_bytes())
    io = DiskIO()
    io.enter(tmp_path)
    assert read_marker(io, NAMESPACE) == 7
    assert read_marker(io, bytes(16)) == 0


_KEYS = st.binary(min_size=1, max_size=64).filter(lambda key: key)
_U64 = st.integers(0, 2**63 - 1)
_HELD = st.integers(-(2**63), 2**63 - 1)
_TENANTS = st.sampled_from([NO_TENANT, name_tenant("a"), name_tenant("")])


@given(_KEYS, st.binary(max_size=5000), _HELD, _U64, _U64, st.sampled_from([NO_KEY_ID, b"key id 8"]), _TENANTS)
def test_a_record_round_trips(key, payload, held, sequence, segment, key_id, tenant):
    record = memoryview(bytearray(b"\xff" * record_bytes(len(payload))))
    record[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + len(payload)] = payload
    header = RecordHeader(key, NAMESPACE, held, len(payload), sequence, segment, 4096, key_id, bytes(range(24)), tenant)
    write_record_header(record, header)
    assert parse_record_header(record) == header
    assert is_whole(record, len(payload))
    tag, rest = (
        record[RECORD_HEADER_BYTES + len(payload) :][:TAG_BYTES],
        record[RECORD_HEADER_BYTES + len(payload) + TAG_BYTES :],
    )
    assert bytes(tag) == (b"\0" if key_id == NO_KEY_ID else b"\xff") * TAG_BYTES
    assert not any(rest), "nothing of another record behind it"


@given(_U64, _U64, st.binary(min_size=16, max_size=16), _U64)
def test_a_segment_header_round_trips(number, created_ns, namespace, size):
    header = SegmentHeader(3, number, created_ns, namespace, size, b"key id 8", bytes(range(16, 32)))
    assert parse_segment_header(pack_segment_header(header)) == header
    assert parse_segment_header(pack_segment_header(header._replace(version=4))).version == 4


@given(st.lists(st.tuples(_KEYS, _U64, _HELD, st.integers(1, 3000)), max_size=20))
def test_a_table_round_trips(rows):
    offsets = np.cumsum([4096, *(record_bytes(length) for *_, length in rows)])
    table = Table(
        [key for key, *_ in rows],
        np.array([sequence for _, sequence, *_ in rows], dtype=np.uint64),
        np.array([held for *_, held, _ in rows], dtype=np.int64),
        offsets[:-1],
        np.array([length for *_, length in rows], dtype=np.int64),
        np.arange(len(rows), dtype=np.uint32),
        bytes(range(16)) * len(rows),
        bytes(range(8)) * len(rows),
    )
    data = pack_table(table)
    trailer = Trailer(1, NAMESPACE, int(offsets[-1]), len(data), xxh3_128_digest(data), len(rows), 0, NAMESPACE)
    parsed = parse_table(memoryview(data), trailer)
    assert parsed.keys == table.keys
    assert (parsed.checksums, parsed.tenants) == (table.checksums, table.tenants)
    for column, other in zip(parsed[1:6], table[1:6], strict=True):
        assert column.tolist() == other.tolist()
    outside = trailer._replace(table_offset=int(offsets[-1]) - 4096)
    assert not rows or parse_table(memoryview(data), outside) is None, "a record beyond the table is no record"
