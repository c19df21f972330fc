"""Looking into a directory without an engine, and beside one: nothing here writes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from octavo.chunks import OffloadKey, get_offload_group_idx
from octavo.errors import InputError
from octavo.ids import GroupIdx
from octavo.namespace import described_namespace, read_description
from octavo.tiers.disk.io import AlignedBuffer, DiskIO, NotOursError, opened, read_all
from octavo.tiers.disk.layout import VERSION, find_record, record_bytes
from octavo.tiers.disk.lock import find_holder
from octavo.tiers.disk.marker import MARKER_PREFIX
from octavo.tiers.disk.opening import OWN_FILES
from octavo.tiers.disk.recovery import FoundSegment, list_segments, read_segment
from octavo.tiers.disk.segment import segment_name, segment_number


@dataclass(slots=True)
class GroupContent:
    """What an engine would find of one group in one namespace."""

    chunks: int = 0
    """Chunks, by key. Of a chunk that was written twice the later record counts, here and in all that follows."""
    payload_bytes: int = 0
    hits: int = 0
    """Hits of chunks in sealed segments."""


@dataclass(slots=True)
class NamespaceContent:
    """What one namespace has."""

    namespace: str
    segments: int = 0
    file_bytes: int = 0
    created_ns: int = 0
    """When the oldest segment was begun; 0 if that is not known."""
    groups: dict[GroupIdx, GroupContent] = field(default_factory=dict)
    description: dict[str, str] = field(default_factory=dict)
    """The description that its engine left: `model`, `dtype`, `plan`, `codec` and the parts of the identity. Empty if
    none was left."""

    @property
    def chunks(self) -> int:
        return sum(group.chunks for group in self.groups.values())

    @property
    def hits(self) -> int:
        return sum(group.hits for group in self.groups.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryContent:
    """What a directory holds, by namespace."""

    directory: Path
    holder: str | None
    """The process that has it open."""
    namespaces: list[NamespaceContent]
    unknown_segments: int
    """Segments of newer versions, and damaged ones."""
    other_files: int
    other_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One damaged place."""

    segment: str
    offset: int
    problem: str


@dataclass(slots=True)
class Verification:
    """The result of a check of every record."""

    segments: int = 0
    records: int = 0
    payload_bytes: int = 0
    unfinished: int = 0
    """Records whose writing was cut off or still goes on. They were never told to be there."""
    unchecked: int = 0
    """Segments of newer versions."""
    damages: list[Damage] = field(default_factory=list)


def inspect_directory(directory: Path) -> DirectoryContent:
    io = enter(directory)
    namespaces: dict[bytes, NamespaceContent] = {}
    counted: dict[bytes, set[OffloadKey]] = {}
    unknown = 0
    for segment in find_segments(io, newest_first=True):
        if segment.version != VERSION:
            unknown += not segment.is_blank
            continue
        name = segment.namespace.hex()
        content = namespaces.setdefault(segment.namespace, NamespaceContent(name))
        content.description = content.description or read_description(directory, name)
        _add(content, segment, counted.setdefault(segment.namespace, set()))
    sizes = io.list_files()
    others = {
        name: num_bytes
        for name, num_bytes in sizes.items()
        if segment_number(name) is None
        and name not in OWN_FILES
        and not name.startswith(MARKER_PREFIX)
        and described_namespace(name) is None
    }
    return DirectoryContent(
        directory=directory,
        holder=find_holder(io),
        namespaces=sorted(namespaces.values(), key=lambda found: found.created_ns),
        unknown_segments=unknown,
        other_files=len(others),
        other_bytes=sum(others.values()),
        total_bytes=sum(sizes.values()),
    )


def verify_directory(directory: Path) -> Verification:
    """Reads and checks every record of every segment."""
    io, found = enter(directory), Verification()
    for segment in find_segments(io):
        name = segment_name(segment.number)
        if segment.is_foreign:
            found.unchecked += 1
            continue
        found.segments += 1
        if segment.problem:
            found.damages.append(Damage(segment=name, offset=0, problem=segment.problem))
        for offset in segment.torn:
            if offset >= segment.end:
                found.unfinished += 1
            else:
                found.damages.append(Damage(segment=name, offset=offset, problem="record is damaged"))
        if segment.table is not None:
            try:
                _verify_records(io, segment, found)
            except FileNotFoundError:  # an engine has evicted it meanwhile
                found.segments -= 1
    return found


def enter(directory: Path, *, checks_owner: bool = False) -> DiskIO:
    """Leaves the directory when the last inspection of it has ended."""
    io = DiskIO(checks_owner=checks_owner)
    try:
        io.enter(directory)
    except NotOursError:
        raise
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}; give the directory of a disk tier") from error
    return io


def find_segments(io: DiskIO, *, newest_first: bool = False) -> Iterator[FoundSegment]:
    """Every segment with its records, as far as it can be read."""
    numbers = list_segments(io)[0]
    for number, file_bytes in reversed(numbers) if newest_first else numbers:
        segment = read_segment(io, number, file_bytes, None)
        if segment.problem and segment_name(number) not in io.list_files():
            continue  # an engine has evicted it meanwhile
        yield segment


def _add(content: NamespaceContent, segment: FoundSegment, counted: set[OffloadKey]) -> None:
    """Segments come from the newest to the oldest."""
    content.segments += 1
    content.file_bytes += segment.file_bytes
    if segment.created_ns:
        content.created_ns = min(content.created_ns or segment.created_ns, segment.created_ns)
    if segment.table is None:
        return
    table = segment.table
    order = table.sequences.argsort()[::-1].tolist()
    for entry in order:
        key = table.keys[entry]
        if key in counted:
            continue
        counted.add(key)
        there = content.groups.setdefault(get_offload_group_idx(key), GroupContent())
        there.chunks += 1
        there.payload_bytes += int(table.lengths[entry])
        there.hits += int(table.hits[entry])


def _verify_records(io: DiskIO, segment: FoundSegment, found: Verification) -> None:
    table = segment.table
    assert table is not None, "the caller has looked"
    buffer = AlignedBuffer(max(map(record_bytes, table.lengths.tolist()), default=4096))
    with opened(io, segment_name(segment.number)) as fd:
        for i, key in enumerate(table.keys):
            offset, length = int(table.offsets[i]), int(table.lengths[i])
            found.records += 1
            found.payload_bytes += length
            try:
                record = buffer.view[: read_all(io, fd, buffer.view[: record_bytes(length)], offset)]
            except OSError as error:
                problem = f"record cannot be read: {error.strerror}"
            else:
                place = segment.number, offset
                header = find_record(record, key=key, namespace=segment.namespace, length=length, place=place)
                problem = "" if header is not None else "record is damaged"
            if problem:
                found.damages.append(Damage(segment=segment_name(segment.number), offset=offset, problem=problem))
