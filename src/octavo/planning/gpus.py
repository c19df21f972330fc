"""The memory of GPUs by name, and how much of it a model's weights leave for the cache."""

from collections.abc import Mapping

from octavo.errors import InputError, NotEnoughMemoryError
from octavo.settings import unknown_name
from octavo.units import counted, format_bytes

GPU_MEMORY_GIB: Mapping[str, int] = {
    "a10": 24,
    "a100-40gb": 40,
    "a100": 80,
    "b200": 180,
    "h100": 80,
    "h200": 141,
    "l4": 24,
    "l40s": 48,
    "mi300x": 192,
    "rtx4090": 24,
    "rtx5090": 32,
}
"""As sold, in GiB; drivers keep a little of it."""
USED_PERCENT = 90
"""The percentage of a GPU that engines usually take; the rest is for activations, graphs and the driver."""


def usable_bytes(gpu: str) -> int:
    """The bytes of such a GPU for weights and cache."""
    size = GPU_MEMORY_GIB.get(gpu.lower())
    if size is None:
        raise InputError(unknown_name("gpu", gpu, list(GPU_MEMORY_GIB)))
    return (size << 30) * USED_PERCENT // 100


def cache_bytes(gpu: str, weight_bytes: int, num_ranks: int) -> int:
    """The bytes that one rank has for the cache on such a GPU, beside its equal share of the weights."""
    usable = usable_bytes(gpu)
    share = -(-weight_bytes // num_ranks)
    if share >= usable:
        raise NotEnoughMemoryError(
            f"{format_bytes(share)} of weights per rank do not fit {format_bytes(usable)}, {USED_PERCENT}% of a {gpu}: "
            f"use more than {counted(num_ranks, 'rank')}, or a larger GPU"
        )
    return usable - share
