"""`SegmentLog` plans the log: where a record goes, when a segment is sealed, and which one makes room.

    sealed, sealed, ... sealed | open: [records so far ........ | hot records of the next victim | free]

Only one thread plans, and the writer does orders in turn; so room that an earlier order makes may be planned with
at once. Once the open segment is half full and the budget has no room for another, the oldest segment goes: what of it
was hit since it was written moves into the open one, then its file is deleted. Delete, then create: never over budget.
If there is no room to move all of it, the segment stays and counts as the newest, as long as such segments take at most
half of the budget; so what is in use survives the log's turn without being written again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from octavo.chunks import NO_TENANT, ChunkBytes, OffloadKey
from octavo.tiers.disk.contents import Contents
from octavo.tiers.disk.deletions import Deletions
from octavo.tiers.disk.directory import OpenedDirectory
from octavo.tiers.disk.layout import ALIGNMENT, SEGMENT_HEADER_BYTES, record_bytes
from octavo.tiers.disk.operations import DiskJob, OpenSegment, PlannedRecord, SealSegment, WriteRecords
from octavo.tiers.disk.room import Room
from octavo.tiers.disk.seal import sealed_bytes
from octavo.tiers.disk.segment import Segment, segment_name, segment_number
from octavo.tiers.disk.summary import MAX_RECORDS, table_bytes
from octavo.tiers.disk.writer import Writer

_MOST_STAYING = 2
"""Segments that stay take at most half of the budget (1 / _MOST_STAYING), so that the other half goes on turning."""


@dataclass(slots=True)
class LogCounts:
    """Counts of the log, for metrics."""

    evicted: int = 0
    evicted_segments: int = 0
    evicted_foreign_segments: int = 0
    reinserted: int = 0
    stayed: int = 0
    """Segments that were in use when their turn came, and stayed."""


class SegmentLog:
    """The plan of one directory, whose size is counted as if all orders were done."""

    def __init__(
        self, opened: OpenedDirectory, *, contents: Contents, writer: Writer, room: Room, segment_bytes: int
    ) -> None:
        self.counts = LogCounts()
        self.foreign: dict[int, Segment] = {}
        """Segments of other namespaces and versions. They are never read, and go when they are the oldest."""
        self._contents = contents
        self._writer = writer
        self._ledger = opened.ledger
        self._room = room
        self._io = opened.io
        self._segment_bytes = segment_bytes
        self._next_number = opened.next_number
        self._next_sequence = 1
        self._planned_bytes = opened.ledger.used_bytes
        self._other_bytes = opened.ledger.used_bytes - opened.ledger.segment_bytes
        self._open: Segment | None = None
        self._batch: list[PlannedRecord] = []
        self.relatives: set[int] = set()
        """The foreign segments of other namespaces of the same model, which a reset reaches."""
        self.deletions = Deletions(writer)

    # Taking over what was found

    def continue_after(self, sequence: int) -> None:
        """New records get numbers above this one."""
        self._next_sequence = max(self._next_sequence, sequence + 1)

    def can_continue(self, segment: Segment) -> bool:
        """Whether it is worth going on with a found segment, so that restarts do not leave many small files."""
        grows_by = self._segment_bytes - segment.file_bytes
        return (
            segment.end <= self._segment_bytes // 2
            and len(segment.keys) <= MAX_RECORDS // 2
            and 0 <= grows_by <= self._room.limit_bytes - self._planned_bytes
        )

    def continue_segment(self, segment: Segment) -> None:
        self._open = segment
        self._resize(segment, self._segment_bytes)
        self._writer.submit(OpenSegment(segment, self._segment_bytes, len(segment.keys)))

    def seal_found(self, segment: Segment) -> None:
        """Gives a found segment its summary, if the file has room for one."""
        if sealed_bytes(segment) <= segment.file_bytes:
            self._resize(segment, sealed_bytes(segment))
            self._writer.submit(SealSegment(segment))

    # Appending

    def can_append(self, keys: Sequence[OffloadKey], lengths: Sequence[int]) -> bool:
        """Whether these records will find room, if need be after evictions."""
        num_new = self._num_new_segments(keys, lengths)
        lacking = self._planned_bytes + num_new * self._segment_bytes - self._room.limit_bytes
        if lacking <= 0:
            return True
        victims = list(self._candidates())
        open_one = self._open
        if open_one is not None and keys and not self._fits(open_one, keys[0], lengths[0]) and _may_go(open_one):
            victims.append(open_one)  # it is sealed first, and where there is room for one segment it is all there is
        return lacking <= sum(segment.file_bytes for segment in victims)

    def append(self, key: OffloadKey, length: int, held: int, tenant: bytes = NO_TENANT) -> PlannedRecord:
        """Plans a record. The caller has asked `can_append`, completes the record, and calls `send` after the last."""
        segment = self._open
        if segment is None or not self._fits(segment, key, length):
            segment = self._roll()
        return self._plan(segment, key, length, held, tenant=tenant)

    def send(self) -> None:
        """Orders the writing of what was appended, and makes room in advance."""
        self._write_batch()
        segment = self._open
        if segment is None or segment.end <= self._segment_bytes // 2:
            return
        if self._planned_bytes + self._segment_bytes > self._room.limit_bytes:
            victim = self._find_victim(self._segment_bytes - segment.end)
            if victim is not None:
                self._evict(victim, into=segment)

    def _write_batch(self) -> None:
        if self._batch:
            self._writer.submit(WriteRecords(self._batch))
            self._batch = []

    def abandon(self, segment: Segment) -> None:
        """Writes no more to a broken segment."""
        if segment is self._open:
            self._open = None

    def seal(self) -> None:
        if self._open is not None:
            segment, self._open = self._open, None
            self._resize(segment, sealed_bytes(segment))
            self._writer.submit(SealSegment(segment))

    def settle_size(self, segment: Segment) -> None:
        """The file has not become what was planned: counts its real size."""
        self._resize(segment, self._ledger.file_bytes(segment.number))

    def _num_new_segments(self, keys: Sequence[OffloadKey], lengths: Sequence[int]) -> int:
        segment = self._open
        num_new, count, key_bytes, end = 0, MAX_RECORDS, 0, 0
        if segment is not None:
            count, key_bytes, end = len(segment.keys), segment.key_bytes, segment.end
        for key, length in zip(keys, lengths, strict=True):
            size = record_bytes(length)
            if not self._has_room(count, key_bytes + len(key), end + size):
                num_new, count, key_bytes, end = num_new + 1, 0, 0, SEGMENT_HEADER_BYTES
            count, key_bytes, end = count + 1, key_bytes + len(key), end + size
        return num_new

    def _fits(self, segment: Segment, key: OffloadKey, length: int) -> bool:
        return self._has_room(len(segment.keys), segment.key_bytes + len(key), segment.end + record_bytes(length))

    def _has_room(self, count: int, key_bytes: int, end: int) -> bool:
        """Whether one record more than `count` leaves room for the summary."""
        return count < MAX_RECORDS and end + table_bytes(count + 1, key_bytes) + ALIGNMENT <= self._segment_bytes

    def _plan(
        self,
        segment: Segment,
        key: OffloadKey,
        length: int,
        held: int,
        *,
        tenant: bytes,
        source: tuple[Segment, int] | None = None,
    ) -> PlannedRecord:
        size = record_bytes(length)
        entry = segment.append(key, length, held, size=size, sequence=self._next_sequence, tenant=tenant)
        self._next_sequence += 1
        record = PlannedRecord(segment, entry, size, source)
        self._contents.expect(record)
        self._batch.append(record)
        return record

    def _roll(self) -> Segment:
        """Seals the open segment and begins the next."""
        self._write_batch()
        self.seal()
        while self._planned_bytes + self._segment_bytes > self._room.limit_bytes:
            victim = self._find_victim(0)
            assert victim is not None, "can_append has seen enough victims"
            self._evict(victim, into=None)
        segment = self._open = Segment(self._next_number, 0, self._io.wall_time_ns())
        self._next_number += 1
        self._contents.segments[segment.number] = segment
        self._resize(segment, self._segment_bytes)
        self._writer.submit(OpenSegment(segment, self._segment_bytes, None))
        return segment

    # Making room

    def _candidates(self) -> Iterator[Segment]:
        for segment in self._contents.segments.values():
            if segment is not self._open and _may_go(segment):
                yield segment
        yield from self.foreign.values()

    def _find_victim(self, room_bytes: int) -> Segment | None:
        """The oldest segment, whoever wrote it, or before it one of our own that holds nothing any more. If the part of
        it that is in use exceeds `room_bytes`, it may stay instead."""
        foreign = self.foreign
        while True:
            victim = min(
                self._candidates(),
                key=lambda segment: (segment.num_live > 0 or segment.number in foreign, segment.rank),
                default=None,
            )
            if victim is None or victim.hot_bytes <= room_bytes or not self._may_stay(victim):
                return victim
            self.counts.stayed += 1  # it is cold until it is hit again, so the search ends
            victim.stay((self._next_number - 1, self.counts.stayed))

    def _may_stay(self, victim: Segment) -> bool:
        staying = (segment for segment in self._contents.segments.values() if segment.has_stayed)
        others = sum(segment.file_bytes for segment in staying if segment is not victim)
        return others + victim.file_bytes <= self._room.limit_bytes // _MOST_STAYING

    def _evict(self, victim: Segment, into: Segment | None) -> None:
        if victim.number in self.foreign:
            del self.foreign[victim.number]
            self.counts.evicted_foreign_segments += 1
        else:
            if into is not None:
                self._reinsert(victim, into)
            self.counts.evicted += self._contents.forget_at(victim, range(len(victim.keys)))
            self.counts.evicted_segments += 1
            del self._contents.segments[victim.number]
        self._delete(victim)

    def _reinsert(self, victim: Segment, into: Segment) -> None:
        """Moves records that were hit into the room that is left, those with the most hits first."""
        contents = self._contents
        hot = [entry for entry, hits in enumerate(victim.hits) if hits]
        for entry in sorted(hot, key=victim.hits.__getitem__, reverse=True):
            key, length = victim.keys[entry], victim.lengths[entry]
            if not self._fits(into, key, length):
                break
            if contents.is_at(victim, entry) and not contents.is_pending(key):
                contents.start_move(key)
                self._plan(into, key, length, victim.held[entry], tenant=victim.tenant(entry), source=(victim, entry))
                self.counts.reinserted += 1
        self._write_batch()

    def _delete(self, segment: Segment) -> None:
        self._planned_bytes -= segment.file_bytes
        self.deletions.order(segment)

    def deleted(self, segment: Segment, *, has_failed: bool) -> None:
        """Handles the end of a deletion. After a failed one the segment's bytes count again."""
        if has_failed:
            self._planned_bytes += segment.file_bytes
        self.deletions.ended(segment, has_failed=has_failed)

    def poll(self, now: float) -> None:
        """Orders deletions again that have failed, once a minute."""
        if self.deletions.is_due(now):
            self.retry()

    def retry(self) -> None:
        """Orders again what could not be done: the disk works again, or it is time."""
        self.deletions.mark_again()
        for segment in self.deletions.take_undeleted():
            self._delete(segment)

    def lose(self, segment: Segment) -> int:
        """A file has disappeared. Returns how many keys went with it."""
        segment.is_broken = True
        count = self._contents.forget_at(segment, range(len(segment.keys)))
        self._contents.segments.pop(segment.number, None)
        self.foreign.pop(segment.number, None)
        self.abandon(segment)
        self._ledger.drop_file(segment.number)
        self._resize(segment, 0)
        return count

    def missing_from(self, files: Mapping[str, int]) -> list[Segment]:
        """Segments that were on disk and are not among these files."""
        return [
            segment
            for segment in (*self._contents.segments.values(), *self.foreign.values())
            if (segment.num_synced or segment.number in self.foreign) and segment_name(segment.number) not in files
        ]

    def adopt_strangers(self, files: Mapping[str, int]) -> None:
        """Counts segments that another engine has made while this one had lost its lock."""
        known = self._contents.segments.keys() | self.foreign.keys() | self.deletions.numbers
        for name, num_bytes in files.items():
            number = segment_number(name)
            if number is not None and number not in known:
                self._ledger.add_file(number, num_bytes)
                self.foreign[number] = Segment(number, num_bytes)
                self._planned_bytes += num_bytes
                self._next_number = max(self._next_number, number + 1)

    def reset(self) -> None:
        """Deletes every segment of the model, under whatever codec or key, after a durable marker that they are
        dead."""
        relatives = [self.foreign.pop(number) for number in sorted(self.relatives & self.foreign.keys())]
        segments = [*self._contents.segments.values(), *relatives]
        self._open = None
        self._contents.reset()
        if not segments:
            return
        self.deletions.mark_reset(self._next_number)
        self._next_number += 1  # a number below the floor is never used again
        for segment in segments:
            self._delete(segment)

    def check_invariants(self) -> None:
        """For tests: the plan counts every segment once, and keeps within the budget."""
        segments = (*self._contents.segments.values(), *self.foreign.values())
        own_bytes = sum(segment.file_bytes for segment in segments)
        counted = self._other_bytes + own_bytes + self.deletions.undeleted_bytes
        assert counted == self._planned_bytes <= self._ledger.budget_bytes
        assert self._open is None or self._open is self._contents.segments[self._open.number]
        assert all(segment.num_live >= 0 and segment.num_reads >= 0 for segment in segments)

    def _resize(self, segment: Segment, num_bytes: int) -> None:
        self._planned_bytes += num_bytes - segment.file_bytes
        segment.file_bytes = num_bytes


def complete(record: PlannedRecord, job: DiskJob, index: int, chunk: ChunkBytes) -> None:
    """Says where the bytes of an appended record come from."""
    record.job, record.index, record.buffers, record.checksum = job, index, chunk.buffers, chunk.checksum


def _may_go(segment: Segment) -> bool:
    return not segment.num_reads and not segment.num_pending
