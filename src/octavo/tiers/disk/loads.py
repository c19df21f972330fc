"""`Loads`: from a job of chunks to runs of records for the readers, and back; on the engine's thread."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.chunks import ChunkBytes
from octavo.tiers.buffers import total_bytes
from octavo.tiers.disk.contents import Contents
from octavo.tiers.disk.io import is_of_the_disk
from octavo.tiers.disk.jobs import Jobs
from octavo.tiers.disk.layout import record_bytes
from octavo.tiers.disk.operations import DiskJob, ReadPart, ReadRun, RunRead
from octavo.tiers.disk.reader import Readers
from octavo.tiers.disk.segment import Segment

_LEAST_BYTES = 1 << 20
"""The least bytes of a read. Smaller reads cost more by their number than they gain by running side by side."""

_MOST_OUTAGES = 2
"""A segment because of which the disk was turned off this often, with no good read of it between, loses its records."""


@dataclass(slots=True)
class LoadCounts:
    """Counts of loads, for metrics."""

    loaded: int = 0
    load_failed: int = 0
    corrupt: int = 0


class Loads:
    """Splits jobs into reads. A chunk that is not there, or not as it was asked for, fails at once; the others are
    read."""

    def __init__(self, *, contents: Contents, readers: Readers, jobs: Jobs, most_bytes_per_read: int) -> None:
        """`most_bytes_per_read` is at least the size of any record."""
        self.counts = LoadCounts()
        self.errors_in_a_row = 0
        """Reads that failed with an error of the disk since the last read that did not."""
        self._contents = contents
        self._readers = readers
        self._jobs = jobs
        self._most_bytes = most_bytes_per_read
        self._num_readers = len(readers.tickets)

    def submit(self, job: DiskJob, chunks: Sequence[ChunkBytes]) -> None:
        parts: list[tuple[Segment, ReadPart]] = []
        for index, chunk in enumerate(chunks):
            part = self._find_part(job, index, chunk)
            if part is None:
                job.failed.add(index)
                self.counts.load_failed += 1
            else:
                parts.append(part)
        job.num_left = len(parts)
        self._jobs.add(job)
        share = sum(part.length for _, part in parts) // self._num_readers  # no reader idles while one reads it all
        for run in join_runs(parts, min(self._most_bytes, max(share, _LEAST_BYTES))):
            run.segment.num_reads += 1
            self._readers.submit(run)

    def run_read(self, report: RunRead, generation: int) -> None:
        """Handles the end of a run. A record that is damaged or unreadable is dropped, but not where the process could
        not open its file. What was read for an older generation of the tier counts as failed."""
        run, error = report.run, report.error
        run.segment.num_reads -= 1
        self.errors_in_a_row = 0 if error is None else self.errors_in_a_row + 1
        if error is None:
            run.segment.num_outages = 0
        is_known = run.segment.number in self._contents.segments
        is_unreadable = error is not None and is_of_the_disk(error)
        for i, part in enumerate(run.parts):
            is_damaged = i in report.damaged
            self.counts.corrupt += is_damaged
            if (is_damaged or is_unreadable) and is_known:
                self._contents.forget_at(run.segment, [part.entry])
            has_failed = is_damaged or error is not None or part.job.generation != generation
            self.counts.load_failed += has_failed
            self.counts.loaded += not has_failed
            self._jobs.chunk_done(part.job, part.index, has_failed=has_failed)

    def note_outage(self, segment: Segment, error: OSError) -> int:
        """The disk is turned off since this segment could not be read. A disk that works otherwise shall not be turned
        off for it again and again. Returns how many records are given up."""
        if not is_of_the_disk(error) or segment.number not in self._contents.segments:
            return 0
        segment.num_outages += 1
        is_bad = segment.num_outages >= _MOST_OUTAGES
        return self._contents.forget_at(segment, range(segment.num_synced)) if is_bad else 0

    def _find_part(self, job: DiskJob, index: int, chunk: ChunkBytes) -> tuple[Segment, ReadPart] | None:
        found = self._contents.find(chunk.key)
        if found is None:
            return None
        segment, entry = found
        length, held = segment.lengths[entry], segment.held[entry]
        if (total_bytes(chunk.buffers), chunk.held_blocks) != (length, held):
            return None
        segment.hit(entry)
        return segment, ReadPart(job, index, chunk.buffers, entry, segment.offsets[entry], length, held, chunk.key)


def join_runs(parts: list[tuple[Segment, ReadPart]], most_bytes: int) -> list[ReadRun]:
    """Joins records that lie one behind the other into single reads of up to `most_bytes`."""
    runs: list[ReadRun] = []
    start, end, segment, members = 0, 0, None, list[ReadPart]()
    for owner, part in sorted(parts, key=lambda item: (item[0].number, item[1].offset)):
        size = record_bytes(part.length)
        if owner is not segment or part.offset != end or end + size - start > most_bytes:
            if segment is not None:
                runs.append(ReadRun(segment, start, end - start, members))
            segment, start, members = owner, part.offset, []
        members.append(part)
        end = part.offset + size
    if segment is not None:
        runs.append(ReadRun(segment, start, end - start, members))
    return runs
