"""The memory that a device has left, for a pool given as a share of it."""

from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes_of(device: torch.device, *, meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Free bytes of a GPU; for a CPU, those that the system gives without swapping, within a container's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    rooms = [int(line.split()[1]) << 10 for line in _lines(meminfo) if line.startswith("MemAvailable:")]
    try:
        most, used = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit, which says "max"
        return min(rooms, default=0)
    return min([*rooms, max(0, most - used)])


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
