"""What a disk does wrong: the tier is turned off or a record is dropped, it says so once, and comes back."""

import errno
import logging
import os
import shutil
import time
from contextlib import contextmanager

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.errors import TierError, TierLockedError
from octavo.testing import tier_driver
from octavo.tiers.base import TierState
from octavo.tiers.disk import inspect_directory, layout


def is_off(driver) -> bool:
    return driver.tier.status().state is TierState.DEGRADED


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("allocate", errno.EIO),
        ("open", errno.EROFS),
        ("write", errno.EIO),
        ("sync", errno.EIO),
    ],
)
def test_a_disk_that_takes_nothing(disk, caplog, call, error):
    driver = disk.open()
    disk.io.fail(call, errno=error)
    with caplog.at_level(logging.WARNING):
        assert driver.store(tier_driver.chunks(range(3))) == {0, 1, 2}
        driver.poll_until(lambda: is_off(driver), "the tier to be turned off")
        assert driver.submit_store(tier_driver.chunks([3])) is None
        assert driver.submit_load(tier_driver.chunks([0])) is None
        for _ in range(20):
            disk.now += 100.0
            driver.poll()
            driver.tier.wait(0.01)
    assert os.strerror(error) in driver.tier.status().reason
    assert len([r for r in caplog.records if "turned off" in r.message]) == 1
    assert driver.found(range(3)) == [0, 0, 0]
    disk.io.heal()
    disk.recover(driver)
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.load(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)
    driver.poll()
    assert "is back" in caplog.text
    disk.check_budget(driver)


def test_a_disk_whose_probe_alone_works_is_said_once(disk, caplog):
    """The room for records is on a bad spot, and that of the probe is not."""
    driver = disk.open()
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)
    disk.io.writes_fail_from = layout.ALIGNMENT
    for _ in range(5):
        assert driver.store(tier_driver.chunks([3])) == {0}
        driver.poll_until(lambda: is_off(driver), "the tier to be turned off")
        disk.recover(driver)
        assert driver.load(tier_driver.chunks(range(3))) == frozenset()
    assert ["turned off" in record.message for record in caplog.records] == [True]
    disk.io.heal()
    assert driver.store(tier_driver.chunks([3])) == frozenset()
    assert driver.tier.flush(60.0)
    driver.poll()
    assert [record.message.split()[-1] for record in caplog.records][1:] == ["back"]


def test_a_segment_that_cannot_be_deleted_turns_nothing_off(disk, caplog):
    driver = disk.open()
    disk.io.fail("unlink", errno=errno.EPERM)
    number = 0

    def is_refused():
        nonlocal number
        number += 1
        return driver.submit_store(tier_driver.chunks([number])) is None

    driver.poll_until(is_refused, "the budget to be full of what cannot be deleted")
    driver.poll_until(lambda: not driver.stores, "stores to end")
    for _ in range(100):
        disk.now += 10.0
        driver.poll()
        assert driver.tier.flush(60.0)
        assert driver.load(tier_driver.chunks([key for key in range(number) if driver.found([key])[0]])) == frozenset()
        assert not is_off(driver)
    disk.check_budget(driver, 1 << 20)
    (said,) = (record.message for record in caplog.records if "cannot be deleted" in record.message)
    assert f"{disk.directory}/segment-" in said
    disk.io.heal()

    def is_taken():
        disk.now += 10.0
        return not is_refused()

    driver.poll_until(is_taken, "a deletion")
    driver.tier.check_invariants()


