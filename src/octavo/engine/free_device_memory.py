"""The memory that a device has left, for a pool given as a share of it."""

import torch

from octavo.host import free_memory_bytes


def free_bytes_of(device: torch.device) -> int:
    """Free bytes of a GPU; for a CPU, those that the system gives without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_memory_bytes()
