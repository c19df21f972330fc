"""What is the disk tier's own: its lock, its configuration, segments, eviction with reinsertion, bounds."""

import os
import stat

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.errors import InputError, TierLockedError
from octavo.testing import tier_driver
from octavo.tiers.base import TierContext
from octavo.tiers.disk import DiskSpec
from octavo.tiers.disk.config import DiskConfig

MIB = 1 << 20


def test_a_second_engine_is_told_who_holds_the_directory(disk):
    driver = disk.open()
    with pytest.raises(TierLockedError, match=rf"in use by process {os.getpid()} on .*: give each engine"):
        disk.open()
    driver.tier.close()
    disk.open()


def test_a_lock_that_a_dead_process_left_is_no_obstacle(disk):
    disk.directory.mkdir()
    (disk.directory / "lock").write_text('{"pid": 1, "host": "elsewhere"}')
    disk.open()


def test_a_clock_before_1970_is_no_obstacle(disk, monkeypatch):
    monkeypatch.setattr("octavo.tiers.disk.io.time.time_ns", lambda: -1)
    driver = disk.open()
    assert driver.store(tier_driver.chunks([0])) == frozenset()
    driver.tier.close()
    assert disk.open().found([0]) == [ALL_BLOCKS]


def test_files_are_private(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    assert stat.S_IMODE(disk.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in disk.directory.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"size": "1GiB"}, "path is missing; give a path"),
        ({"path": "/nvme"}, "size is missing; give a size such as 8GiB"),
        ({"path": 3, "size": "1GiB"}, "path: 3 is not a path"),
        ({"path": "/nvme", "size": "much"}, "'much' is not a size"),
        ({"path": "/nvme", "size": "1GiB", "read_threads": 0}, "read_threads must be a whole number from 1 to 64"),
        ({"path": "/nvme", "size": "1GiB", "hang_seconds": -1}, "hang_seconds must be a number of seconds"),
        (
            {"path": "/nvme", "size": "1GiB", "sise": 1},
            r"unknown setting 'sise'; did you mean 'size'\? there are: path, size, segment_size",
        ),
    ],
)
def test_a_wrong_configuration_is_named(config, complaint):
    with pytest.raises(InputError, match=f"^disk tier: .*{complaint}"):
        DiskSpec.from_config(config)


@pytest.mark.parametrize(
    ("size", "segment_bytes"), [("200GiB", 256 * MIB), ("3200MiB", 100 * MIB - 4096), ("1MiB", 28672), ("80KiB", 20480)]
)
def test_segments_are_a_part_of_the_budget(size, segment_bytes):
    config = DiskConfig.from_mapping({"path": "/nvme", "size": size})
    assert config.segment_bytes_for(max_chunk_bytes=6000) == segment_bytes


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"size": "32KiB"}, "size 32 KiB has no room for 2 segments of 20 KiB; give at least 56 KiB"),
        ({"size": "1MiB", "segment_size": "8KiB"}, "segment_size 8 KiB is too small for a chunk of 5.86 KiB"),
        ({"size": "1MiB", "segment_size": "800KiB"}, "2 segments of 800 KiB; .* or a smaller segment_size"),
    ],
)
def test_a_budget_that_is_too_small_is_refused_with_the_numbers(tmp_path, config, complaint):
    spec = DiskSpec.from_config({"path": str(tmp_path)} | config)
    with pytest.raises(InputError, match=complaint):
        spec.build(TierContext(namespace=bytes(16), max_chunk_bytes=6000))


def test_what_was_hit_is_moved_and_the_rest_goes(disk):
    driver = disk.open(size=1 << 18, segment_size=1 << 16)
    hot = tier_driver.chunks([0])
    driver.store(hot)
    for number in range(1, 120):
        assert driver.store(tier_driver.chunks([number])) == frozenset()
        driver.tier.touch([hot[0].key])
        disk.check_budget(driver, 1 << 18)
    driver.settle()
    assert driver.found([0, 1]) == [ALL_BLOCKS, 0]
    assert driver.load(hot) == frozenset()
    assert driver.tier.status().counters["reinserted"] > 3


def test_however_much_is_hot_eviction_makes_room(disk):
    driver = disk.open(size=1 << 18, segment_size=1 << 16)
    for number in range(120):
        assert driver.store(tier_driver.chunks([number])) == frozenset()
        driver.tier.touch([tier_driver.key(n) for n in range(number + 1)])
    driver.settle()
    assert driver.found([119]) == [ALL_BLOCKS]


def test_a_prompt_that_fills_a_segment_survives_many_turns_and_a_restart(disk):
    """What is hit once in a turn of the log is there in the next, however much of a segment it takes."""
    prompt = tier_driver.chunks(range(7))  # all that one segment holds
    sizes = {"size": 1 << 19, "segment_size": 1 << 16}
    driver = disk.open(**sizes)
    driver.store(prompt)
    for first in (100, 400):
        for number in range(first, first + 300):
            assert driver.store(tier_driver.chunks([number])) == frozenset()
            if number % 25 == 0:
                assert driver.load(prompt) == frozenset()
        assert driver.tier.status().counters["stayed"] > 3
        driver.tier.check_invariants()
        driver.tier.close()
        driver = disk.open(**sizes)
        assert driver.load(prompt) == frozenset()