class TestFullDisk:
    def test_it_goes_on_reading_and_makes_room_from_the_oldest(self, disk, caplog):
        driver = disk.open()
        for number in range(40):
            assert driver.store(tier_driver.chunks([number])) == frozenset()
        assert driver.tier.flush(60.0)
        disk.io.capacity_bytes = disk.sum_of_files() + 1000  # somebody else takes the rest
        number = 40
        with caplog.at_level(logging.WARNING):
            while driver.tier.status().counters["evicted_segments"] < 4:
                driver.submit_store(tier_driver.chunks([number]))
                driver.settle()
                assert driver.load(tier_driver.chunks([39])) == frozenset(), "reads go on"
                assert driver.tier.status().state is TierState.OK
                disk.now += 61.0
                driver.poll()
                number += 1
        assert driver.tier.status().counters["disk_full"] > 0
        assert len([r for r in caplog.records if "its file system is full" in r.message]) == 1
        assert driver.found([0]) == [0], "the oldest has gone"
        assert driver.found([number - 1]) == [ALL_BLOCKS], "the newest is there"
        disk.io.capacity_bytes = None
        for number in range(100, 140):
            driver.store(tier_driver.chunks([number]))
        assert driver.found(range(100, 140)) == [ALL_BLOCKS] * 40, "it has its budget again"
        driver.tier.check_invariants()

    def test_under_a_quota_it_keeps_to_what_it_has(self, disk, caplog):
        """The file system has room, and takes nothing."""
        driver = disk.open()
        disk.io.quota_bytes = 1 << 18
        numbers = iter(range(10_000))

        def store_until(is_done):
            for number in numbers:
                driver.submit_store(tier_driver.chunks([number]))
                driver.settle()
                disk.now += 2.0
                driver.poll()
                assert driver.tier.flush(60.0), "it has looked"
                if is_done(driver.tier.status().counters):
                    return number
            return pytest.fail("it never is")

        newest = store_until(lambda counters: counters["evicted_segments"] >= 4)
        assert driver.found([newest]) == [ALL_BLOCKS]
        assert driver.tier.status().counters["disk_full"] == 1
        (message,) = (record.message for record in caplog.records)
        assert "it gets no more, though its file system has room (a quota, or no inodes left)" in message
        disk.io.quota_bytes = None
        disk.now += 3600.0
        store_until(lambda _: disk.sum_of_files() > 1 << 19)
        driver.tier.check_invariants()

    def test_what_giving_up_does_not_help_is_not_given_up(self, disk, caplog):
        """Others have used up the quota, and take what the tier gives up."""
        driver = disk.open()
        for number in range(40):
            driver.store(tier_driver.chunks([number]))
        disk.io.fail("allocate", errno=errno.EDQUOT)
        for number in range(40, 80):
            driver.submit_store(tier_driver.chunks([number]))
            driver.settle()
        counters = driver.tier.status().counters
        assert counters["evicted_segments"] == 0
        assert counters["store_refused"] > 30, "a pause"
        assert driver.load(tier_driver.chunks([0, 39])) == frozenset()
        for number in range(80, 120):
            disk.now += 61.0
            driver.poll()
            driver.submit_store(tier_driver.chunks([number]))
            driver.settle()
        assert 0 < driver.tier.status().counters["evicted_segments"] <= 2, "as many as make room for one segment"
        assert [record.message.partition(": it gets no more")[1] != "" for record in caplog.records] == [True, True]
        disk.io.heal()
        disk.now += 61.0
        driver.poll()
        assert driver.store(tier_driver.chunks([199])) == frozenset()

    def test_a_quota_that_has_no_room_for_a_segment_is_tried_again(self, disk, caplog):
        driver = disk.open()
        disk.io.fail("allocate", errno=errno.EDQUOT)
        for number in range(10):
            driver.submit_store(tier_driver.chunks([number]))
            driver.settle()
            disk.now += 61.0
            driver.poll()
        assert driver.tier.status().counters["disk_full"] > 2
        (message,) = (record.message for record in caplog.records)
        assert "stores nothing, as a segment of 64 KiB does not fit into" in message
        disk.io.heal()
        disk.now += 61.0
        driver.poll()
        assert driver.store(tier_driver.chunks([99])) == frozenset()

    def test_a_budget_beyond_the_file_system_is_told_at_the_start(self, disk, caplog):
        disk.io.capacity_bytes = 1 << 18
        with caplog.at_level(logging.WARNING):
            driver = disk.open(size="100GiB", segment_size=1 << 16)
        assert "the budget of 100 GiB is more than its file system has" in caplog.text
        for number in range(60):
            assert driver.store(tier_driver.chunks([number])) == frozenset()
        assert driver.tier.status().counters["disk_full"] == 0, "it has kept to what there is"
        assert disk.sum_of_files() <= (1 << 18) * 49 // 50, "and has left the reserve"

    def test_a_file_system_without_room_for_a_segment_is_told_at_the_start(self, disk, caplog):
        disk.io.capacity_bytes = 1 << 18
        with caplog.at_level(logging.WARNING):
            driver = disk.open(size="100GiB", segment_size=1 << 19)
        assert "stores nothing, as a segment of 512 KiB does not fit into" in caplog.text
        driver.submit_store(tier_driver.chunks([0]))
        driver.settle()
        assert driver.tier.status().counters["store_refused"] == 1
        assert driver.found([0]) == [0]

    @pytest.mark.parametrize(("others", "outcome"), [(1 << 19, "it keeps to 496 KiB"), (1 << 20, "it stores nothing")])
    def test_files_of_others_that_take_its_room_are_told_at_the_start(self, disk, caplog, others, outcome):
        disk.directory.mkdir(mode=0o700)
        (disk.directory / "theirs").write_bytes(bytes(others))
        disk.open()
        assert [message for message in caplog.messages if "other files" in message and outcome in message]

    @pytest.mark.parametrize("is_full_at_the_start", [True, False])
    def test_one_that_had_no_room_for_a_segment_is_used_when_it_has(self, disk, is_full_at_the_start):
        if is_full_at_the_start:
            disk.io.capacity_bytes = 1 << 18
        driver = disk.open(size="4MiB", segment_size=1 << 19)
        disk.io.capacity_bytes = 1 << 18
        driver.submit_store(tier_driver.chunks([0]))
        driver.settle()
        disk.io.capacity_bytes = None

        def is_taken():
            disk.now += 2.0
            return driver.submit_store(tier_driver.chunks([1])) is not None

        driver.poll_until(is_taken, "room")
        driver.settle()
        assert driver.found([0, 1]) == [0, ALL_BLOCKS]

    def test_one_that_has_room_for_a_single_segment_goes_on_and_is_used_when_it_has_more(self, disk):
        disk.io.capacity_bytes = (1 << 16) + (1 << 15)
        driver = disk.open()
        numbers = iter(range(1000))

        def stores_until(name, count):
            for number in numbers:
                driver.submit_store(tier_driver.chunks([number]))
                driver.settle()
                if driver.tier.status().counters[name] >= count:
                    return number
            return pytest.fail(f"{name} stays below {count}")

        newest = stores_until("evicted_segments", 2)
        assert driver.found([0, newest]) == [0, ALL_BLOCKS], "it has made room"
        disk.io.capacity_bytes = None
        disk.now += 2.0
        driver.poll()
        assert driver.tier.flush(60.0), "it has looked"
        stores_until("stored", newest + 50)
        assert driver.found([newest]) == [ALL_BLOCKS], "there was room beside it"
        driver.tier.check_invariants()


