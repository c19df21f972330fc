"""One arena, seen by the scheduler as slots and by each rank as its part of them."""

import numpy as np
import pytest

from octavo.errors import NotEnoughMemoryError
from octavo.host import SlotPlan
from octavo.vllm_plugin.groups import groups_of_all_ranks, groups_of_rank
from octavo.vllm_plugin.ranks import GroupReport, GroupRule, RankReport
from octavo.vllm_plugin.shared_arena import RankArena, SharedArena, plan_parts

PLAN = SlotPlan(num_slots=5000, slot_bytes=4096)


def report(rank=0, *pages):
    groups = tuple(
        GroupReport(group_id=idx, rule=GroupRule.WHOLE, reach_tokens=0, tokens_per_block=16, page_bytes=page)
        for idx, page in pages
    )
    return RankReport(
        rank=rank, process=1, groups=groups, identity={}, models=("a",), hash_algorithm="sha256", started_ns=1
    )


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_ranks_write_their_parts(tmp_path, num_ranks):
    name = str(tmp_path / "arena")
    shared = SharedArena(name, PLAN, num_ranks)
    ranks = [RankArena(name, PLAN.num_slots, num_ranks, rank) for rank in range(num_ranks)]
    for rank, arena in enumerate(ranks):
        assert arena.parts.shape == (PLAN.num_slots * num_ranks, PLAN.slot_bytes)
        arena.parts[arena.parts_of([7, 4999])] = rank + 1
    for slot in (7, 4999):
        parts = shared.slots.view[slot].reshape(num_ranks, PLAN.slot_bytes)
        assert [set(part.tolist()) for part in parts] == [{rank + 1} for rank in range(num_ranks)]
    assert not np.any(shared.slots.view[8])
    assert shared.take_failed([7, 8, 4999]) == []
    ranks[-1].note_failed(4999)
    ranks[0].note_failed(8)
    assert shared.take_failed([7, 8, 4999]) == [1, 2]
    assert shared.take_failed([7, 8, 4999]) == []
    assert [arena.find_checksum(7) for arena in ranks] == [None] * num_ranks
    for rank, arena in enumerate(ranks):
        arena.note_checksum(7, 2**64 - 1 - rank)
    assert [arena.find_checksum(7) for arena in ranks] == [2**64 - 1 - rank for rank in range(num_ranks)]
    assert shared.checksums([8, 7]) == ([0, 2**64 - 1] if num_ranks == 1 else [])
    shared.drop_name()
    shared.drop_name()
    assert not (tmp_path / "arena").exists()
    for arena in ranks:
        arena.close()
    shared.close()


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
def test_memory_is_for_all_ranks(tmp_path, num_ranks):
    memory_bytes = 64 << 20
    groups = groups_of_rank([report(0, (0, 20000), (1, 4096))], 2)
    plan = plan_parts(groups, memory_bytes, num_ranks)
    shared = SharedArena(str(tmp_path / "arena"), plan, num_ranks)
    size = (tmp_path / "arena").stat().st_size
    assert 0.9 * memory_bytes < size + plan.num_slots * 512 <= memory_bytes
    shared.close()


def test_too_little_memory_is_refused():
    with pytest.raises(NotEnoughMemoryError):
        plan_parts(groups_of_rank([report(0, (0, 1 << 20))], 1), 1 << 20, 1)


def test_groups_are_by_the_number_in_keys():
    groups = groups_of_rank([report(0, (1, 4096)), report(1, (1, 8192))], 3)
    assert [group.page_size_bytes for group in groups] == [0, 8192]
    both = groups_of_all_ranks(groups, SlotPlan(num_slots=9, slot_bytes=12288), 2)
    assert [group.chunk_bytes for group in both] == [0, 2 * 24576]
    assert both[1].tokens_per_chunk == 48
