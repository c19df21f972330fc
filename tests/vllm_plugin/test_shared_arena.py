"""One arena for the scheduler and all ranks, and the notes that each of them leaves there."""

import msgspec
import numpy as np
import pytest

from octavo.errors import NotEnoughMemoryError
from octavo.host import SlotPlan
from octavo.vllm_plugin.groups import groups_of_engine, why_by_rank
from octavo.vllm_plugin.ranks import GroupReport, GroupRule, RankReport
from octavo.vllm_plugin.shared_arena import RankArena, SharedArena, plan_shared

PLAN = SlotPlan(num_slots=5000, slot_bytes=4096)


def report(rank=0, *pages):
    groups = tuple(
        GroupReport(
            group_id=idx,
            rule=GroupRule.WHOLE,
            reach_tokens=0,
            tokens_per_block=16,
            page_bytes=page,
            why_by_rank="a format of its own",
        )
        for idx, page in pages
    )
    return RankReport(
        rank=rank, process=1, groups=groups, identity={}, models=("a",), hash_algorithm="sha256", started_ns=1
    )


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_ranks_write_to_the_same_slots(tmp_path, num_ranks):
    name = str(tmp_path / "arena")
    shared = SharedArena(name, PLAN, num_ranks)
    ranks = [RankArena(name, PLAN.num_slots, num_ranks, rank) for rank in range(num_ranks)]
    for arena in ranks:
        assert arena.slots.shape == (PLAN.num_slots, PLAN.slot_bytes)
        arena.slots[[7, 4999], arena.rank] = arena.rank + 1
    for slot in (7, 4999):
        assert shared.slots.view[slot, : num_ranks + 1].tolist() == [*range(1, num_ranks + 1), 0]
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
    groups = groups_of_engine([report(0, (0, 20000), (1, 4096))] * num_ranks, 2)
    plan = plan_shared(groups, memory_bytes, num_ranks)
    shared = SharedArena(str(tmp_path / "arena"), plan, num_ranks)
    size = (tmp_path / "arena").stat().st_size
    assert 0.9 * memory_bytes < size + plan.num_slots * 512 <= memory_bytes
    shared.close()


@pytest.mark.parametrize(("memory_bytes", "said"), [(1 << 20, "the largest chunk"), (1, "1 B of memory holds 0 slots")])
def test_too_little_memory_is_refused(memory_bytes, said):
    with pytest.raises(NotEnoughMemoryError, match=said):
        plan_shared(groups_of_engine([report(0, (0, 1 << 20))], 1), memory_bytes, 1)


def test_pages_of_unknown_layout_lie_side_by_side():
    reports = [report(0, (1, 4096)), report(1, (1, 8192))]
    groups = groups_of_engine(reports, 3)
    assert [group.page_size_bytes for group in groups] == [0, 2 * 8192]
    assert groups[1].is_by_rank
    assert groups[1].tokens_per_chunk == 48
    assert why_by_rank(reports, 1) == "a format of its own"


def test_pages_of_known_layout_are_what_one_rank_has():
    ranks = [known(report(rank, (0, 4096)), whole_bytes=8192, whole="heads") for rank in range(4)]
    (group,) = groups_of_engine(ranks, 1)
    assert (group.page_size_bytes, group.is_by_rank) == (8192, False)
    assert not why_by_rank(ranks, 0)
    others = [*ranks[:3], known(ranks[3], whole="tokens")]
    (group,) = groups_of_engine(others, 1)
    assert (group.page_size_bytes, group.is_by_rank) == (4 * 4096, True)
    assert why_by_rank(others, 0) == "the ranks lay it out differently"


def known(of_rank, **page):
    (group,) = of_rank.groups
    return msgspec.structs.replace(of_rank, groups=(msgspec.structs.replace(group, **page),))