@pytest.mark.parametrize("call", ["open", "allocate", "write", "sync", "truncate"])
def test_what_nobody_expects_of_a_disk(disk, caplog, call):
    """No thread ends of it."""
    driver = disk.open()
    assert driver.store(tier_driver.chunks([0])) == frozenset()
    assert driver.tier.flush(60.0)
    for round_ in range(2):
        disk.io.surprise(call)
        with caplog.at_level(logging.CRITICAL):
            number = 1
            while not is_off(driver):
                driver.store(tier_driver.chunks(range(number, number + 10)))
                driver.tier.flush(60.0)
                driver.poll()
                number += 10
        assert "surprise" in driver.tier.status().reason
        disk.io.heal()
        disk.recover(driver)
        assert driver.found([0]) == [ALL_BLOCKS], round_
        assert driver.load(tier_driver.chunks([0])) == frozenset()
    driver.tier.check_invariants()


def test_reads_that_nobody_expects(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(4)))
    disk.io.surprise("read")
    assert [driver.load(tier_driver.chunks([number])) for number in range(3)] == [{0}] * 3
    driver.poll_until(lambda: is_off(driver), "the tier to be turned off")
    disk.io.heal()
    disk.recover(driver)
    assert driver.load(tier_driver.chunks([3])) == frozenset()


