"""The choice of a worker by where the caches lie."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.errors import TransferError
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.cpu_worker import CpuWorker
from octavo.transfer.cuda_worker import CudaWorker
from octavo.transfer.shares import PageShare
from octavo.transfer.worker import OffloadingWorker


def make_worker(
    caches: CanonicalKVCaches,
    slots: npt.NDArray[np.uint8],
    *,
    shares: Sequence[PageShare] = (),
    take_checksums: bool = False,
) -> OffloadingWorker:
    """A worker between these caches and an arena, uint8 `(num_slots, slot_bytes)`. `shares`: see `CopyPlanner`."""
    match caches.device.type:
        case "cpu":
            return CpuWorker(caches, slots, shares=shares, take_checksums=take_checksums)
        case "cuda":
            return CudaWorker(caches, slots, shares=shares, take_checksums=take_checksums)
        case other:
            raise TransferError(f"no worker moves bytes of caches on {other!r}; there are some for cpu and cuda")
