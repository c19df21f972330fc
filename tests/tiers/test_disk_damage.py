"""A small log, cut at every byte and flipped at every byte: opening never raises, and serves only right bytes."""

import os

import pytest

from octavo.testing import tier_driver
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.layout import RECORD_HEADER_BYTES, VERSION, is_whole, record_bytes
from octavo.tiers.disk.recovery import read_segment

NAMESPACE = bytes(range(16))
WANTED = tier_driver.chunks([0, 1, 2], 0b1)
CONTENT = {chunk.key: chunk.content for chunk in WANTED}


class OneFile(DiskIO):
    """A disk of one file in memory, for reading."""

    def __init__(self, data: bytearray) -> None:
        super().__init__()
        self.data = data

    def open(self, name, flags):
        return 0

    def close(self, fd):
        pass

    def read(self, fd, into, offset):
        piece = self.data[offset : offset + len(into)]
        into[: len(piece)] = piece
        return len(piece)


@pytest.fixture(params=["sealed", "torn off"])
def log(disk, request):
    """(Number, bytes) of a segment with three records."""
    driver = disk.open()
    driver.store(WANTED)
    if request.param == "sealed":
        driver.tier.close()
        (file,) = disk.segments()
        return 1, file.read_bytes()
    assert driver.tier.flush(60.0)
    (file,) = disk.segments()
    return 1, file.read_bytes()[: 5 * 4096]  # a preallocated rest of zeros is like no rest


def whole_records(number, data):
    """What a tier would serve of this file: as `Readers` decide it."""
    found = read_segment(OneFile(data), number, len(data), NAMESPACE)
    if found.table is None:
        return {}
    served = {}
    for k, offset, length in zip(found.table.keys, found.table.offsets, found.table.lengths, strict=True):
        record = memoryview(data)[int(offset) : int(offset) + record_bytes(int(length))]
        if is_whole(record, int(length)):
            served[k] = bytes(record[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + int(length)])
    return served


def places(data):
    """Every byte that is not deep in a run of zeros, where one is like another; all of them in `make crash`."""
    if "OCTAVO_CRASHES" in os.environ:
        return range(len(data))
    near = 8
    return [at for at in range(len(data)) if at % 128 == 0 or any(data[max(0, at - near) : at + near])]


def test_undamaged(log):
    number, data = log
    assert whole_records(number, bytearray(data)) == CONTENT


def test_cut_at_every_byte(log):
    number, data = log
    for length in places(data):
        served = whole_records(number, bytearray(data[:length]))
        assert served.items() <= CONTENT.items()
        first_record_end = 2 * 4096
        assert not served or length >= first_record_end


def test_flipped_at_every_byte(log):
    number, data = log
    damaged = bytearray(data)
    for at in places(data):
        damaged[at] ^= 1 << at % 8
        served = whole_records(number, damaged)
        assert served.items() <= CONTENT.items()
        assert at < 4096 or len(served) >= len(CONTENT) - 1, f"byte {at} cost more than its record"
        damaged[at] = data[at]


def test_a_tier_on_a_damaged_log(disk):
    driver = disk.open()
    driver.store(WANTED)
    driver.tier.close()
    (file,) = disk.segments()
    data = file.read_bytes()
    for at in range(0, len(data), 1021):
        for piece in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            for other in disk.segments():
                other.unlink()
            file.write_bytes(piece)
            again = disk.open()
            failed = again.load(WANTED)  # checks the bytes of those that did not fail
            assert {k for i, (k, _) in enumerate(WANTED) if i not in failed} <= CONTENT.keys()
            assert again.store(WANTED) == frozenset()
            assert again.load(WANTED) == frozenset()
            again.tier.close()


def test_of_two_records_the_later_number_counts(disk):
    """Whatever the order of files: a copy under a newer name is not the segment that it says it is."""
    driver = disk.open()
    driver.store(tier_driver.chunks([0], 0b1))
    driver.store(tier_driver.chunks([0]))
    driver.tier.close()
    (file,) = disk.segments()
    (disk.directory / "segment-000000000009.octavo").write_bytes(file.read_bytes())
    again = disk.open()
    assert again.load(tier_driver.chunks([0])) == frozenset()
    assert again.tier.status().num_chunks == 1
    assert again.tier.status().levels["foreign_segments"] == 1


def test_a_segment_of_a_newer_version_stays_until_the_budget_needs_it(disk):
    driver = disk.open()
    driver.store(WANTED)
    driver.tier.close()
    (file,) = disk.segments()
    data = bytearray(file.read_bytes())
    data[24] = VERSION + 1
    file.write_bytes(data)
    again = disk.open()
    assert again.found(range(3)) == [0, 0, 0]
    assert again.tier.status().levels["foreign_segments"] == 1
    assert again.store(WANTED) == frozenset()
    assert file.read_bytes() == data
    for number in range(200):
        assert again.store(tier_driver.chunks([number])) == frozenset()
    again.settle()
    assert not file.exists()
    assert again.tier.status().counters["evicted_foreign_segments"] == 1


def test_a_strangers_file_counts_and_is_left_alone(disk):
    disk.directory.mkdir()
    stranger = disk.directory / "letter.txt"
    stranger.write_bytes(bytes(1 << 18))
    driver = disk.open()
    for number in range(200):
        assert driver.store(tier_driver.chunks([number])) == frozenset()
        disk.check_budget(driver, 1 << 20)
    assert stranger.stat().st_size == 1 << 18