@pytest.mark.parametrize("name", ["segment-99999999999999999999999.octavo", "segment-1.octavo", "segment-x.octavo"])
def test_files_with_names_that_no_segment_has(disk, name):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    driver.tier.close()
    (disk.directory / name).write_bytes(b"somebody's")
    driver = disk.open()
    assert driver.store(tier_driver.chunks([1])) == frozenset()
    assert driver.load(tier_driver.chunks([0, 1])) == frozenset()
    assert (disk.directory / name).read_bytes() == b"somebody's"


def test_a_number_that_leaves_none_for_segments_to_come(disk):
    disk.open().tier.close()
    stranger = disk.directory / "segment-999999999999.octavo"
    stranger.touch()
    with pytest.raises(TierError, match=f"{stranger} is no segment of any tier: remove it"):
        disk.open()
    stranger.unlink()
    assert disk.open().store(tier_driver.chunks([0])) == frozenset()


def test_what_was_synced_outlives_a_failing_write(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0, 1]))
    assert driver.tier.flush(60.0)
    driver.store(tier_driver.chunks([2]))
    disk.io.fail("write", errno=errno.EIO)
    assert driver.store(tier_driver.chunks([3])) == {0}
    assert not driver.tier.flush(60.0), "2 was accepted, and nobody knows whether it is on disk"
    disk.io.heal()
    disk.recover(driver)
    assert driver.found(range(4)) == [ALL_BLOCKS, ALL_BLOCKS, 0, 0]
    assert driver.announced == {tier_driver.key(0), tier_driver.key(1)}
    assert driver.load(tier_driver.chunks([0, 1])) == frozenset()
    assert driver.tier.flush(60.0)


def test_a_failing_sync_keeps_no_promise(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    disk.io.fail("sync", errno=errno.EIO)
    assert not driver.tier.flush(60.0)
    disk.io.heal()
    disk.recover(driver)
    assert driver.found([0]) == [0]
    assert driver.tier.status().counters["lost_unsynced"] == 1
    driver.store(tier_driver.chunks([0]))
    assert driver.tier.flush(60.0)


def test_short_writes_are_completed(disk):
    disk.io.writes_short = True
    driver = disk.open()
    assert driver.store(tier_driver.chunks(range(5))) == frozenset()
    assert driver.load(tier_driver.chunks(range(5))) == frozenset()
    assert disk.io.num_faults > 5


def test_a_flipped_bit_drops_the_record(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0, 1]))
    disk.io.flips_a_bit = True
    assert driver.load(tier_driver.chunks([0])) == {0}
    disk.io.heal()
    assert driver.found([0, 1]) == [0, ALL_BLOCKS]
    assert driver.announced == {tier_driver.key(1)}
    assert driver.tier.status().counters["corrupt"] == 1
    assert not is_off(driver)


def test_one_bad_spot_costs_its_record_and_many_the_disk(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(6)))
    disk.io.fail("read", errno=errno.EIO)
    assert driver.load(tier_driver.chunks([0])) == {0}
    assert not is_off(driver)
    assert driver.found([0, 1]) == [0, ALL_BLOCKS]
    assert driver.load(tier_driver.chunks([1])) == {0}
    assert driver.load(tier_driver.chunks([2])) == {0}
    assert is_off(driver)
    disk.io.heal()
    disk.recover(driver)
    assert driver.load(tier_driver.chunks([3, 4, 5])) == frozenset()


