"""The grammar of offloading: what a lookup answers, and how bytes move between device pages and host slots.

A *chunk* is one or more blocks of one group. In host memory it lies in equal slots of one arena, as many as its bytes
need, anywhere; its bytes are those of its held blocks, one after the other, and a block's bytes are those of the
group's canonical pages (`CanonicalKVCacheRef`s), in order:

    chunk   [block 0: ref 0 | ref 1 | ...][block 1: ...]      only blocks of `held_blocks`
    slots   [slot 7          ][slot 3          ][slot 12 .... ]    the last one is filled in part
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

ALL_BLOCKS = -1
"""As `held_blocks`: every block of the chunk."""


class LookupResult(Enum):
    """Where a chunk stands. Only HIT may be loaded."""

    MISS = "miss"
    HIT = "hit"
    """Its verified bytes are in host memory."""
    HIT_PENDING = "hit_pending"
    """On its way to host memory; ask again, until your deadline."""
    RETRY = "retry"
    """On a slower tier; ask for it (`promote`), then again, until your deadline."""


class ChunkCopy(NamedTuple):
    """One chunk between device pages and host slots."""

    group_idx: int
    rows: Sequence[int]
    """Device rows, in the order of the chunk's held blocks. A load may name fewer blocks than the chunk holds: those it
    does not want have row -1."""
    slots: Sequence[int]
    checksum: int | None = None
    """Of a load that is to be verified: what the bytes in the slots must give, or the chunk fails, and by then none of
    them is on the device any more."""


class TransferResult(NamedTuple):
    """The end of a transfer. Chunks that failed have changed nothing that counts: a store's slots hold nothing, a
    load's device rows hold bytes that nobody may read."""

    job_id: int
    failed: frozenset[int]
    """Places of chunks in the job."""
    checksums: Sequence[int] = ()
    """Of a store, by place, if the worker was made to take them."""


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
