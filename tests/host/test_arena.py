"""Slots: how many, how large, and where bytes lie in them."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from octavo.chunks import GroupOffloadConfig
from octavo.errors import NotEnoughMemoryError
from octavo.host.arena import BOOKKEEPING_BYTES_PER_SLOT, PAGE_BYTES, HostArena, allocate, plan_slots
from octavo.specs import FullAttentionSpec, ceil_div
from octavo.units import parse_bytes

SPEC = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=2)


def groups_of(*chunk_sizes):
    return [GroupOffloadConfig(spec=SPEC, blocks_per_chunk=1, page_size_bytes=size) for size in chunk_sizes]


class TestPlan:
    @pytest.mark.parametrize(
        ("chunk_pages", "slot_pages"),
        [((7,), 7), ((8, 16), 8), ((16, 17), 17), ((16, 33), 17), ((100, 10_000), 100), ((3, 7), 1)],
    )
    def test_the_largest_slot_that_wastes_little(self, chunk_pages, slot_pages):
        plan = plan_slots(groups_of(*(pages * PAGE_BYTES for pages in chunk_pages)), 1 << 30)
        assert plan.slot_bytes == slot_pages * PAGE_BYTES

    @given(sizes=st.lists(st.integers(1, 1 << 22), min_size=1, max_size=4), budget=st.integers(1 << 24, 1 << 30))
    def test_waste_and_budget_are_bounded(self, sizes, budget):
        plan = plan_slots(groups_of(*sizes), budget, note_bytes=100)
        for size in sizes:
            in_pages = ceil_div(size, PAGE_BYTES) * PAGE_BYTES
            assert ceil_div(size, plan.slot_bytes) * plan.slot_bytes <= in_pages * 17 / 16
        assert plan.num_slots * (plan.slot_bytes + BOOKKEEPING_BYTES_PER_SLOT + 100) <= budget

    @given(
        sizes=st.lists(st.integers(1, 1 << 24), min_size=1, max_size=3),
        note_bytes=st.sampled_from([0, 9, 72]),
        other_bytes=st.sampled_from([0, PAGE_BYTES]),
    )
    def test_no_room_for_one_chunk_says_what_is_needed(self, sizes, note_bytes, other_bytes):
        plan = partial(plan_slots, groups_of(*sizes), note_bytes=note_bytes, other_bytes=other_bytes)
        with pytest.raises(NotEnoughMemoryError, match="1 B of memory holds 0 slots of") as error:
            plan(1)
        needed = parse_bytes("".join(str(error.value).rsplit("give it ", 1)[1].split()[:2]))
        assert plan(needed).num_slots * plan(needed).slot_bytes >= max(sizes)
        with pytest.raises(NotEnoughMemoryError):
            plan(needed - (2 << 20))


class TestArena:
    def test_neighbours_make_one_buffer(self):
        arena = HostArena(8, PAGE_BYTES)
        for slot in range(8):
            arena.view[slot] = slot
        lengths = [len(buffer) for buffer in arena.buffers([2, 3, 4, 7, 0], 4 * PAGE_BYTES + 10)]
        assert lengths == [3 * PAGE_BYTES, PAGE_BYTES, 10]
        found = b"".join(arena.buffers([2, 3, 4, 7, 0], 4 * PAGE_BYTES + 10))
        assert [found[i * PAGE_BYTES] for i in range(5)] == [2, 3, 4, 7, 0]
        arena.buffers([5], 1)[0][0] = 99
        assert arena.view[5, 0] == 99
        arena.close()

    def test_slots_are_aligned_for_direct_io(self):
        arena = HostArena(3, PAGE_BYTES)
        assert arena.view.ctypes.data % PAGE_BYTES == 0
        assert not arena.view.any()

    def test_a_buffer_outlives_the_arena(self):
        arena = HostArena(1, PAGE_BYTES)
        buffer = arena.buffers([0], 100)[0]
        arena.close()
        arena.close()
        buffer[0] = 1
        assert np.frombuffer(buffer, dtype=np.uint8)[0] == 1

    def test_more_than_there_is_is_refused(self):
        with pytest.raises(NotEnoughMemoryError, match="lower the memory size"):
            allocate(1 << 62)


def test_memory_that_the_system_does_not_have_is_named_as_people_write_it():
    with pytest.raises(NotEnoughMemoryError, match=r"^the system did not give 1024 TiB of memory"):
        allocate(1 << 50)
