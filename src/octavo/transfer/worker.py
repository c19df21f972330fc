"""The contract of a worker, which moves bytes between device pages and host slots."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from octavo.chunks import ChunkCopy, TransferResult


class OffloadingWorker(ABC):
    """Moves bytes between device pages and host slots, asynchronously.

    The caller guarantees that device rows and slots of a job are touched by nobody else until the job is reported,
    and that what a store reads was computed by kernels submitted before. The implementer reports every job exactly
    once, also one that failed; never raises for what a device or memory does wrong; and orders a load before kernels
    that are submitted after its report.
    """

    @abstractmethod
    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        """Device pages to host slots."""

    @abstractmethod
    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        """Host slots to device pages."""

    @abstractmethod
    def get_finished(self) -> list[TransferResult]:
        """Jobs that ended since the last call. Never blocks."""

    @abstractmethod
    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        """Blocks until these jobs have ended (they are still to be reported), or time is up: False."""

    @abstractmethod
    def wait_any(self, timeout_s: float) -> None:
        """Blocks until `get_finished` has something to report, nothing is in flight, or time is up."""

    @abstractmethod
    def close(self) -> None:
        """Ends threads and streams, after what is in flight has ended or been given up."""
