"""The memory that is left, on a machine and within the limits of a container or a unit."""

import logging

import pytest

from octavo.host import free_memory_bytes, tell_of_lack


@pytest.fixture
def system(tmp_path):
    """A machine with 64 MiB left, and the bytes left to a process in these groups with these files."""

    def left(groups, files):
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "meminfo").write_text("MemTotal:  99 kB\nMemAvailable:    65536 kB\n")
        (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
        for name, text in files.items():
            file = tmp_path / "cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return free_memory_bytes(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup")

    return left


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("", {}, 64 << 20),
        ("0::/\n", {"memory.max": "max", "memory.current": 100}, 64 << 20),
        ("0::/\n", {"memory.max": 1100, "memory.current": 100}, 1000),
        ("0::/\n", {"memory.max": 1100, "memory.current": 1200}, 0),
        ("0::/gone/outside\n", {"memory.max": 1100, "memory.current": 100}, 1000),
        ("0::/system.slice/a.service\n", {"system.slice/a.service/memory.max": 900, "memory.max": "max"}, 64 << 20),
        (
            "0::/system.slice/a.service\n",
            {"system.slice/memory.max": 900, "system.slice/memory.current": 100, "memory.max": "max"},
            800,
        ),
        (
            "0::/\n",
            {"memory.max": 1100, "memory.current": 1000, "memory.stat": "anon 1\nactive_file 300\ninactive_file 400"},
            800,
        ),
        (
            "12:cpu:/x\n4:memory:/job\n0::/y\n",
            {
                "memory/job/memory.limit_in_bytes": 1100,
                "memory/job/memory.usage_in_bytes": 1000,
                "memory/job/memory.stat": "inactive_file 7\ntotal_active_file 300\ntotal_inactive_file 400",
            },
            800,
        ),
        ("nonsense\n", {"memory.max": "-5", "memory.current": "x"}, 64 << 20),
    ],
)
def test_the_least_room_counts_without_what_the_system_keeps_of_files(system, groups, files, left):
    assert system(groups, files) == left


def test_this_machine_has_some():
    assert free_memory_bytes() > 1 << 20


def test_more_than_there_is_is_told_before_the_system_ends_the_process(caplog):
    with caplog.at_level(logging.WARNING):
        tell_of_lack(1, "chunks", "memory")
        assert caplog.messages == []
        tell_of_lack(1 << 60, "chunks", "memory")
    (told,) = caplog.messages
    assert told.startswith("1048576 TiB of memory for chunks is more than the ")
    assert told.endswith("are left: the system may end this process; lower memory")
