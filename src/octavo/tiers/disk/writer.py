"""The writer: one thread that does the orders of the plan one by one, through two buffers in turn.

    caller's buffers or an older segment --copy, checksum--> a buffer --O_DIRECT--> the open segment

Records that lie one behind the other share a write. A buffer is written when it is full, when the next record lies
elsewhere, and when nothing more is ordered; so a record never waits for others. While one is written the other is
filled; any order but a record's first waits for the write under way. A record is whole in the buffer before
any of it is written: one whose job is cancelled leaves zeros, never a part of itself, and so does one whose bytes are
not what their checksum says.
"""

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import assert_never

from octavo.tiers.disk.directory import OpenedDirectory
from octavo.tiers.disk.io import AlignedBuffer, as_disk_error, write_all
from octavo.tiers.disk.layout import VERSION, SegmentHeader, pack_segment_header
from octavo.tiers.disk.marker import marker_name, write_marker
from octavo.tiers.disk.operations import (
    ClearReset,
    DeleteSegment,
    FolderBroken,
    FolderSeen,
    MarkReset,
    OpenSegment,
    Order,
    PlannedRecord,
    RecordsWritten,
    Reports,
    ResetMarked,
    SealSegment,
    SegmentBroken,
    SegmentDeleted,
    SegmentOpened,
    SegmentSealed,
    SegmentSynced,
    Stop,
    Sync,
    Ticket,
    WriteRecords,
)
from octavo.tiers.disk.record_maker import RecordMaker
from octavo.tiers.disk.room import is_full, usable_bytes
from octavo.tiers.disk.seal import write_summary
from octavo.tiers.disk.segment import Segment, segment_name
from octavo.tiers.disk.write_behind import WriteBehind