def test_a_segment_that_cannot_be_read_turns_the_disk_off_twice_at_most(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(12)))  # six in each segment
    assert driver.tier.flush(60.0)
    driver.poll()
    for numbers in ([0, 1, 2], [6, 7, 3]):
        assert driver.found([4, 5]) == [ALL_BLOCKS] * 2
        disk.io.fail("read", errno=errno.EIO)
        assert [driver.load(tier_driver.chunks([number])) for number in numbers] == [{0}] * 3
        assert is_off(driver)
        disk.io.heal()
        disk.recover(driver)
    assert driver.announced == {tier_driver.key(number) for number in (8, 9, 10, 11)}
    assert driver.found(range(8)) == [0] * 8
    assert driver.load(tier_driver.chunks(range(8, 12))) == frozenset()
    assert driver.tier.status().counters["lost"] == 2
    assert driver.store(tier_driver.chunks([4])) == driver.load(tier_driver.chunks([4])) == frozenset()


def test_a_segment_that_was_read_well_between_two_outages_keeps_its_records(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(12)))  # six in each segment
    assert driver.tier.flush(60.0)
    driver.poll()
    for numbers in ([0, 1, 2], [6, 7, 4]):
        disk.io.fail("read", errno=errno.EIO)
        assert [driver.load(tier_driver.chunks([number])) for number in numbers] == [{0}] * 3
        assert is_off(driver)
        disk.io.heal()
        disk.recover(driver)
        assert driver.load(tier_driver.chunks([3])) == frozenset()
    assert driver.load(tier_driver.chunks([5])) == frozenset()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_without_descriptors_or_memory_loses_no_records(disk, error):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(6)))
    disk.io.fail("open", errno=error)
    for number in range(3):
        assert driver.load(tier_driver.chunks([number])) == {0}
    assert is_off(driver)
    disk.io.heal()
    disk.recover(driver)
    assert driver.load(tier_driver.chunks(range(6))) == frozenset()


def test_a_write_that_hangs(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    with disk.io.hanging("write") as gate:
        job = driver.submit_store(tier_driver.chunks([1]))
        gate.wait_for_call()
        driver.poll()
        disk.now += 9.0
        driver.poll()
        assert not is_off(driver)
        disk.now += 2.0
        driver.poll()
        assert is_off(driver)
        assert "has not answered for 11 s" in driver.tier.status().reason
        driver.cancel(job)
        assert not driver.tier.flush(0.01)
        disk.now += 1000.0
        driver.poll()
        assert is_off(driver), "there is no probe while a call hangs"
    disk.recover(driver)
    driver.settle()
    assert driver.load(tier_driver.chunks([0])) == frozenset()


def test_a_read_that_hangs_touches_nothing_after_its_job_was_cancelled(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    with disk.io.hanging("read") as gate:
        job = driver.submit_load(tier_driver.chunks([0]))
        gate.wait_for_call()
        memory = driver.cancel(job)
    driver.settle()
    assert set(memory[0]) == {tier_driver.UNTOUCHED}
    assert job not in driver.failed
    assert driver.load(tier_driver.chunks([0])) == frozenset()


def test_a_read_that_is_late_counts_only_for_its_own_generation(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks([0]))
    with disk.io.hanging("read") as gate:
        job = driver.submit_load(tier_driver.chunks([0]))
        gate.wait_for_call()
        driver.tier.reset()
    assert driver.finish(job) == {0}


def test_a_deleted_file(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    driver.tier.flush(60.0)
    (file,) = disk.segments()
    file.unlink()
    assert driver.load(tier_driver.chunks([0])) == {0}
    assert driver.found(range(3)) == [0, 0, 0]
    assert driver.tier.status().counters["lost_segments"] == 1
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)
    assert driver.load(tier_driver.chunks(range(3))) == frozenset()


@pytest.mark.parametrize("more", [0, 2, 20], ids=["nothing more", "in the same segment", "in later segments"])
def test_what_is_in_an_open_file_that_was_deleted_is_not_called_durable(disk, more):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    assert driver.tier.flush(60.0)
    for file in disk.segments():
        file.unlink()
    if more:
        driver.submit_store(tier_driver.chunks(range(3, 3 + more)))
    assert not driver.tier.flush(60.0)
    disk.recover(driver)
    assert driver.found(range(3)) == [0] * 3
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)
    driver.tier.close()
    assert disk.open().found(range(3)) == [ALL_BLOCKS] * 3


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_file_system_that_counts_no_links(disk, monkeypatch, is_deleted):
    tell = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result([*tell(fd)[:3], 0, *tell(fd)[4:]]))
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    if is_deleted:
        for file in disk.segments():
            file.unlink()
    assert driver.tier.flush(60.0) is not is_deleted
    assert driver.load(tier_driver.chunks(range(3))) == (set(range(3)) if is_deleted else set())


