"""What the engine's thread asks of the tier's threads, and what they answer.

Orders go to the writer in the order of the plan and are done in that order. Reports come back through one queue, which
`poll` empties; only the engine's thread changes what is known of segments and keys.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from time import monotonic
from typing import TypeAlias

from octavo.chunks import OffloadKey
from octavo.tiers.buffers import BufferGuard
from octavo.tiers.disk.segment import Segment


class DiskJob:
    """A caller's job, which may be cancelled at any moment: its buffers are touched only under its guard."""

    __slots__ = ("begun", "failed", "generation", "guard", "job_id", "num_bytes", "num_chunks", "num_left")

    def __init__(self, job_id: int, generation: int, *, num_bytes: int, num_chunks: int) -> None:
        self.job_id = job_id
        self.num_bytes = num_bytes
        self.num_chunks = num_chunks
        self.generation = generation
        """The tier's generation when the job was submitted; a reset begins the next."""
        self.guard = BufferGuard()
        self.failed: set[int] = set()
        self.num_left = 0
        """The chunks that are not done."""
        self.begun = monotonic()

    @property
    def is_cancelled(self) -> bool:
        return self.guard.is_cancelled


class PlannedRecord:
    """A record with its place in the log. Its bytes come from a job's buffers, or from an older segment."""

    __slots__ = ("buffers", "checksum", "entry", "index", "job", "key", "segment", "size", "source")

    def __init__(self, segment: Segment, entry: int, size: int, source: tuple[Segment, int] | None) -> None:
        self.segment = segment
        self.entry = entry
        self.key: OffloadKey = segment.keys[entry]
        self.size = size
        self.source = source
        self.job: DiskJob | None = None
        self.index = 0
        self.buffers: Sequence[memoryview] = ()
        self.checksum: int | None = None
        """The checksum that the buffers must have, if it is known."""

    @property
    def location(self) -> int:
        return self.segment.location(self.entry)


# Orders to the writer


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """Make this file, or grow an existing one."""

    segment: Segment
    num_bytes: int
    num_entries: int | None
    """The entries of an existing file; None makes a new file."""


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write these records, one by one."""

    records: list[PlannedRecord]


@dataclass(frozen=True, slots=True)
class SealSegment:
    """Write the summary and cut the file behind it."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """Delete the segment's file."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class MarkReset:
    """Everything below this number is dead: see `marker`."""

    floor: int


@dataclass(frozen=True, slots=True)
class ClearReset:
    """The last file below the floor is gone."""


@dataclass(slots=True)
class Sync:
    """Make durable what was written before."""

    is_flush: bool = False
    """A caller waits for the answer, which covers everything since the last flush."""
    is_done: Event = field(default_factory=Event)
    is_durable: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The last order."""


Order: TypeAlias = OpenSegment | WriteRecords | SealSegment | DeleteSegment | MarkReset | ClearReset | Sync | Stop


# Orders to readers


@dataclass(frozen=True, slots=True)
class ReadPart:
    """One chunk of a run."""

    job: DiskJob
    index: int
    buffers: Sequence[memoryview]
    entry: int
    offset: int
    length: int
    held: int
    key: OffloadKey


@dataclass(frozen=True, slots=True)
class ReadRun:
    """Records that lie one behind the other, for one read."""

    segment: Segment
    offset: int
    num_bytes: int
    parts: list[ReadPart]


# Reports


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    """Written records, in the order of the plan. Failed ones were cancelled, or their source could not be read."""

    written: list[PlannedRecord]
    failed: list[PlannedRecord]


@dataclass(frozen=True, slots=True)
class SegmentOpened:
    """The segment's file is open for records."""

    segment: Segment
    room_bytes: int
    """The bytes that the file system has left."""


@dataclass(frozen=True, slots=True)
class SegmentSynced:
    """The first `num_entries` entries survive a crash."""

    segment: Segment
    num_entries: int


@dataclass(frozen=True, slots=True)
class SegmentBroken:
    """The segment takes no more records, and keeps what was synced."""

    segment: Segment
    error: OSError
    is_gone: bool
    room_bytes: int
    """The bytes that the file system has left, if the error is that it is full."""


@dataclass(frozen=True, slots=True)
class FolderSeen:
    """The folder is there and ours."""

    used_bytes: int
    """The bytes that the tier had then."""
    room_bytes: int
    """The bytes that the file system has left."""


@dataclass(frozen=True, slots=True)
class FolderBroken:
    """The folder is gone, or another engine has it. No segment was open."""

    error: OSError


@dataclass(frozen=True, slots=True)
class SegmentSealed:
    """The segment has its summary and takes no more records."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class SegmentDeleted:
    """The segment's file is deleted, or could not be: then `error` says why."""

    segment: Segment
    error: OSError | None


@dataclass(frozen=True, slots=True)
class ResetMarked:
    """The marker of a reset is written, or could not be: then `error` says why."""

    error: OSError | None


@dataclass(frozen=True, slots=True)
class RunRead:
    """The end of a run: the indices of damaged records, or why nothing could be read."""

    run: ReadRun
    damaged: frozenset[int]
    error: OSError | None = None


@dataclass(frozen=True, slots=True)
class ProbeEnded:
    """A probe of a degraded disk has ended: the files that are there, or why it still does not work."""

    files: dict[str, int] | None
    reason: str


Report: TypeAlias = (
    RecordsWritten
    | SegmentOpened
    | SegmentSynced
    | SegmentBroken
    | FolderSeen
    | FolderBroken
    | SegmentSealed
    | SegmentDeleted
    | ResetMarked
    | RunRead
    | ProbeEnded
)


def count_records(report: Report) -> int:
    """The work of receiving the report, in records."""
    match report:
        case RecordsWritten(written, failed):
            return len(written) + len(failed)
        case RunRead(run):
            return len(run.parts)
        case _:
            return 1


class Reports:
    """The queue of reports. It holds at most one report per order, and orders are bounded."""

    def __init__(self) -> None:
        self._reports: deque[Report] = deque()
        self._arrived = Event()

    def put(self, report: Report) -> None:
        self._reports.append(report)
        self._arrived.set()

    def take(self) -> Report | None:
        if self._reports:
            return self._reports.popleft()
        self._arrived.clear()
        return self._reports.popleft() if self._reports else None

    def wait(self, timeout_s: float) -> bool:
        """Blocks until there is a report. False if time is up before."""
        return bool(self._reports) or self._arrived.wait(timeout_s)


class Ticket:
    """Says whether a thread is in a call to the disk, and whether that is still the same call. Only the thread itself
    writes it."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = 0

    def __enter__(self) -> None:
        self._number += 1

    def __exit__(self, *_: object) -> None:
        self._number += 1

    @property
    def busy_with(self) -> int | None:
        """The number of the call that is under way."""
        number = self._number
        return number if number % 2 else None
