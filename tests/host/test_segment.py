"""A segment is found again by a restart, mapped by others, and never believed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from octavo.chunks import LookupResult
from octavo.errors import InputError, NotEnoughMemoryError
from octavo.host.arena import PAGE_BYTES
from octavo.host.segment import _FLOOR_AT, _STRIDE, Segment, SegmentLayout, attach, segment_path
from octavo.policies import LRUPolicy
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld, key_of, wanted

LAYOUT = SegmentLayout(namespace=bytes(16), slot_bytes=PAGE_BYTES, num_slots=NUM_SLOTS)
HIT, MISS = LookupResult.HIT, LookupResult.MISS


def open_world(path, layout=LAYOUT):
    segment = Segment.open(str(path), layout)
    return OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), arena=segment.arena, segment=segment)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "segment"


@pytest.fixture
def filled(path):
    """A segment that a former engine left: two chunks, one in part, and one that was evicted or failed."""
    world = open_world(path)
    world.store(wanted(0), wanted(1, group_idx=1), wanted(2, group_idx=1, held_blocks=0b10), wanted(3))
    world.flip_bit(key_of(3))
    world.load(key_of(3))
    world.manager.close()
    return path


KEPT = [key_of(0), key_of(1, 1), key_of(2, 1)]


class TestRestart:
    def test_chunks_are_there_again_and_verified(self, filled):
        world = open_world(filled)
        assert world.manager.lookup([*KEPT, key_of(3)]) == [HIT, HIT, HIT, MISS]
        assert world.manager.held_blocks(KEPT) == [-1, -1, 0b10]
        world.flip_bit(KEPT[1])
        assert world.load(*KEPT) == {1}
        world.manager.check_invariants()
        assert world.store(*(wanted(100 + n) for n in range(NUM_SLOTS))) == NUM_SLOTS
        world.manager.close()

    def test_what_was_evicted_or_reset_does_not_come_back(self, filled):
        world = open_world(filled)
        world.store(*(wanted(100 + n) for n in range(NUM_SLOTS)))
        world.manager.close()
        world = open_world(filled)
        assert world.manager.lookup(KEPT) == [MISS] * 3
        assert world.manager.status().num_chunks == NUM_SLOTS
        world.manager.reset()
        world.manager.close()
        world = open_world(filled)
        assert world.manager.status().num_chunks == 0
        world.manager.close()

    def test_a_reset_holds_for_what_was_there_and_not_for_what_comes(self, filled):
        world = open_world(filled)
        world.manager.reset()
        world.store(wanted(1, group_idx=1), wanted(9))
        world.manager.close()
        world = open_world(filled)
        assert world.manager.lookup([*KEPT, key_of(9)]) == [MISS, HIT, MISS, HIT]
        assert world.load(KEPT[1], key_of(9)) == set()
        world.manager.close()

    def test_a_floor_that_is_damaged_costs_the_records(self, filled):
        with filled.open("r+b") as file:
            file.seek(_FLOOR_AT)
            file.write(b"\xff" * 8)
        world = open_world(filled)
        assert world.manager.lookup(KEPT) == [MISS] * 3
        world.store(wanted(0))
        world.manager.close()
        world = open_world(filled)
        assert world.manager.lookup([key_of(0)]) == [HIT]
        world.manager.close()

    @pytest.mark.parametrize(
        "layout",
        [
            replace(LAYOUT, namespace=bytes(15) + b"x"),
            replace(LAYOUT, num_slots=NUM_SLOTS + 1),
            replace(LAYOUT, slot_bytes=2 * PAGE_BYTES),
        ],
    )
    def test_another_namespace_or_cut_finds_nothing(self, filled, layout, caplog):
        segment = Segment.open(str(filled), layout)
        world = OffloadWorld(LRUPolicy(GROUPS, layout.num_slots), arena=segment.arena, segment=segment)
        assert world.manager.lookup(KEPT) == [MISS] * 3
        assert "is replaced by an empty one" in caplog.text
        world.manager.close()

    def test_a_chunk_without_a_checksum_is_not_kept(self, path):
        world = open_world(path)
        prepared = world.manager.prepare_store([wanted(0)])
        world.manager.complete_store(prepared.job_id)
        assert world.manager.lookup([key_of(0)]) == [HIT]
        world.manager.close()
        world = open_world(path)
        assert world.manager.lookup([key_of(0)]) == [MISS]
        world.manager.close()

    def test_a_record_is_of_its_own_key(self, filled):
        first, second = (key[:-4] for key in KEPT[1:])
        first_swapped = [piece.replace(second, first) for piece in filled.read_bytes().split(first)]
        filled.write_bytes(second.join(first_swapped))
        world = open_world(filled)
        assert world.manager.lookup(KEPT) == [HIT, MISS, MISS]
        world.manager.close()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
    @given(data=st.data())
    def test_whatever_is_in_it_nothing_wrong_is_served(self, tmp_path, data):
        path = tmp_path / f"segment-{len(list(tmp_path.iterdir()))}"
        world = open_world(path)
        world.store(wanted(0), wanted(1, group_idx=1), wanted(2), wanted(3, group_idx=1))
        world.manager.close()
        with path.open("r+b") as file:
            for _ in range(data.draw(st.integers(1, 5))):
                end = LAYOUT.slots_at + 10 * PAGE_BYTES
                metadata = st.integers(PAGE_BYTES, LAYOUT.records_at + 12 * _STRIDE)
                file.seek(data.draw(metadata | st.integers(PAGE_BYTES, end)))
                file.write(data.draw(st.binary(min_size=1, max_size=9)))
        world = open_world(path)
        world.manager.check_invariants()
        keys = [key_of(0), key_of(1, 1), key_of(2), key_of(3, 1)]
        for key, stand in zip(keys, world.manager.lookup(keys), strict=True):
            assert (world.load(key) is None) == (stand is not HIT)  # loading compares with what was stored
        assert world.store(*(wanted(100 + n) for n in range(NUM_SLOTS))) == NUM_SLOTS
        world.manager.close()


class TestRefusals:
    def test_one_owner_at_a_time(self, path):
        world = open_world(path)
        with pytest.raises(InputError, match=f"is held by process {os.getpid()}: stop it"):
            Segment.open(str(path), LAYOUT)
        world.manager.close()
        world.manager.close()
        open_world(path).manager.close()

    def test_a_file_that_is_no_segment_is_left_alone(self, path):
        path.write_bytes(b"precious")
        path.chmod(0o600)
        with pytest.raises(InputError, match="is a file, but not a segment"):
            Segment.open(str(path), LAYOUT)
        assert path.read_bytes() == b"precious"

    def test_a_file_that_others_may_write_to(self, filled):
        filled.chmod(0o620)
        for opens in (lambda: Segment.open(str(filled), LAYOUT), lambda: attach(str(filled))):
            with pytest.raises(InputError, match="not a file that belongs to this user alone"):
                opens()

    def test_a_link_is_not_followed(self, filled, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(filled)
        with pytest.raises(InputError, match="cannot be opened"):
            Segment.open(str(link), LAYOUT)

    @pytest.mark.parametrize("length", [1, 8, 40, PAGE_BYTES, LAYOUT.num_bytes - 1])
    def test_a_torn_segment_is_replaced(self, filled, length, caplog):
        os.truncate(filled, length)
        world = open_world(filled)
        assert world.manager.lookup(KEPT) == [MISS] * 3
        assert "is replaced" in caplog.text
        world.manager.close()

    def test_no_room_is_said_at_once(self, path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(NotEnoughMemoryError, match="has no room for a segment"):
            Segment.open(str(path), LAYOUT)
        assert not path.exists()


WRITE_SLOT = """
import sys
from octavo.host.segment import attach
arena = attach(sys.argv[1])
arena.view[3, :5] = [1, 2, 3, 4, 5]
arena.close()
"""


class TestWorkers:
    def test_another_process_maps_the_same_bytes(self, path):
        world = open_world(path)
        subprocess.run([sys.executable, "-c", WRITE_SLOT, str(path)], check=True, timeout=60)
        assert world.arena.view[3, :5].tolist() == [1, 2, 3, 4, 5]
        assert path.stat().st_mode & 0o777 == 0o600
        world.manager.close()

    def test_there_must_be_an_owner_of_this_version(self, path, filled):
        with pytest.raises(InputError, match="start its owner first"):
            attach(str(path.with_name("other")))
        os.truncate(filled, 100)
        with pytest.raises(InputError, match="no segment that this version knows"):
            attach(str(filled))


def test_a_name_is_in_shared_memory():
    assert str(segment_path("engine-0")) == "/dev/shm/octavo-engine-0"