def delete(folder):
    """As often as it takes: the tier's thread may write a file between the listing and the folder's end."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def test_a_deleted_directory(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(20)))
    assert driver.tier.flush(60.0)
    driver.store(tier_driver.chunks([20]))
    delete(disk.directory)
    assert not driver.tier.flush(60.0)
    driver.poll_until(lambda: is_off(driver), "the tier to be turned off")
    disk.recover(driver)
    assert driver.found(range(21)) == [0] * 21
    assert driver.announced == set()
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)
    disk.check_budget(driver)
    with pytest.raises(TierLockedError):
        disk.open()


def move(folder):
    folder.rename(folder.with_name("elsewhere"))


def replace_by_another(folder):
    move(folder)
    folder.mkdir(mode=0o700)


@pytest.mark.parametrize("do", [delete, move, replace_by_another])
@pytest.mark.parametrize("is_found", [True, False], ids=["of an earlier life", "open"])
def test_a_folder_that_goes_while_nobody_stores_is_noticed_and_said_once(disk, caplog, do, is_found):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(20)))
    assert driver.tier.flush(60.0)
    if is_found:
        driver.tier.close()
        driver = disk.open()
        assert driver.tier.flush(60.0), "the found segment is open again"
    do(disk.directory)

    def is_noticed():
        disk.now += 0.5
        return is_off(driver)

    driver.poll_until(is_noticed, "the tier to be turned off")
    assert "the folder was deleted or moved" in driver.tier.status().reason
    disk.recover(driver)
    assert driver.found(range(20)) == [0] * 20
    assert driver.announced == set()
    assert driver.tier.status().counters["lost"] == 20
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)
    assert disk.segments(), "in the folder that has the name now"
    assert len([record for record in caplog.records if "is turned off" in record.message]) == 1


def test_a_file_that_goes_while_the_folder_is_listed_is_left_out(disk, monkeypatch):
    """A running engine deletes segments beside `octavo cache ls`, and so may others theirs when an engine starts."""
    driver = disk.open()
    driver.store(tier_driver.chunks(range(20)))
    driver.tier.close()
    goes, stays = disk.directory / "goes", disk.directory / "stays"
    scan = os.scandir

    @contextmanager
    def scan_and_delete(folder):
        goes.touch()
        stays.touch()
        with scan(folder) as entries:
            listed = list(entries)
        goes.unlink()
        yield listed

    monkeypatch.setattr(os, "scandir", scan_and_delete)
    assert disk.open().found(range(20)) == [ALL_BLOCKS] * 20
    assert inspect_directory(disk.directory).other_files == 1


@pytest.mark.parametrize("below", [".", "octavo"], ids=["its root", "a folder of it"])
def test_nothing_is_written_below_a_file_system_that_is_not_mounted(disk, tmp_path, below):
    mount, elsewhere = tmp_path / "mount", tmp_path / "elsewhere"
    mount.mkdir(mode=0o700)
    disk.directory, disk.io.mount = mount / below, mount
    driver = disk.open()
    assert driver.store(tier_driver.chunks(range(20))) == frozenset()
    assert driver.tier.flush(60.0)
    mount.rename(elsewhere)
    mount.mkdir(mode=0o700)
    disk.io.mount = None

    def is_tried_in_vain():
        disk.now += 30.0
        return driver.tier.status().reason == "the folder's file system is not mounted"

    driver.poll_until(is_tried_in_vain, "a probe")
    assert list(mount.iterdir()) == []
    mount.rmdir()
    elsewhere.rename(mount)
    disk.io.mount = mount
    disk.recover(driver)
    assert driver.load(tier_driver.chunks(range(20))) == frozenset()


def test_a_reset_that_cannot_be_marked_is_marked_later(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    assert driver.tier.flush(60.0)
    disk.io.fail("open", "unlink", errno=errno.EROFS)
    driver.tier.reset()
    assert not driver.tier.flush(60.0)
    driver.poll_until(lambda: is_off(driver), "the tier to be turned off")
    assert not driver.tier.is_reset_durable()
    disk.io.heal()
    disk.recover(driver)
    driver.settle()
    assert disk.segments() == []
    assert driver.tier.is_reset_durable()
    driver.tier.close()
    assert disk.open().found(range(3)) == [0, 0, 0]


def test_a_marked_reset_holds_although_no_file_was_deleted(disk):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    assert driver.tier.flush(60.0)
    disk.io.fail("unlink", errno=errno.EACCES)
    driver.tier.reset()
    driver.poll_until(driver.tier.is_reset_durable, "the marker to be durable")
    driver.tier.close()
    disk.io.heal()
    assert len(disk.segments()) == 1
    driver = disk.open()
    assert driver.found(range(3)) == [0, 0, 0]
    assert disk.segments() == []


def test_closing_a_disk_that_hangs_ends_and_keeps_the_lock(disk):
    driver = disk.open(close_seconds=0.05)
    with disk.io.hanging("write") as gate:
        driver.submit_store(tier_driver.chunks([0]))
        gate.wait_for_call()
        driver.tier.close()
        with pytest.raises(TierLockedError, match=f"in use by process {os.getpid()}"):
            disk.open()


def test_closing_waits_once_for_all_reads_that_hang(disk):
    driver = disk.open(size=16 << 20, read_threads=64, close_seconds=0.5)
    assert driver.store(tier_driver.chunks(range(64))) == frozenset()
    with disk.io.hanging("read"):
        for number in range(64):
            assert driver.submit_load(tier_driver.chunks([number])) is not None
        begun = time.monotonic()
        driver.tier.close()
        assert time.monotonic() - begun < 16, "each thread has got the time of all"


def test_a_file_system_that_neither_syncs_folders_nor_tells_its_room(disk, monkeypatch):
    """As some in user space."""

    def refuse(fd):
        raise OSError(errno.EINVAL, "Invalid argument")

    told = os.statvfs(disk.directory.parent)
    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result((told.f_bsize, told.f_frsize, *[0] * 8)))
    driver = disk.open()
    assert driver.store(tier_driver.chunks(range(40))) == frozenset()
    assert driver.tier.flush(60.0)
    driver.tier.reset()
    driver.poll_until(driver.tier.is_reset_durable, "the reset")
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.tier.flush(60.0)


@pytest.mark.parametrize("target", [None, "nowhere", "tier"])
def test_a_file_or_a_link_that_leads_nowhere_is_no_directory(disk, target):
    if target is None:
        disk.directory.touch()
    else:
        disk.directory.symlink_to(target)
    with pytest.raises(TierError, match=r"cannot be used \(Not a directory\): give a directory"):
        disk.open()


def test_a_file_that_is_in_the_way_of_the_start_is_named(disk, monkeypatch):
    """A reset waits for it to go."""
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    disk.io.fail("unlink", errno=errno.EPERM)
    driver.tier.reset()
    driver.poll_until(driver.tier.is_reset_durable, "the marker to be durable")
    driver.tier.close()
    disk.io.heal()
    (file,) = disk.segments()

    def refuse(name, *, dir_fd):
        raise PermissionError(errno.EPERM, "not permitted", name)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(TierError, match=rf"cannot be used \({file.name}: not permitted\)"):
        disk.open()


def test_a_chunk_that_the_format_cannot_hold_fails_alone(disk):
    driver = disk.open()
    unfit = tier_driver.chunks([1])[0]._replace(key=b"k" * 65)
    assert driver.store([*tier_driver.chunks([0]), unfit, *tier_driver.chunks([2])]) == {1}
    assert driver.load(tier_driver.chunks([0, 2])) == frozenset()
    assert driver.tier.status().counters["store_unfit"] == 1
