"""Processes that end with the one that started them, and processes below a process."""

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "scripts"


def bound(command: Iterable[object]) -> list[str]:
    """The command, so that it gets SIGTERM when this process ends, even by SIGKILL: servers take it, so that none
    outlives the run that started it. For Linux the parent is the thread, so that only the main one will do."""
    assert threading.current_thread() is threading.main_thread(), "a process would end with this thread"
    return [str(SCRIPTS / "end_with_parent.sh"), "TERM", str(os.getpid()), *map(str, command)]


def children_of(parent: int) -> list[int]:
    """The pids of the processes that a process has started, without those that these have started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def family_of(parent: int) -> list[int]:
    """The pids of all processes below a process."""
    return [pid for child in children_of(parent) for pid in (child, *family_of(child))]


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
