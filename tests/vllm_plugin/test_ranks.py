"""Reports of ranks, and what is swept away."""

import os
import resource
import time
from contextlib import contextmanager
from pathlib import Path

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
    take_reports,
)

GROUP = GroupReport(group_id=0, rule=GroupRule.WHOLE, reach_tokens=0, tokens_per_block=16, page_bytes=4096)
NO_PROCESS = 1 << 30


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "segment_path", lambda name: tmp_path / f"octavo-{name}")
    return tmp_path


@pytest.fixture
def open_folder(tmp_path, monkeypatch):
    """As /dev/shm: everybody may write, and nobody may remove what is another's."""
    tmp_path.chmod(0o1777)
    monkeypatch.chdir(tmp_path)  # those above it are closed to others
    monkeypatch.setattr(ranks, "segment_path", lambda name: Path(f"octavo-{name}"))


@contextmanager
def user(number):
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def no_room():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


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
    left = [leave_report(name, report(rank)) for rank in (1, 0)]
    assert take_reports(name, 2).reports == (report(0), report(1))
    assert list(folder.iterdir()) == []
    del left


def test_what_was_loaded_is_taken_once(folder):
    left = [leave_report("vllm-x", report(rank)) for rank in (0, 1)]
    left[0].tell_loaded(Loaded.ADAPTER)  # before the scheduler began
    taken = take_reports("vllm-x", 2)
    assert taken.take_loaded() == []
    for what in Loaded:
        for rank in left:
            rank.tell_loaded(what)
        assert taken.take_loaded() == [what]
        assert taken.take_loaded() == []
    left[1].tell_loaded(Loaded.WEIGHTS)
    assert taken.take_loaded() == [Loaded.WEIGHTS]
    assert list(folder.iterdir()) == []


class TestTwoEnginesOfOneName:
    def test_none_takes_the_others_word(self, folder):
        left, taken = [], []
        for _ in range(2):
            left.append(leave_report("vllm-x", report()))
            taken.append(take_reports("vllm-x", 1))
        left[1].tell_loaded(Loaded.WEIGHTS)
        assert taken[0].take_loaded() == []
        assert taken[1].take_loaded() == [Loaded.WEIGHTS]

    def test_a_report_of_the_other_is_not_replaced(self, folder):
        other = leave_report("vllm-x", report(process=os.getppid()))
        with pytest.raises(InputError, match="the same engine_id"):
            leave_report("vllm-x", report())
        assert take_reports("vllm-x", 1).reports == (report(process=os.getppid()),)
        del other

    def test_the_second_is_told_why_it_does_not_start(self, folder):
        held = Segment.create(str(folder / "octavo-vllm-x"), SlotPlan(num_slots=1, slot_bytes=4096))
        leave_report("vllm-x", report())
        with pytest.raises(InputError, match="the same engine_id"):
            take_reports("vllm-x", 1)
        assert list(folder.iterdir()) == [held.path]
        held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be two users")
class TestTwoUsers:
    def test_their_engines_may_have_one_id(self, open_folder):
        left = []
        for number in (1001, 1002):
            with user(number):
                left.append(leave_report(shared_name("one"), report(rank=0)))
        for number in (1001, 1002):
            with user(number):
                assert take_reports(shared_name("one"), 1).reports == (report(),)

    def test_a_file_of_the_other_is_named(self, open_folder):
        with user(1001):
            other = leave_report("vllm-x", report())
        said = r"octavo-vllm-x\.rank0, by which .* \(Permission denied\): remove it"
        with user(1002):
            with pytest.raises(InputError, match=said):
                leave_report("vllm-x", report())
            with pytest.raises(InputError, match=said):
                take_reports("vllm-x", 1)
        del other


def test_a_place_that_cannot_be_written_to_is_named(monkeypatch):
    monkeypatch.setattr(ranks, "segment_path", lambda name: Path("/proc") / name)
    with pytest.raises(InputError, match=r"/proc/x\.rank0, by which .* give this user a /proc with room"):
        leave_report("x", report())


def test_a_running_engine_needs_no_room_for_its_word(folder):
    left = leave_report("vllm-x", report())
    taken = take_reports("vllm-x", 1)
    with no_room():
        left.tell_loaded(Loaded.WEIGHTS)
        with pytest.raises(InputError, match="with room"):
            leave_report("vllm-y", report())
    assert taken.take_loaded() == [Loaded.WEIGHTS]
    assert list(folder.iterdir()) == []


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
    live = leave_report("vllm-live", report(process=NO_PROCESS))  # in a container of its own
    leave_report("vllm-gone", report())
    old = time.time() - 3600
    for path in folder.iterdir():
        os.utime(path, (old, old))
    leave_report("vllm-young", report())
    sweep()
    assert {path.name for path in folder.iterdir()} == {
        "octavo-vllm-held",
        "octavo-vllm-live.rank0",
        "octavo-vllm-young.rank0",
    }
    held.close()
    del live