class Writer:
    """Owns the open file and the buffer. `submit` is called by the engine's thread; everything else runs on the
    writer's own."""

    def __init__(
        self, opened: OpenedDirectory, reports: Reports, *, buffer_bytes: int, describe: Callable[[], None] | None
    ) -> None:
        self.ticket = Ticket()
        self._io = opened.io
        self._lock = opened.lock
        self._owner = opened.owner
        self._maker = RecordMaker(opened.io, self.ticket, opened.owner, most_bytes=buffer_bytes)
        self._ledger = opened.ledger
        self._reports = reports
        self._describe = describe
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._fd: int | None = None
        self._segment: Segment | None = None
        self._behind = WriteBehind(opened.io)
        self._under_way: RecordsWritten | None = None
        self._buffer, self._other_buffer = AlignedBuffer(buffer_bytes), AlignedBuffer(buffer_bytes)
        self._start = self._filled = 0
        self._packed: list[PlannedRecord] = []
        self._failed: list[PlannedRecord] = []
        self._num_entries = 0
        """The entries of the open segment that were written or given up."""
        self._num_unsynced = 0
        """The records that were reported as written since the last sync."""
        self._lost_something = False
        """Whether accepted records were lost before they were synced; the next flush says so."""
        self._thread = threading.Thread(target=self._run, name="octavo-disk-writer", daemon=True)
        self._thread.start()

    @property
    def tickets(self) -> list[Ticket]:
        return [self.ticket, self._behind.ticket]

    def submit(self, order: Order) -> None:
        """Takes an order. The caller bounds what is under way."""
        self._orders.put(order)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        order: Order | None = None
        while not isinstance(order, Stop):
            order = self._orders.get()
            records = order.records if isinstance(order, WriteRecords) else []
            num_packed = 0
            try:
                for record in records:
                    self._pack(record)
                    num_packed += 1
                if not isinstance(order, WriteRecords):
                    self._settle()
                    self._do(order)
                if self._orders.empty():
                    self._settle()
            except Exception as cause:  # noqa: BLE001 - whatever it was, the tier hears of it and the thread goes on
                error = as_disk_error(cause)
                self._give_up(error, records[num_packed:])
                self._fail(order, error)

    def _give_up(self, error: OSError, not_packed: list[PlannedRecord]) -> None:
        """Gives up the open segment and what was on its way there."""
        lost = [*self._packed, *self._failed, *not_packed]
        self._packed, self._failed = [], []
        self._start = self._filled = 0
        self._end_write()
        if self._segment is not None and not self._segment.is_broken:
            self._break(self._segment, error)
        if lost:
            self._reports.put(RecordsWritten([], lost))

    def _fail(self, order: Order, error: OSError) -> None:
        match order:
            case OpenSegment(segment=segment) | SealSegment(segment):
                if not segment.is_broken:
                    self._break(segment, error)
            case DeleteSegment(segment):
                self._reports.put(SegmentDeleted(segment, error))
            case MarkReset():
                self._lost_something = True
                self._reports.put(ResetMarked(error))
            case Sync():
                order.is_done.set()
            case Stop():
                self._behind.stop()

    def _do(self, order: OpenSegment | SealSegment | DeleteSegment | MarkReset | ClearReset | Sync | Stop) -> None:
        match order:
            case OpenSegment():
                self._open(order)
            case SealSegment():
                self._seal(order.segment)
            case DeleteSegment():
                self._delete(order.segment)
            case MarkReset():
                self._mark_reset(order.floor)
            case ClearReset():
                with suppress(OSError), self.ticket:  # a floor that stays does no harm: numbers only grow
                    self._io.sync_directory()
                    self._io.unlink(marker_name(self._owner.family))
            case Sync():
                order.is_durable = self._sync() and not self._lost_something
                self._lost_something = self._lost_something and not order.is_flush
                order.is_done.set()
            case Stop():
                self._close()
                self._behind.stop()
            case _:
                assert_never(order)

    # Records

    def _pack(self, record: PlannedRecord) -> None:
        segment, offset = record.segment, record.segment.offsets[record.entry]
        if segment is not self._segment or segment.is_broken:
            self._settle()
            self._reports.put(RecordsWritten([], [record]))
            return
        if offset != self._start + self._filled or self._filled + record.size > len(self._buffer):
            self._write_buffer()
            self._start = offset
        view = self._buffer.view[self._filled : self._filled + record.size]
        self._filled += record.size
        (self._packed if self._maker.make(record, view) else self._failed).append(record)
        record.buffers = ()

    def _write_buffer(self) -> None:
        """Starts to write what is packed, after the write before it has ended."""
        self._end_write()
        if not self._filled:
            return
        assert self._segment is not None, "records are packed for an open segment"
        batch = RecordsWritten(self._packed, self._failed)
        self._packed, self._failed = [], []
        if self._segment.is_broken:
            self._reports.put(_none_of(batch))
        else:
            assert self._fd is not None, "an open segment has a file"
            self._behind.start(self._fd, self._buffer.view[: self._filled], self._start)
            self._under_way = batch
            self._buffer, self._other_buffer = self._other_buffer, self._buffer
        self._start = self._filled = 0

    def _end_write(self) -> None:
        batch, self._under_way = self._under_way, None
        if batch is None:
            return
        error = self._behind.wait()
        if error is not None:
            assert self._segment is not None, "a segment is closed when nothing is written to it"
            self._break(self._segment, error)
            batch = _none_of(batch)
        else:
            self._num_unsynced += len(batch.written)
            self._num_entries = max(record.entry + 1 for record in (*batch.written, *batch.failed))
        self._reports.put(batch)

    def _settle(self) -> None:
        """Ends with nothing packed and no write under way."""
        self._write_buffer()
        self._end_write()

    # Segments

    def _open(self, order: OpenSegment) -> None:
        """A segment that cannot be opened is broken, and every record that was planned for it fails."""
        self._close()
        segment = self._segment = order.segment
        self._num_entries, self._num_unsynced = order.num_entries or 0, 0
        name = segment_name(segment.number)
        is_new, is_made = order.num_entries is None, False
        try:
            with self.ticket:
                self._lock.check()
                room_bytes = self._take_room(segment, order.num_bytes)
                self._ledger.set_file(segment.number, order.num_bytes)
                self._fd = self._io.open(name, os.O_RDWR | (os.O_CREAT | os.O_EXCL if is_new else 0))
                is_made = is_new
                self._io.allocate(self._fd, order.num_bytes)
                if is_new:
                    self._write_header(segment, order.num_bytes)
                    if self._describe is not None:  # somebody may have emptied the directory
                        self._describe()
                self._io.sync(self._fd)
                self._io.sync_directory()
            self._reports.put(SegmentOpened(segment, room_bytes))
        except OSError as error:
            is_gone = is_new and (not is_made or self._unlink(name))
            if is_gone:
                self._ledger.drop_file(segment.number)
            self._break(segment, error, is_gone=is_gone)

    def _take_room(self, segment: Segment, num_bytes: int) -> int:
        """The room that is left when the file has this size; OSError if there is less than none."""
        room_bytes = usable_bytes(self._io.space()) - (num_bytes - self._ledger.file_bytes(segment.number))
        if room_bytes < 0:
            raise OSError(errno.ENOSPC, "the file system is full but for its reserve")
        return room_bytes

    def _unlink(self, name: str) -> bool:
        try:
            with self.ticket:
                self._io.unlink(name)
        except OSError:
            return False
        return True

    def _write_header(self, segment: Segment, num_bytes: int) -> None:
        assert self._fd is not None, "called between opening and closing"
        owner = self._owner
        header = SegmentHeader(
            VERSION, segment.number, segment.created_ns, owner.namespace, num_bytes, owner.key_id, owner.family
        )
        block = pack_segment_header(header)
        view = self._buffer.view[: len(block)]
        view[:] = block
        write_all(self._io, self._fd, view, 0)

    def _seal(self, segment: Segment) -> None:
        if segment is not self._segment:
            self._open_again(segment)
        if segment.is_broken or self._fd is None:
            return
        try:
            with self.ticket:
                file_bytes = write_summary(self._io, self._fd, segment, self._owner.namespace, self._owner.family)
                self._check_is_linked(self._fd, segment)
        except OSError as error:
            self._break(segment, error)
        else:
            self._ledger.set_file(segment.number, file_bytes)
            self._num_unsynced = 0
            self._reports.put(SegmentSealed(segment))
        self._close()

    def _open_again(self, segment: Segment) -> None:
        """Opens a segment that was found without a summary."""
        self._close()
        self._segment = segment
        try:
            with self.ticket:
                self._fd = self._io.open(segment_name(segment.number), os.O_RDWR)
        except OSError as error:
            self._break(segment, error)

    def _delete(self, segment: Segment) -> None:
        if segment is self._segment:
            self._close()
        try:
            with self.ticket:
                self._io.unlink(segment_name(segment.number))
        except OSError as error:
            self._reports.put(SegmentDeleted(segment, error))
            return
        self._ledger.drop_file(segment.number)
        self._reports.put(SegmentDeleted(segment, None))

    def _mark_reset(self, floor: int) -> None:
        error = None
        try:
            with self.ticket:
                write_marker(self._io, self._owner.family, floor)
        except OSError as cause:
            error = cause
            self._lost_something = True
        self._reports.put(ResetMarked(error))

    def _sync(self) -> bool:
        """Makes durable what was written. Without that it still looks whether the folder is there and ours."""
        segment = self._segment if self._segment and not self._segment.is_broken else None
        try:
            with self.ticket:
                self._lock.check()
                if segment is not None:
                    assert self._fd is not None, "an open segment has a file"
                    if self._num_unsynced:
                        self._io.sync(self._fd)
                    self._check_is_linked(self._fd, segment)
                if segment is None or not self._num_unsynced:
                    self._reports.put(FolderSeen(self._ledger.used_bytes, usable_bytes(self._io.space())))
                    return True
        except OSError as error:
            if segment is None:
                self._reports.put(FolderBroken(error))
            else:
                self._break(segment, error)
            return False
        self._num_unsynced = 0
        self._reports.put(SegmentSynced(segment, self._num_entries))
        return True

    def _check_is_linked(self, fd: int, segment: Segment) -> None:
        """OSError if the open segment was deleted: whatever was written and synced there, nobody finds it."""
        if not self._io.is_linked(fd, segment_name(segment.number)):
            raise FileNotFoundError(errno.ENOENT, "a segment's file was deleted")

    def _break(self, segment: Segment, error: OSError, *, is_gone: bool = False) -> None:
        segment.is_broken = True
        self._lost_something |= self._num_unsynced > 0
        self._num_unsynced = 0
        room_bytes = 0
        if is_full(error):
            with suppress(OSError):
                room_bytes = usable_bytes(self._io.space())
        self._reports.put(SegmentBroken(segment, error, is_gone, room_bytes))

    def _close(self) -> None:
        self._segment = None
        if self._fd is not None:
            with suppress(OSError):
                self._io.close(self._fd)
            self._fd = None


def _none_of(batch: RecordsWritten) -> RecordsWritten:
    return RecordsWritten([], [*batch.written, *batch.failed])
