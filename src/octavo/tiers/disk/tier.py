"""`DiskTier`: the contract of a tier over log, writer and readers. All bookkeeping runs on the engine's thread.

What is guaranteed. A store that did not fail is found by `lookup`, and by the next process once `flush` has returned
True; without a flush, a sync follows after `sync_bytes` or, while `poll` is called, `sync_s`. A crash at any byte loses
what was not synced and nothing else; a record that is torn, or damaged later, is never served. `remove` is not durable:
a key names its content, so a record that comes back is right. `reset` is, once `is_reset_durable` says so.
"""

import gc
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import assert_never

from octavo.chunks import ChunkBytes, OffloadKey, TierChanges, TierResult
from octavo.tiers.base import Tier, TierContext, TierStatus
from octavo.tiers.buffers import total_bytes
from octavo.tiers.disk.cipher import RecordCipher
from octavo.tiers.disk.config import DiskConfig
from octavo.tiers.disk.contents import Contents
from octavo.tiers.disk.directory import OpenedDirectory, Owner
from octavo.tiers.disk.health import DiskHealth, Watchdog, describe
from octavo.tiers.disk.io import DiskIO, NotOursError
from octavo.tiers.disk.jobs import Jobs
from octavo.tiers.disk.layout import aligned, can_hold, record_bytes
from octavo.tiers.disk.loads import Loads
from octavo.tiers.disk.log import SegmentLog, complete
from octavo.tiers.disk.opening import open_directory, tell_of_others
from octavo.tiers.disk.operations import (
    DiskJob,
    FolderBroken,
    FolderSeen,
    ProbeEnded,
    RecordsWritten,
    Report,
    Reports,
    ResetMarked,
    RunRead,
    SegmentBroken,
    SegmentDeleted,
    SegmentOpened,
    SegmentSealed,
    SegmentSynced,
    Stop,
    count_records,
)
from octavo.tiers.disk.reader import Readers
from octavo.tiers.disk.room import Room, is_full
from octavo.tiers.disk.segment import Segment, segment_name
from octavo.tiers.disk.syncs import Syncs
from octavo.tiers.disk.writer import Writer

_BUFFER_BYTES = 4 << 20
"""Records that lie together are written and read in pieces of at most this size, or one by one if they are larger."""
_RECORDS_PER_POLL = 1024
"""A poll that has handled this many records stops after the present report, so that no poll pays for a whole queue."""
_READ_ERRORS_IN_A_ROW = 3
"""A bad spot costs its records only; a disk that fails this many reads in a row is turned off."""


