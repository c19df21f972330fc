"""The readers: a few threads that read runs of records, verify each, and copy it out.

Each reads into a buffer of its own and opens the file for each run: a read that hangs holds no memory but the tier's,
a file that was deleted is noticed, and any number of segments needs few descriptors.
"""

import threading
import time
from queue import SimpleQueue

from octavo.tiers.buffers import scatter
from octavo.tiers.disk.directory import OpenedDirectory
from octavo.tiers.disk.io import AlignedBuffer, as_disk_error, opened, read_all
from octavo.tiers.disk.layout import (
    ALIGNMENT,
    RECORD_HEADER_BYTES,
    TAG_BYTES,
    find_record,
    record_bytes,
)
from octavo.tiers.disk.operations import ReadPart, ReadRun, Reports, RunRead, Ticket
from octavo.tiers.disk.segment import segment_name


class Readers:
    """`submit` is for the engine's thread, which bounds what is under way."""

    def __init__(self, opened: OpenedDirectory, reports: Reports, *, num_threads: int, buffer_bytes: int) -> None:
        self.tickets = [Ticket() for _ in range(num_threads)]
        self._io = opened.io
        self._namespace = opened.owner.namespace
        self._cipher = opened.owner.cipher
        self._key_id = opened.owner.key_id
        self._reports = reports
        scratch_bytes = buffer_bytes if self._cipher else ALIGNMENT
        self._runs: SimpleQueue[ReadRun | None] = SimpleQueue()
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(ticket, AlignedBuffer(buffer_bytes), AlignedBuffer(scratch_bytes)),
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
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, ticket: Ticket, buffer: AlignedBuffer, scratch: AlignedBuffer) -> None:
        while (run := self._runs.get()) is not None:
            try:
                report = self._read(run, ticket, buffer, scratch)
            except Exception as error:  # noqa: BLE001 - OSErrors, and what nobody expected
                report = RunRead(run, frozenset(), as_disk_error(error))
            self._reports.put(report)

    def _read(self, run: ReadRun, ticket: Ticket, buffer: AlignedBuffer, scratch: AlignedBuffer) -> RunRead:
        if all(part.job.is_cancelled for part in run.parts):
            return RunRead(run, frozenset())
        with ticket, opened(self._io, segment_name(run.segment.number)) as fd:
            num_bytes = read_all(self._io, fd, buffer.view[: run.num_bytes], run.offset)
        data = buffer.view[:num_bytes]
        damaged = set()
        for i, part in enumerate(run.parts):
            record = data[part.offset - run.offset :][: record_bytes(part.length)]
            payload = self._verified(run, part, record, scratch)
            if payload is None:
                damaged.add(i)
            else:
                _hand_over(part, payload)
        return RunRead(run, frozenset(damaged))

    def _verified(self, run: ReadRun, part: ReadPart, record: memoryview, scratch: AlignedBuffer) -> memoryview | None:
        """The chunk's bytes; None if the record is another one or is not whole."""
        place = run.segment.number, part.offset
        header = find_record(record, key=part.key, namespace=self._namespace, length=part.length, place=place)
        if header is None or (header.key_id, header.held_blocks) != (self._key_id, part.held):
            return None
        if self._cipher is None:
            return record[RECORD_HEADER_BYTES:][: part.length]
        encrypted, into = record[RECORD_HEADER_BYTES:][: part.length + TAG_BYTES], scratch.view[: part.length]
        identity = (part.key, self._namespace, part.held)
        return into if self._cipher.decrypt(encrypted, into, header.nonce, identity) else None


def _hand_over(part: ReadPart, payload: memoryview) -> None:
    """Copies a chunk to its owner, unless the job was cancelled."""
    with part.job.guard.access() as is_allowed:
        if not is_allowed:
            return
        try:
            scatter(payload, part.buffers)
        except (ValueError, TypeError, BufferError):  # the caller's memory has gone: this job's failure alone
            part.job.failed.add(part.index)
