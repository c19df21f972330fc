"""Reports of ranks, and what is swept away."""

import os
import time

import msgspec
import pytest

from octavo.errors import InputError, OffloadError
from octavo.host import Segment, SlotPlan
from octavo.vllm_plugin import ranks
from octavo.vllm_plugin.ranks import (
    GroupReport,
    GroupRule,
    Loaded,
    RankReport,
    check_alike,
    leave_report,
    shared_name,
    sweep,
    take_loaded,
    take_reports,
    tell_loaded,
)

GROUP = GroupReport(group_id=0, rule=GroupRule.WHOLE, reach_tokens=0, tokens_per_block=16, page_bytes=4096)
NO_PROCESS = 1 << 30


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "segment_path", lambda name: tmp_path / f"octavo-{name}")
    return tmp_path


def report(rank=0, process=None, group=GROUP):
    return RankReport(
        rank=rank,
        process=os.getpid() if process is None else process,
        groups=(group,),
        identity={"dtype": "bfloat16"},
        models=("a",),
        hash_algorithm="sha256",
        started_ns=1,
    )


def test_all_ranks_in_order_and_nothing_stays(folder):
    name = shared_name("engine")
    for rank in (1, 0):
        leave_report(name, report(rank, process=NO_PROCESS))
        leave_report(name, report(rank))
    assert take_reports(name, 2) == [report(0), report(1)]
    assert list(folder.iterdir()) == []


def test_word_of_what_was_loaded_is_taken_once(folder):
    ours = [os.getpid()]
    assert take_loaded("vllm-x", ours) == []
    for what in Loaded:
        for rank in (0, 1):
            tell_loaded("vllm-x", report(rank), what)
        assert take_loaded("vllm-x", ours) == [what]
        assert take_loaded("vllm-x", ours) == []
    for what in Loaded:
        tell_loaded("vllm-x", report(), what)
    leave_report("vllm-x", report(0))
    take_reports("vllm-x", 1)
    assert take_loaded("vllm-x", ours) == []  # it was of an engine before
    assert list(folder.iterdir()) == []


def test_all_ranks_leave_the_same_word(folder):
    ranks_of = [os.getpid(), NO_PROCESS]
    for process in ranks_of:
        tell_loaded("vllm-x", report(process=process), Loaded.WEIGHTS)
    assert take_loaded("vllm-x", ranks_of) == [Loaded.WEIGHTS]
    assert list(folder.iterdir()) == []


class TestTwoEnginesOfOneName:
    def test_none_takes_the_others_word(self, folder):
        tell_loaded("vllm-x", report(), Loaded.WEIGHTS)
        assert take_loaded("vllm-x", [NO_PROCESS]) == []
        assert take_loaded("vllm-x", [os.getpid()]) == [Loaded.WEIGHTS]

    def test_a_report_of_the_other_is_not_replaced(self, folder):
        leave_report("vllm-x", report(process=os.getppid()))
        with pytest.raises(InputError, match="the same engine_id"):
            leave_report("vllm-x", report())
        assert take_reports("vllm-x", 1) == [report(process=os.getppid())]

    def test_the_second_is_told_why_it_does_not_start(self, folder):
        held = Segment.create(str(folder / "octavo-vllm-x"), SlotPlan(num_slots=1, slot_bytes=4096))
        leave_report("vllm-x", report())
        with pytest.raises(InputError, match="the same engine_id"):
            take_reports("vllm-x", 1)
        assert list(folder.iterdir()) == [held.path]
        held.close()


def test_engines_do_not_meet():
    assert shared_name("a") != shared_name("b")
    assert "/" not in shared_name("../a")


def test_a_rank_that_is_elsewhere(folder):
    leave_report("vllm-x", report(0))
    with pytest.raises(OffloadError, match=r"1 of 2 ranks .* must run on one machine"):
        take_reports("vllm-x", 2, wait_s=0)


def test_a_report_that_is_none(folder):
    (folder / "octavo-vllm-x.rank0").write_text("{}")
    with pytest.raises(OffloadError, match="is not a rank's report"):
        take_reports("vllm-x", 1)


def test_ranks_must_be_alike():
    check_alike([report(0), report(1, group=msgspec.structs.replace(GROUP, page_bytes=1))])
    with pytest.raises(OffloadError, match="different groups"):
        check_alike([report(0), report(1, group=msgspec.structs.replace(GROUP, tokens_per_block=32))])


def test_sweep_removes_what_the_dead_left(folder):
    plan = SlotPlan(num_slots=1, slot_bytes=4096)
    held = Segment.create(str(folder / "octavo-vllm-held"), plan)
    Segment.create(str(folder / "octavo-vllm-dead"), plan).close()
    leave_report("vllm-live", report())
    leave_report("vllm-gone", report(process=NO_PROCESS))
    tell_loaded("vllm-gone", report(process=NO_PROCESS), Loaded.ADAPTER)
    old = time.time() - 3600
    for path in folder.iterdir():
        os.utime(path, (old, old))
    leave_report("vllm-young", report(process=NO_PROCESS))
    sweep()
    assert {path.name for path in folder.iterdir()} == {
        "octavo-vllm-held",
        "octavo-vllm-live.rank0",
        "octavo-vllm-young.rank0",
    }
    held.close()
