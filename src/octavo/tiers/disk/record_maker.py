"""Records made whole in a buffer: the payload from a job's buffers or an older segment, and the header before it."""

from octavo.tiers.buffers import gather, gives_checksum
from octavo.tiers.disk.directory import Owner
from octavo.tiers.disk.io import AlignedBuffer, DiskIO, opened, read_all
from octavo.tiers.disk.layout import (
    ALIGNMENT,
    NO_KEY_ID,
    NO_NONCE,
    RECORD_HEADER_BYTES,
    TAG_BYTES,
    RecordHeader,
    find_record,
    write_record_header,
)
from octavo.tiers.disk.operations import PlannedRecord, Ticket
from octavo.tiers.disk.segment import Segment, segment_name


class RecordMaker:
    """Makes records of one namespace under one key. The writer's thread calls it."""

    def __init__(self, io: DiskIO, ticket: Ticket, owner: Owner, *, most_bytes: int) -> None:
        self._io = io
        self._ticket = ticket
        self._namespace = owner.namespace
        self._cipher = owner.cipher
        self._scratch = AlignedBuffer(most_bytes if owner.cipher else ALIGNMENT)
        """The bytes that are to be encrypted."""

    def make(self, record: PlannedRecord, view: memoryview) -> bool:
        """False if there are no bytes that may be stored: the place then begins with zeros, which are no record."""
        encryption = self._fill(record, view)
        if encryption is None:
            view[:RECORD_HEADER_BYTES] = bytes(RECORD_HEADER_BYTES)
            return False
        segment, entry = record.segment, record.entry
        header = RecordHeader(
            record.key,
            self._namespace,
            segment.held[entry],
            segment.lengths[entry],
            segment.sequences[entry],
            segment.number,
            segment.offsets[entry],
            *encryption,
            segment.tenant(entry),
        )
        segment.checksums[entry * 16 : entry * 16 + 16] = write_record_header(view, header)
        return True

    def _fill(self, record: PlannedRecord, view: memoryview) -> tuple[bytes, bytes] | None:
        """Copies the payload to its place. Returns key id and nonce; None if there is no payload."""
        length = record.segment.lengths[record.entry]
        if record.source is not None:
            return self._read_source(*record.source, view, record)
        assert record.job is not None, "a record comes from a job or from a segment"
        with record.job.guard.access() as is_allowed:
            if not is_allowed:
                return None
            payload = self._scratch.view[:length] if self._cipher else view[RECORD_HEADER_BYTES:][:length]
            try:
                gather(record.buffers, payload)
            except (ValueError, TypeError, BufferError):  # the caller's memory has gone: this job's failure alone
                return None
        if not gives_checksum(payload, record.checksum):
            return None
        if self._cipher is None:
            return NO_KEY_ID, NO_NONCE
        identity = (record.key, self._namespace, record.segment.held[record.entry])
        into = view[RECORD_HEADER_BYTES:][: length + TAG_BYTES]
        return self._cipher.key_id, self._cipher.encrypt(payload, into, identity)

    def _read_source(
        self, source: Segment, entry: int, view: memoryview, record: PlannedRecord
    ) -> tuple[bytes, bytes] | None:
        """Reads a hot record of a segment that is about to go. If it cannot be read, it goes too."""
        offset = source.offsets[entry]
        try:
            with self._ticket, opened(self._io, segment_name(source.number)) as fd:
                num_bytes = read_all(self._io, fd, view, offset)
        except OSError:
            return None
        length, place = record.segment.lengths[record.entry], (source.number, offset)
        header = find_record(view[:num_bytes], key=record.key, namespace=self._namespace, length=length, place=place)
        return None if header is None else (header.key_id, header.nonce)