class DiskTier(Tier):
    """One directory under one namespace."""

    medium = "disk"

    def __init__(
        self,
        config: DiskConfig,
        context: TierContext,
        io: DiskIO,
        cipher: RecordCipher | None = None,
        describe: Callable[[], None] | None = None,
    ) -> None:
        """`describe` leaves in the directory whose chunks these are, if that is gone. It raises nothing."""
        owner, segment_bytes = Owner.of(context, cipher), config.segment_bytes_for(context.max_chunk_bytes)
        opened = open_directory(config.path, io=io, owner=owner, budget_bytes=config.size_bytes, wait_s=config.wait_s)
        tell_of_others(opened, segment_bytes)
        self._config = config
        self._max_chunk_bytes = context.max_chunk_bytes
        self._io = io
        self._lock = opened.lock
        self._ledger = opened.ledger
        self._run_bytes = max(_BUFFER_BYTES, aligned(record_bytes(context.max_chunk_bytes)))
        self._reports = reports = Reports()
        self._writer = Writer(opened, reports, buffer_bytes=self._run_bytes, describe=describe)
        self._readers = Readers(opened, reports, num_threads=config.read_threads, buffer_bytes=self._run_bytes)
        self._health = DiskHealth(opened, reports, segment_bytes=segment_bytes)
        tickets = [*self._writer.tickets, *self._readers.tickets, self._health.probe_ticket]
        self._watchdog = Watchdog(tickets, config.hang_s)
        self._contents = Contents()
        self._room = Room(config.path, budget_bytes=config.size_bytes, segment_bytes=segment_bytes)
        self._room.measured(opened.ledger.used_bytes, opened.room_bytes)
        self._log = SegmentLog(
            opened, contents=self._contents, writer=self._writer, room=self._room, segment_bytes=segment_bytes
        )
        self._stores = Jobs(config.queue_jobs, config.queue_bytes)
        self._loads = Jobs(config.queue_jobs, config.queue_bytes)
        self._loader = Loads(
            contents=self._contents, readers=self._readers, jobs=self._loads, most_bytes_per_read=self._run_bytes
        )
        self._syncs = Syncs(self._writer, most_bytes=config.sync_bytes, most_s=config.sync_s)
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._generation = 0
        self._is_hanging = False
        self._is_closed = False
        self._take_over(opened)

    # What is there

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        if not self._is_serving:
            return [0] * len(keys)
        return self._contents.held(keys)

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        if not self._is_serving:
            return [0] * len(keys)
        return self._contents.lengths(keys)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            found = self._contents.find(key)
            if found is not None:
                found[0].hit(found[1])

    def take_changes(self) -> TierChanges:
        return self._contents.take_changes()

    def owned_by(self, tenants: Collection[bytes]) -> list[tuple[OffloadKey, bytes, int]]:
        return self._contents.owned_by(tenants)

    def announce(self) -> None:
        self._contents.announce()

    def status(self) -> TierStatus:
        return TierStatus(
            state=self._health.state,
            reason=self._health.reason,
            bytes_used=self._ledger.used_bytes,
            bytes_budget=self._ledger.budget_bytes,
            num_chunks=len(self._contents),
            counters={
                **self._counters,
                **asdict(self._loader.counts),
                **asdict(self._log.counts),
                "degradations": self._health.num_degradations,
                "disk_full": self._room.num_full,
            },
            levels={
                "segments": len(self._contents.segments),
                "foreign_segments": len(self._log.foreign),
                "direct_io": int(self._io.is_direct),
            },
        )

    # Jobs

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        lengths = [total_bytes(chunk.buffers) for chunk in chunks]
        most = self._max_chunk_bytes  # a chunk that is too large fails alone
        fits = [0 < length <= most and can_hold(chunk) for chunk, length in zip(chunks, lengths, strict=True)]
        keys = [chunk.key for chunk, is_fit in zip(chunks, fits, strict=True) if is_fit]
        fit_lengths = [length for length, is_fit in zip(lengths, fits, strict=True) if is_fit]
        num_bytes = sum(fit_lengths)
        is_admitted = self._is_serving and not self._room.is_paused and self._stores.has_room(num_bytes, len(chunks))
        has_place = is_admitted and self._log.can_append(keys, fit_lengths)
        if is_admitted and not has_place:
            self._room.forget_quota()
        if not has_place:
            self._counters["store_refused"] += len(chunks)
            return False
        job = DiskJob(job_id, self._generation, num_bytes=num_bytes, num_chunks=len(chunks))
        job.num_left = len(keys)
        self._stores.add(job)
        for index, chunk in enumerate(chunks):
            if fits[index]:
                complete(
                    self._log.append(chunk.key, lengths[index], chunk.held_blocks, chunk.tenant), job, index, chunk
                )
            else:
                job.failed.add(index)
                self._counters["store_unfit"] += 1
        self._log.send()
        self._syncs.accept(num_bytes)
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        num_bytes = sum(total_bytes(chunk.buffers) for chunk in chunks)
        if not self._is_serving or not self._loads.has_room(num_bytes, len(chunks)):
            self._counters["load_refused"] += len(chunks)
            return False
        job = DiskJob(job_id, self._generation, num_bytes=num_bytes, num_chunks=len(chunks))
        self._loader.submit(job, chunks)
        return True

    def cancel(self, job_id: int) -> None:
        for jobs in (self._stores, self._loads):
            jobs.cancel(job_id)

    def poll(self, now: float) -> list[TierResult]:
        num_records = 0
        while num_records < _RECORDS_PER_POLL and (report := self._reports.take()) is not None:
            num_records += count_records(report)
            self._receive(report)
        hanging_s = self._watchdog.longest_s(now)
        self._is_hanging = hanging_s > 0
        if not self._is_closed:
            self._health.poll(now, hanging_s=hanging_s)
            self._syncs.poll(now, is_looking=self._health.is_ok)
            self._room.poll(now)
            self._log.poll(now)
        self._contents.settle()
        return self._stores.take_finished() + self._loads.take_finished()

    def wait(self, timeout_s: float) -> bool:
        """Blocks until `poll` has something to do; False if time is up before. For callers with nothing else to do."""
        return not self._contents.is_settled or self._reports.wait(timeout_s)

    # What goes

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        self._contents.remove(keys)

    def reset(self) -> None:
        self._generation += 1
        self._syncs.accept(0)
        self._log.reset()

    # Durability

    def is_reset_durable(self) -> bool:
        return self._log.deletions.is_reset_durable

    def flush(self, timeout_s: float) -> bool:
        return not self._is_closed and self._syncs.flush(timeout_s)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._log.seal()
        self._writer.submit(Stop())
        self._readers.stop()
        end = time.monotonic() + self._config.close_s
        have_ended = self._writer.join(self._config.close_s)
        have_ended &= self._readers.join(max(0.0, end - time.monotonic()))
        if have_ended:  # a write that hangs may still land: then the directory stays locked while the process lives
            self._lock.release()
            self._io.leave()

    def check_invariants(self) -> None:
        """For tests: the index agrees with the segments, and the plan with the files."""
        self._contents.check_invariants()
        self._log.check_invariants()

    # Helpers

    @property
    def _is_serving(self) -> bool:
        return self._health.is_ok and not self._is_closed

    def _take_over(self, opened: OpenedDirectory) -> None:
        """Indexes what was found, goes on with the last segment, and gives the other segments the summaries that they
        lack."""
        for found in opened.not_read:
            self._log.foreign[found.number] = Segment(found.number, found.file_bytes)
            if found.family == opened.owner.family:
                self._log.relatives.add(found.number)
        for found in opened.found:
            segment = Segment(found.number, found.file_bytes, found.created_ns)
            assert found.table is not None, "what is ours was read"
            segment.load(found.table)
            segment.end = found.end
            self._contents.adopt(segment)
            if len(segment.sequences):
                self._log.continue_after(max(segment.sequences))
        for found in opened.found:
            segment = self._contents.segments[found.number]
            is_last = found is opened.found[-1]
            if is_last and not found.problem and self._log.can_continue(segment):
                self._log.continue_segment(segment)
            elif not found.is_sealed and not found.problem:
                self._log.seal_found(segment)
            else:
                segment.forget_writing()
        gc.collect(0)  # the keys' tuples are looked at once, here, and not by the first collection of a running engine

    # Reports

    def _receive(self, report: Report) -> None:  # noqa: C901, PLR0912 - one branch for each report
        match report:
            case RecordsWritten():
                self._records_written(report)
            case RunRead():
                self._run_read(report)
            case SegmentOpened():
                self._room.measured(self._ledger.used_bytes, report.room_bytes)
            case SegmentSynced(segment, num_entries):
                segment.num_synced = num_entries
                self._counters["syncs"] += 1
                self._health.worked("write")
            case SegmentSealed(segment):
                segment.num_synced = len(segment.keys)
                segment.forget_writing()
                self._health.worked("write")
            case SegmentBroken():
                self._segment_broken(report)
            case FolderSeen(used_bytes, room_bytes):
                self._room.seen(used_bytes, room_bytes)
            case FolderBroken(error):
                self._health.degrade(describe(error))
            case SegmentDeleted(segment, error):
                if error is not None and not self._log.deletions.has_stuck:
                    self._health.tell_of_stuck(segment_name(segment.number), error)
                self._log.deleted(segment, has_failed=error is not None)
            case ResetMarked(error):
                self._log.deletions.reset_marked(has_failed=error is not None)
                self._health.ended("reset", error, "a reset cannot be made durable")
            case ProbeEnded():
                self._probe_ended(report)
            case _:
                assert_never(report)

    def _records_written(self, report: RecordsWritten) -> None:
        for record in report.written:
            self._contents.land(record, is_written=not record.segment.is_broken)
            if record.job is not None:
                self._stores.chunk_done(record.job, record.index, has_failed=record.segment.is_broken)
        for record in report.failed:
            self._contents.land(record, is_written=False)
            if record.job is not None:
                self._stores.chunk_done(record.job, record.index, has_failed=True)
                self._counters["store_failed"] += not record.job.is_cancelled
        self._counters["stored"] += len(report.written)

    def _segment_broken(self, report: SegmentBroken) -> None:
        """Keeps what was synced; the rest is unknown."""
        segment = report.segment
        if not is_full(report.error):
            self._health.ended("write", report.error, "a segment cannot be written")
        self._log.abandon(segment)
        lost = self._contents.forget_at(segment, range(segment.num_synced, len(segment.keys)))
        self._counters["lost_unsynced"] += lost
        if report.is_gone:
            self._contents.segments.pop(segment.number, None)
        self._log.settle_size(segment)
        if is_full(report.error):
            self._room.ran_out(self._ledger.used_bytes, report.room_bytes)

    def _run_read(self, report: RunRead) -> None:
        self._loader.run_read(report, self._generation)
        if report.error is None:
            self._health.worked("read")
        elif isinstance(report.error, FileNotFoundError | NotOursError):
            self._lose(report.run.segment)
        elif self._loader.errors_in_a_row >= _READ_ERRORS_IN_A_ROW:
            if self._health.is_ok:
                self._counters["lost"] += self._loader.note_outage(report.run.segment, report.error)
            self._health.ended("read", report.error, "segments cannot be read")

    def _probe_ended(self, report: ProbeEnded) -> None:
        if not self._health.probe_ended(report, is_hanging=self._is_hanging):
            return
        assert report.files is not None, "a probe that succeeded has listed the directory"
        self._loader.errors_in_a_row = 0
        for segment in self._log.missing_from(report.files):
            self._lose(segment)
        self._log.adopt_strangers(report.files)
        self._log.retry()

    def _lose(self, segment: Segment) -> None:
        if segment.number in self._contents.segments:
            self._counters["lost_segments"] += 1
            self._counters["lost"] += self._log.lose(segment)


_COUNTERS = (
    "stored",
    "store_refused",
    "store_unfit",
    "store_failed",
    "load_refused",
    "lost_unsynced",
    "lost_segments",
    "lost",
    "syncs",
)
