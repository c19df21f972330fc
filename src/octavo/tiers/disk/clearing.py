"""Clearing a directory without an engine: whole segments, or one tenant's records within them.

A record that is cleared is overwritten with zeros. The summary of its segment goes first, so that a crash in between
leaves a segment without one: the next engine reads its records one by one, and writes a new summary.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.chunks import NO_TENANT, TENANT_BYTES
from octavo.errors import TierError
from octavo.namespace import described_namespace
from octavo.tiers.disk.inspection import enter, find_segments
from octavo.tiers.disk.io import DiskIO, opened, write_zeros
from octavo.tiers.disk.layout import ALIGNMENT, NO_FAMILY, VERSION, record_bytes
from octavo.tiers.disk.lock import DirectoryLock
from octavo.tiers.disk.marker import marker_name
from octavo.tiers.disk.recovery import FoundSegment
from octavo.tiers.disk.segment import segment_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to clear: everything that fits all of these."""

    namespace_prefix: str = ""
    tenant: bytes = NO_TENANT
    """Only records of this tenant; by default those of all tenants."""
    before_ns: int | None = None
    """Only segments that were begun before, in ns since 1970. A record is at most as old as its segment."""

    def has(self, segment: FoundSegment) -> bool:
        """Whether something of a segment may have to go. Blank segments go with everything. Segments of other versions
        go by age alone, since their namespace is unknown."""
        is_ours = segment.version > 0 or (segment.is_blank and self == Selection())
        is_old = self.before_ns is None or 0 < segment.created_ns < self.before_ns
        return is_ours and is_old and segment.namespace.hex().startswith(self.namespace_prefix)


@dataclass(slots=True)
class Cleared:
    """What was cleared."""

    segments: int = 0
    records: int = 0
    """Records that were cleared in segments that stay."""
    num_bytes: int = 0

    def count(self, segment: FoundSegment, entries: Sequence[int] | None) -> None:
        """Counts a whole segment, or entries of one that stays."""
        if entries is None:
            self.segments += 1
            self.num_bytes += segment.file_bytes
        elif segment.table is not None:
            self.records += len(entries)
            self.num_bytes += sum(record_bytes(int(segment.table.lengths[entry])) for entry in entries)


def count_selected(directory: Path, which: Selection) -> Cleared:
    """What `clear_directory` would clear."""
    selected = Cleared()
    for segment, entries in _selected(find_segments(enter(directory)), which):
        selected.count(segment, entries)
    return selected


def clear_directory(directory: Path, which: Selection | None = None) -> Cleared:
    """Deletes what was selected, by default everything of ours. Foreign files stay."""
    which = which or Selection()
    cleared = Cleared()
    if not any(True for _ in find_segments(enter(directory))):
        return cleared
    try:
        io = enter(directory, checks_owner=True)
        lock = DirectoryLock(io, directory)
    except OSError as error:
        remedy = "" if error.errno == errno.EROFS else "; run this as the user that owns it"
        raise TierError(f"{directory} cannot be locked: {error.strerror}{remedy}") from error
    try:
        _clear(io, which, cleared)
    except OSError as error:
        raise TierError(f"{directory} cannot be cleared: {error.strerror}") from error
    finally:
        lock.release()
    return cleared


def _clear(io: DiskIO, which: Selection, cleared: Cleared) -> None:
    segments = list(find_segments(io))
    for segment, entries in _selected(segments, which):
        if entries is None:
            io.unlink(segment_name(segment.number))
        else:
            _erase(io, segment, entries)
        cleared.count(segment, entries)
    staying = list(find_segments(io))
    families = {segment.family for segment in segments}
    for family in families - {segment.family for segment in staying} - {NO_FAMILY}:
        io.unlink(marker_name(family))
    namespaces = {segment.namespace.hex() for segment in staying}
    for name in io.list_names():
        namespace = described_namespace(name)
        if namespace is not None and namespace not in namespaces and namespace.startswith(which.namespace_prefix):
            io.unlink(name)
    io.sync_directory()


def _selected(
    segments: Iterable[FoundSegment], which: Selection
) -> Iterator[tuple[FoundSegment, Sequence[int] | None]]:
    """Each segment of which something has to go, with the entries of that; None: the whole segment."""
    for segment in segments:
        if not which.has(segment):
            continue
        entries = _entries_of(segment, which.tenant) if which.tenant else None
        if entries is None or (segment.table is not None and len(entries) == len(segment.table.keys)):
            yield segment, None
        elif entries:
            yield segment, entries


def _entries_of(segment: FoundSegment, tenant: bytes) -> Sequence[int]:
    if segment.table is None or segment.version != VERSION:
        return ()
    tenants = segment.table.tenants
    return [
        entry
        for entry in range(len(segment.table.keys))
        if tenants[entry * TENANT_BYTES : (entry + 1) * TENANT_BYTES] == tenant
    ]


def _erase(io: DiskIO, segment: FoundSegment, entries: Sequence[int]) -> None:
    table = segment.table
    assert table is not None, "entries are of a table"
    with opened(io, segment_name(segment.number), os.O_RDWR) as fd:
        if segment.is_sealed:
            write_zeros(io, fd, segment.file_bytes - ALIGNMENT, ALIGNMENT)
            io.sync(fd)
        for entry in entries:
            write_zeros(io, fd, int(table.offsets[entry]), record_bytes(int(table.lengths[entry])))
        io.sync(fd)