def test_what_stays_takes_at_most_half_of_the_budget(disk):
    driver = disk.open(size=1 << 19, segment_size=1 << 16)
    for number in range(200):
        assert driver.store(tier_driver.chunks([number])) == frozenset()
        driver.tier.touch([tier_driver.key(n) for n in range(number + 1)])
        staying = [s for s in driver.tier._contents.segments.values() if s.has_stayed]
        assert sum(segment.file_bytes for segment in staying) <= 1 << 18
    assert driver.found(range(190, 200)) == [ALL_BLOCKS] * 10, "the rest of the log goes on turning"
    driver.tier.check_invariants()


def test_what_is_being_read_is_no_victim(disk):
    driver = disk.open(size=1 << 18, segment_size=1 << 16)
    driver.store(tier_driver.chunks([0]))
    with disk.io.hanging("read") as gate:
        job = driver.submit_load(tier_driver.chunks([0]))
        gate.wait_for_call()
        for number in range(1, 60):
            driver.store(tier_driver.chunks([number]))
    assert driver.finish(job) == frozenset()


def test_restarts_leave_no_heap_of_small_files(disk):
    for number in range(12):
        driver = disk.open()
        driver.store(tier_driver.chunks([number], 0b1))
        driver.tier.close()
    assert len(disk.segments()) <= 3
    driver = disk.open()
    assert driver.found(range(12)) == [0b1] * 12
    assert driver.load([tier_driver.Chunk(tier_driver.key(number), 0b1) for number in range(12)]) == frozenset()


def test_a_smaller_budget_holds_from_the_start(disk):
    driver = disk.open()
    for number in range(60):
        driver.store(tier_driver.chunks([number]))
    driver.tier.close()
    driver = disk.open(size=1 << 18)
    disk.check_budget(driver, 1 << 18)
    assert driver.found([0, 59]) == [0, ALL_BLOCKS]


def test_older_namespaces_give_way_first(disk):
    driver = disk.open(namespace=b"n" * 16)
    for number in range(40):
        driver.store(tier_driver.chunks([number]))
    driver.tier.close()
    driver = disk.open()
    for number in range(60):
        driver.store(tier_driver.chunks([number]))
    assert driver.found([0]) == [ALL_BLOCKS]
    assert driver.tier.status().counters["evicted_foreign_segments"] > 0


def test_its_queues_have_a_bound(disk):
    driver = disk.open(queue_jobs=2, queue_size="1MiB")
    with disk.io.hanging("write") as gate:
        jobs = [driver.submit_store(tier_driver.chunks([number])) for number in range(2)]
        gate.wait_for_call()
        assert driver.submit_store(tier_driver.chunks([2])) is None
        assert driver.tier.status().counters["store_refused"] == 1
        driver.cancel(jobs[0])
        assert driver.submit_store(tier_driver.chunks([2])) is None, (
            "a cancelled job is in the queue until the writer has seen it"
        )
    driver.settle()
    assert driver.store(tier_driver.chunks([2])) == frozenset()


def test_a_job_larger_than_the_queue_is_let_in_alone(disk):
    driver = disk.open(queue_size="8KiB")
    assert driver.store(tier_driver.chunks(range(5))) == frozenset()
    assert driver.load(tier_driver.chunks(range(5))) == frozenset()


def test_records_that_lie_together_are_read_together(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(6)))
    reads = []
    read = disk.io.read
    disk.io.read = lambda fd, into, offset: reads.append(len(into)) or read(fd, into, offset)
    assert driver.load(tier_driver.chunks([5, 0, 1, 2, 3, 4])) == frozenset()
    assert reads == [6 * 8192]


def test_a_sync_follows_in_time_and_after_so_many_bytes(disk):
    driver = disk.open(sync_seconds=5.0, sync_size="20KiB")

    def syncs():
        return driver.tier.status().counters["syncs"]

    driver.store(tier_driver.chunks([0]))
    disk.now += 4.0
    driver.poll()
    assert syncs() == 0
    disk.now += 2.0
    driver.poll()
    driver.poll_until(lambda: syncs() == 1, "a sync when it is due")
    driver.store(tier_driver.chunks([1, 2, 3, 4]))
    driver.poll_until(lambda: syncs() == 2, "a sync after 20 KiB")


def test_after_closing_nothing_is_there(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    driver.tier.close()
    assert driver.found([0]) == [0]
    assert driver.submit_store(tier_driver.chunks([1])) is None
    assert driver.submit_load(tier_driver.chunks([0])) is None
    assert not driver.tier.flush(1.0)
    driver.poll()


def test_a_reset_says_that_there_is_more_to_tell_until_all_is_told(disk):
    """An engine that has nothing else to do goes on for as long as a tier says so."""
    wanted = tier_driver.chunks(range(5000), held_blocks=1)
    driver = disk.open(size="64MiB")
    assert driver.store(wanted) == frozenset()
    driver.tier.reset()
    told, has_more = [], True
    while has_more:
        driver.tier.poll(0.0)
        removed, _, _, has_more = driver.tier.take_changes()
        told += removed
    assert sorted(told) == sorted(chunk.key for chunk in wanted)


def test_a_chunk_that_gained_blocks_is_announced_again(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0], 0b1))
    driver.announced.clear()
    driver.store(tier_driver.chunks([0], 0b1))
    assert driver.announced == set()
    driver.store(tier_driver.chunks([0]))
    assert driver.announced == {tier_driver.key(0)}
