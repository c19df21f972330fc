"""The simulated disk: the least recently used chunks go, jobs take turns, and what is reset stays away."""

import pytest

from octavo.chunks import ALL_BLOCKS, ChunkBytes
from octavo.sim.media import SimulatedDisk

SIZE = 8192
BUDGET = 3 * SIZE


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def disk(clock):
    return SimulatedDisk(BUDGET, bytes_per_s=SIZE, latency_s=0.5, clock=clock)


def chunk(number, num_bytes=SIZE):
    return ChunkBytes(bytes([number]), [memoryview(bytes(num_bytes))], ALL_BLOCKS)


def store(disk, clock, *numbers):
    """Stores chunks one by one, each when the one before is there."""
    for number in numbers:
        assert disk.submit_store(number, [chunk(number)])
        clock.now = disk.next_end()
        (result,) = disk.poll(clock.now)
        assert not result.failed


def there(disk):
    return [number for number in range(9) if disk.lookup([bytes([number])]) != [0]]


def test_the_least_recently_used_chunks_go(disk, clock):
    store(disk, clock, 1, 2, 3)
    disk.touch([bytes([1])])
    store(disk, clock, 4)
    assert there(disk) == [1, 3, 4]
    changes = disk.take_changes()
    assert (set(changes.stored), set(changes.removed)) == ({b"\1", b"\3", b"\4"}, {b"\2"})
    assert disk.status().bytes_used == BUDGET


def test_jobs_of_one_direction_come_one_after_the_other(disk, clock):
    assert disk.submit_store(1, [chunk(1)])
    assert disk.submit_store(2, [chunk(2)])
    ended = [(moment, [result.job_id for result in disk.poll(moment)]) for moment in (1.4, 1.5, 2.4, 2.5)]
    assert ended == [(1.4, []), (1.5, [1]), (2.4, []), (2.5, [2])]
    clock.now = 2.5
    assert disk.submit_load(3, [chunk(1), chunk(7)])
    assert disk.next_end() == 5.0
    assert [result.failed for result in disk.poll(5.0)] == [{1}]


def test_a_disk_that_is_busy_for_long_takes_no_more(disk, clock):
    assert all(disk.submit_store(number, [chunk(number)]) for number in (1, 2, 3))
    assert not disk.submit_store(4, [chunk(4)])
    clock.now = 1.0
    assert disk.submit_store(4, [chunk(4)])


def test_a_chunk_larger_than_the_disk_fails_alone(disk):
    assert disk.submit_store(1, [chunk(1), chunk(2, BUDGET + 1)])
    (result,) = disk.poll(9.0)
    assert result.failed == {1}
    assert there(disk) == [1]


def test_stores_from_before_a_reset_are_not_there_after_it(disk, clock):
    store(disk, clock, 1)
    assert disk.submit_store(2, [chunk(2)])
    disk.reset()
    assert [result.job_id for result in disk.poll(9.0)] == [2]
    assert there(disk) == []
    assert disk.status().bytes_used == 0
