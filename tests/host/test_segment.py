"""A segment belongs to one owner, is mapped by its workers, and is never believed."""

import fcntl
import os
import subprocess
import sys

import pytest

from octavo.errors import InputError, NotEnoughMemoryError
from octavo.host.arena import PAGE_BYTES, SlotPlan
from octavo.host.segment import Segment, attach, segment_path

PLAN = SlotPlan(num_slots=24, slot_bytes=PAGE_BYTES)

WRITE_SLOT = """
import sys
from octavo.host import attach
arena = attach(sys.argv[1])
arena.view[3, :5] = [1, 2, 3, 4, 5]
arena.close()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "segment"


@pytest.fixture
def abandoned(path):
    """A segment whose owner has gone."""
    segment = Segment.create(str(path), PLAN)
    segment.arena.view.fill(7)
    segment.close()
    return path


class TestOwner:
    def test_there_is_one_at_a_time(self, path):
        segment = Segment.create(str(path), PLAN)
        with pytest.raises(InputError, match="another process holds the segment"):
            Segment.create(str(path), PLAN)
        segment.close()
        segment.close()
        Segment.create(str(path), PLAN).close()

    def test_what_a_dead_owner_left_is_replaced_and_its_workers_keep_their_bytes(self, abandoned):
        worker = attach(str(abandoned))
        segment = Segment.create(str(abandoned), SlotPlan(num_slots=2, slot_bytes=2 * PAGE_BYTES))
        assert segment.arena.view.shape == (2, 2 * PAGE_BYTES)
        assert not segment.arena.view.any()
        assert (worker.view == 7).all()
        worker.close()
        segment.close()

    def test_a_file_that_another_owner_replaced_before_it_was_locked_is_not_taken(self, abandoned, monkeypatch):
        """Two owners start at once: the later one opens what the dead one left, and the first replaces it."""
        lock, first = fcntl.flock, []

        def lock_late(file, operation):
            if not first:
                first.append(None)
                first[0] = Segment.create(str(abandoned), PLAN)
            lock(file, operation)

        monkeypatch.setattr(fcntl, "flock", lock_late)
        with pytest.raises(InputError, match="another process holds the segment"):
            Segment.create(str(abandoned), PLAN)
        worker = attach(str(abandoned))
        worker.view[0, 0] = 5
        assert first[0].arena.view[0, 0] == 5
        worker.close()
        first[0].close()

    def test_no_room_is_said_at_once(self, path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(NotEnoughMemoryError, match=r"has no room for .* of memory .*: lower its size, or give"):
            Segment.create(str(path), PLAN)
        assert not path.exists()


class TestTrust:
    def test_a_file_that_others_may_write_to_is_refused(self, abandoned):
        abandoned.chmod(0o620)
        for opens in (lambda: Segment.create(str(abandoned), PLAN), lambda: attach(str(abandoned))):
            with pytest.raises(InputError, match="not a file that belongs to this user alone"):
                opens()

    def test_a_link_is_not_followed(self, abandoned, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(abandoned)
        with pytest.raises(InputError, match="cannot be opened"):
            Segment.create(str(link), PLAN)


class TestWorkers:
    def test_another_process_maps_the_same_bytes(self, path):
        segment = Segment.create(str(path), PLAN)
        subprocess.run([sys.executable, "-c", WRITE_SLOT, str(path)], check=True, timeout=300)
        assert segment.arena.view[3, :5].tolist() == [1, 2, 3, 4, 5]
        assert path.stat().st_mode & 0o777 == 0o600
        segment.close()

    @pytest.mark.parametrize("length", [0, 8, 40, PAGE_BYTES, PAGE_BYTES * 25 - 1])
    def test_there_must_be_an_owner_of_this_version(self, path, abandoned, length):
        with pytest.raises(InputError, match="start its owner first"):
            attach(str(path.with_name("other")))
        os.truncate(abandoned, length)
        with pytest.raises(InputError, match="no segment that this version knows"):
            attach(str(abandoned))


def test_a_name_is_in_shared_memory():
    assert str(segment_path("engine-0")) == "/dev/shm/octavo-engine-0"
