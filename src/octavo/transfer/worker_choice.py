"""The choice of a worker by where the caches lie."""

import numpy as np
import numpy.typing as npt

from octavo.errors import TransferError
from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.cpu_worker import CpuWorker
from octavo.transfer.cuda_worker import CudaWorker
from octavo.transfer.worker import OffloadingWorker


def make_worker(
    caches: CanonicalKVCaches, slots: npt.NDArray[np.uint8], *, take_checksums: bool = False
) -> OffloadingWorker:
    """A worker between these caches and an arena, uint8 `(num_slots, slot_bytes)`."""
    match caches.device.type:
        case "cpu":
            return CpuWorker(caches, slots, take_checksums=take_checksums)
        case "cuda":
            return CudaWorker(caches, slots, take_checksums=take_checksums)
        case other:
            raise TransferError(f"no worker moves bytes of caches on {other!r}; there are some for cpu and cuda")
