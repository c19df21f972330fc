"""A folder into which somebody else has put things: nothing outside it is touched, nothing forged is served.

Each file with a name of ours is made a link, a FIFO, another user's, or everybody's; then it is swapped under a tier
that is open. At the start that is an error which names the file and the remedy, in service it is a miss.
"""

import fcntl
import os
import shutil
import time
from contextlib import nullcontext
from threading import Thread

import pytest

from octavo.errors import TierError, TierLockedError
from octavo.testing import NAMESPACE, OTHER_NAMESPACE, tier_driver
from octavo.tiers.base import TierState
from octavo.tiers.disk import clear_directory, inspect_directory, layout, marker_name, verify_directory

SEGMENT = "segment-000000000001.octavo"
OUR_NAMES = ["lock", "probe", "probe.tmp", SEGMENT, marker_name(NAMESPACE), f"{marker_name(NAMESPACE)}.tmp"]
VICTIM = b"somebody's own file, which must stay as it is"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


@pytest.fixture
def filled(disk):
    """A closed tier with three chunks."""
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    driver.tier.close()
    return disk


def make_link(path):
    victim = path.parents[1] / "victim"
    victim.write_bytes(VICTIM)
    path.unlink(missing_ok=True)
    path.symlink_to(victim)


def make_fifo(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_directory(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def make_writable(path):
    path.touch()
    path.chmod(0o666)


def make_anothers(path):
    path.touch()
    os.chown(path, 4711, -1)


TRICKS = [make_link, make_fifo, make_directory, make_writable, pytest.param(make_anothers, marks=needs_root)]


@pytest.mark.parametrize("name", OUR_NAMES)
@pytest.mark.parametrize("trick", TRICKS)
def test_a_file_with_our_name_that_is_not_ours(filled, trick, name):
    path = filled.directory / name
    trick(path)
    before = path.lstat()
    with pytest.raises(TierError, match=f"{name} is not trusted .*: remove it, or give another folder"):
        filled.open()
    after = path.lstat()
    assert (after.st_mode, after.st_uid, after.st_size) == (before.st_mode, before.st_uid, before.st_size)
    if trick is make_link:
        assert path.resolve().read_bytes() == VICTIM
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    driver = filled.open()
    assert driver.store(tier_driver.chunks([7])) == frozenset()


@pytest.mark.parametrize("trick", TRICKS)
def test_looking_into_it_neither_hangs_nor_writes(filled, trick):
    trick(filled.directory / "lock")
    assert inspect_directory(filled.directory).holder is None
    assert len(verify_directory(filled.directory).damages) == 0
    with pytest.raises(TierError, match="run this as the user that owns it"):
        clear_directory(filled.directory)
    assert len(filled.segments()) == 1


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write(disk, mode):
    disk.directory.mkdir()
    disk.directory.chmod(mode)
    with pytest.raises(TierError, match=rf"is not private \(other users may write to it \(mode {mode:o}\)\): give"):
        disk.open()
    assert list(disk.directory.iterdir()) == []


@needs_root
def test_a_folder_of_another_user(disk):
    disk.directory.mkdir()
    os.chown(disk.directory, 4711, -1)
    with pytest.raises(TierError, match="belongs to user 4711, and this process runs as user 0"):
        disk.open()
    assert list(disk.directory.iterdir()) == []


@pytest.mark.parametrize("trick", TRICKS)
def test_a_segment_that_is_swapped_in_service_is_a_miss(disk, trick):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    assert driver.tier.flush(60.0)
    trick(disk.directory / SEGMENT)
    assert driver.load(tier_driver.chunks([0])) == {0}
    assert driver.found(range(3)) == [0, 0, 0]
    assert driver.announced == set()
    assert driver.tier.status().counters["lost_segments"] == 1


@pytest.mark.parametrize("trick", [make_link, make_fifo, make_directory, make_writable])
def test_a_lock_that_is_swapped_in_service_is_named(disk, trick):
    """What the engine says of itself must lead a person to the file."""
    driver = disk.open()
    (disk.directory / "lock").unlink()
    trick(disk.directory / "lock")
    driver.store(tier_driver.chunks([0]))
    driver.poll_until(lambda: driver.tier.status().state is TierState.DEGRADED, "the tier to be turned off")
    assert "lock: " in driver.tier.status().reason


def test_a_record_of_another_namespace_is_not_served(filled):
    """The segment of one namespace under the number of another one's."""
    forged = (filled.directory / SEGMENT).read_bytes()
    (filled.directory / SEGMENT).unlink()
    driver = filled.open(namespace=OTHER_NAMESPACE)
    driver.store(tier_driver.chunks(range(3)))
    assert driver.tier.flush(60.0)
    path = disk_file(filled)
    size = path.stat().st_size
    path.write_bytes(forged.ljust(size, b"\0"))
    path.chmod(0o600)
    assert driver.load(tier_driver.chunks(range(3))) == {0, 1, 2}


@pytest.mark.parametrize("num_bytes", [0, 1, 4095, 4096, 8192, 3 * 4096 + 5])
def test_a_segment_that_is_cut_in_service(disk, num_bytes):
    driver = disk.open()
    driver.store(tier_driver.chunks(range(3)))
    assert driver.tier.flush(60.0)
    os.truncate(disk_file(disk), num_bytes)
    failed = driver.load(tier_driver.chunks(range(3)))  # checks the bytes of those that did not fail
    assert 2 in failed
    assert driver.store(tier_driver.chunks(range(3))) == frozenset()
    assert driver.load(tier_driver.chunks(range(3))) == frozenset()


def test_two_segments_that_change_places(disk):
    driver = disk.open()
    for number in range(30):
        driver.store(tier_driver.chunks([number]))
    driver.tier.close()
    first, second = disk.segments()[:2]
    spare = disk.directory / "spare"
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    driver = disk.open()
    numbers = [number for number in range(30) if driver.found([number]) != [0]]
    assert 0 < len(numbers) < 30
    assert driver.load(tier_driver.chunks(numbers)) == frozenset()


def test_two_records_that_change_places(disk):
    """Whole, of the right namespace and length, and not what was asked for."""
    driver = disk.open()
    driver.store(tier_driver.chunks([0, 1], 0b1))
    assert driver.tier.flush(60.0)
    (segment,) = disk.segments()
    data = bytearray(segment.read_bytes())
    first, second = (at for at in range(0, len(data), 4096) if layout.parse_record_header(data[at:]))
    size = second - first
    swapped = data[second : second + size] + data[first:second]
    with segment.open("r+b") as file:
        file.seek(first)
        file.write(swapped)
    assert driver.load(tier_driver.chunks([0, 1], 0b1)) == {0, 1}


class TestLock:
    def test_a_lock_that_was_deleted_is_taken_again(self, disk):
        driver = disk.open()
        (disk.directory / "lock").unlink()
        driver.store(tier_driver.chunks([0]))
        assert driver.tier.flush(60.0)
        assert driver.tier.status().state is TierState.OK
        with pytest.raises(TierLockedError):
            disk.open()

    def test_the_next_engine_waits_for_it(self, disk):
        first = disk.open()
        waiting = Thread(target=first.tier.close)
        with pytest.raises(TierLockedError):
            disk.open(wait_seconds=0.01)
        waiting.start()
        second = disk.open(wait_seconds=60)
        waiting.join()
        assert second.store(tier_driver.chunks([0])) == frozenset()

    def test_whoever_looks_at_the_folder_keeps_no_engine_out(self, disk, monkeypatch, caplog):
        disk.open().tier.close()
        looker = os.open(disk.directory / "lock", os.O_RDONLY)
        fcntl.flock(looker, fcntl.LOCK_SH)
        pause = time.sleep

        def end_the_look(seconds):
            fcntl.flock(looker, fcntl.LOCK_UN)
            pause(seconds)

        monkeypatch.setattr(time, "sleep", end_the_look)
        assert disk.open().found([0]) == [0]
        assert caplog.text == ""
        os.close(looker)

    @pytest.mark.parametrize("is_in_child", [False, True], ids=["in the engine", "in the child"])
    def test_a_forked_child_neither_keeps_it_nor_ends_it(self, disk, monkeypatch, is_in_child):
        driver = disk.open()
        of_the_other = os.dup(driver.tier._lock._fd)  # what fork does
        try:
            with monkeypatch.context() as patch:
                if is_in_child:
                    patch.setattr(os, "getpid", lambda: 1)
                driver.tier.close()
            with pytest.raises(TierLockedError) if is_in_child else nullcontext():
                disk.open()
        finally:
            os.close(of_the_other)

    @pytest.mark.parametrize("said", ['{"pid": 1e999, "host": "a"}', '{"pid": null}', "[]", "[" * 1000, "9" * 900, ""])
    def test_a_lock_that_says_nothing_is_held_all_the_same(self, disk, said):
        disk.open()
        (disk.directory / "lock").write_text(said)
        with pytest.raises(TierLockedError, match="in use by another process"):
            disk.open()

    @pytest.mark.parametrize(
        ("lose", "says"),
        [
            (lambda driver, lock: lock.unlink(), "its file 'lock' was deleted, and"),
            (lambda driver, lock: fcntl.flock(driver.tier._lock._fd, fcntl.LOCK_UN), "its lock was lost, and"),
        ],
        ids=["deleted", "lost, as on a network while the machine sleeps"],
    )
    def test_a_second_engine_that_has_the_lock_turns_the_first_one_off(self, disk, lose, says):
        first = disk.open()
        first.store(tier_driver.chunks([0]))
        lose(first, disk.directory / "lock")
        second = disk.open()
        assert not first.tier.flush(60.0)
        first.poll_until(lambda: first.tier.status().state is TierState.DEGRADED, "the first to be turned off")
        assert says in first.tier.status().reason
        assert f"in use by process {os.getpid()}" in first.tier.status().reason
        for number in range(20):
            assert second.store(tier_driver.chunks([number])) == frozenset()
        second.tier.close()
        disk.recover(first)
        assert first.store(tier_driver.chunks([9])) == frozenset()
        assert first.load(tier_driver.chunks([9])) == frozenset()
        assert first.tier.status().levels["foreign_segments"] > 0
        disk.check_budget(first)
        first.tier.check_invariants()
        with pytest.raises(TierLockedError):
            disk.open()


def disk_file(disk):
    (file,) = disk.segments()
    return file
