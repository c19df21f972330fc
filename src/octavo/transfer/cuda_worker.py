"""The worker for CUDA devices: a side stream for each direction, ordered after the engine's by events."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from octavo.transfer.canonical import CanonicalKVCaches
from octavo.transfer.copy_engine import Addresses, copy_all
from octavo.transfer.shares import PageShare
from octavo.transfer.staged_worker import Lane, StagedWorker


class CudaWorker(StagedWorker):
    """Moves bytes between a CUDA device's pages and the arena.

    Submit on the thread, and under the stream, whose kernels wrote the pages (or last read the rows of a load). A job
    is reported after its side stream is done with it, so whatever is submitted then comes after it.
    """

    def __init__(
        self,
        caches: CanonicalKVCaches,
        slots: npt.NDArray[np.uint8],
        *,
        shares: Sequence[PageShare],
        take_checksums: bool,
    ) -> None:
        super().__init__(
            caches, slots, make_lane=lambda: CudaLane(caches.device), shares=shares, take_checksums=take_checksums
        )


class CudaLane(Lane):
    """A side stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device=device)  # type: ignore[no-untyped-call]

    def mark(self) -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.current_stream(self._device).record_event()
        return event

    @contextmanager
    def after(self, mark: torch.cuda.Event) -> Iterator[None]:
        try:
            # A stream of another device than the thread's alone would set up the thread's on the way back.
            with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                self._stream.wait_event(mark)
                yield
        finally:
            # Also after an error: what was enqueued must not write to rows whose job is reported. Waits without the
            # interpreter's lock.
            self._stream.synchronize()

    def copy_all(self, targets: Addresses, sources: Addresses, sizes: Addresses, *, is_pinned: bool) -> None:
        copy_all(targets, sources, sizes, self._stream.cuda_stream, is_pinned=is_pinned)

    def wait(self, mark: torch.cuda.Event) -> None:
        mark.synchronize()
