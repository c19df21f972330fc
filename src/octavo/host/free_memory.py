"""The memory that the system still gives this process. What is beyond it is not refused: Linux promises more than it
has, and ends the process later, without a word of its own."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from octavo.units import format_bytes

_log = logging.getLogger(__name__)
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The files of a group of processes: in version 2, and in version 1."""
_FILE_CACHE = re.compile(r"^(?:total_)?(?:active|inactive)_file (\d+)$", re.MULTILINE)


def free_memory_bytes(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """What the system gives without swapping, within the limits of a container or a unit of systemd; 0 if it does not
    tell."""
    rooms = [int(kib) << 10 for kib in re.findall(r"^MemAvailable: +(\d+) kB$", _text(proc / "meminfo"), re.MULTILINE)]
    rooms += [room for folder in _groups(proc, cgroups) if (room := _room_of(folder)) is not None]
    return min(rooms, default=0)


def tell_of_lack(num_bytes: int, what: str, setting: str) -> None:
    """Logs that this much is more than there is. `what` it is for, and the `setting` that says how much."""
    left = free_memory_bytes()
    if 0 < left < num_bytes:
        _log.warning(
            "%s of memory for %s is more than the %s that are left: the system may end this process; lower %s",
            format_bytes(num_bytes),
            what,
            format_bytes(left),
            setting,
        )


def _groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    """The folders of the groups that this process is in. A container may see its own as the uppermost, whatever the
    path of it is outside."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in ("", "memory"):
            top = cgroups / controllers
            group = top / path.strip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))
    yield cgroups


def _room_of(group: Path) -> int | None:
    """None without a limit. What the system keeps of files goes when memory is wanted, and counts as free."""
    for limit, usage in _LIMITS:
        most, used = _text(group / limit).strip(), _text(group / usage).strip()
        if most.isdigit() and used.isdigit():
            cached = sum(int(num_bytes) for num_bytes in _FILE_CACHE.findall(_of_all(_text(group / "memory.stat"))))
            return max(0, int(most) - max(0, int(used) - cached))
    return None


def _of_all(statistics: str) -> str:
    """Version 1 tells a group's own first, and then, as totals, those of all groups in it too."""
    totals = re.findall(r"^total_.*$", statistics, re.MULTILINE)
    return "\n".join(totals) if totals else statistics


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
