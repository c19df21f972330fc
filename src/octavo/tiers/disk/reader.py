"""The readers: a few threads that read runs of records, verify each, and copy it out.

Each reads into a buffer of its own and opens the file for each run: a read that hangs holds no memory but the tier's,
a file that was deleted is noticed, and any number of segments needs few descriptors.
"""

import os
import threading
from queue import SimpleQueue

from octavo.tiers.buffers import scatter
from octavo.tiers.disk.io import AlignedBuffer, DiskIO, as_disk_error, read_all
from octavo.tiers.disk.layout import RECORD_HEADER_BYTES, is_whole, parse_record_header, record_bytes
from octavo.tiers.disk.operations import ReadPart, ReadRun, Reports, RunRead, Ticket
from octavo.tiers.disk.segment import segment_name


class Readers:
    """`submit` is for the engine's thread, which bounds what is under way."""

    def __init__(self, *, io: DiskIO, namespace: bytes, num_threads: int, buffer_bytes: int, reports: Reports) -> None:
        self.tickets = [Ticket() for _ in range(num_threads)]
        self._io = io
        self._namespace = namespace
        self._reports = reports
        self._runs: SimpleQueue[ReadRun | None] = SimpleQueue()
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(ticket, AlignedBuffer(buffer_bytes)),
                name=f"octavo-disk-reader-{i}",
                daemon=True,
            )
            for i, ticket in enumerate(self.tickets)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, run: ReadRun) -> None:
        self._runs.put(run)

    def stop(self) -> None:
        for _ in self._threads:
            self._runs.put(None)

    def join(self, timeout_s: float) -> bool:
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, ticket: Ticket, buffer: AlignedBuffer) -> None:
        while (run := self._runs.get()) is not None:
            try:
                report = self._read(run, ticket, buffer)
            except Exception as error:  # noqa: BLE001 - OSErrors, and what nobody expected
                report = RunRead(run, frozenset(), as_disk_error(error))
            self._reports.put(report)

    def _read(self, run: ReadRun, ticket: Ticket, buffer: AlignedBuffer) -> RunRead:
        if all(part.job.is_cancelled for part in run.parts):
            return RunRead(run, frozenset())
        with ticket:
            fd = self._io.open(segment_name(run.segment.number), os.O_RDONLY)
            try:
                num_bytes = read_all(self._io, fd, buffer.view[: run.num_bytes], run.offset)
            finally:
                self._io.close(fd)
        data = buffer.view[:num_bytes]
        damaged = set()
        for i, part in enumerate(run.parts):
            record = data[part.offset - run.offset :][: record_bytes(part.length)]
            if self._is_right(run, part, record):
                _hand_over(part, record[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + part.length])
            else:
                damaged.add(i)
        return RunRead(run, frozenset(damaged))

    def _is_right(self, run: ReadRun, part: ReadPart, record: memoryview) -> bool:
        header = parse_record_header(record)
        return (
            header is not None
            and (header.key, header.held_blocks, header.length) == (part.key, part.held, part.length)
            and (header.namespace, header.segment, header.offset) == (self._namespace, run.segment.number, part.offset)
            and is_whole(record, part.length)
        )


def _hand_over(part: ReadPart, payload: memoryview) -> None:
    """Copies a chunk to its owner, if he still wants it."""
    with part.job.guard.access() as is_allowed:
        if not is_allowed:
            return
        try:
            scatter(payload, part.buffers)
        except (ValueError, TypeError, BufferError):  # the caller's memory has gone: this job's failure alone
            part.job.failed.add(part.place)
