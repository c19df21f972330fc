"""Opening a directory: what is to go goes, what is ours is read, and the budget holds before anything is written."""

import logging
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import TierError
from octavo.tiers.disk.health import PROBE_NAME
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.ledger import Ledger
from octavo.tiers.disk.lock import LOCK_NAME, DirectoryLock
from octavo.tiers.disk.marker import marker_path, read_marker
from octavo.tiers.disk.recovery import FoundSegment, list_segments, read_segment
from octavo.tiers.disk.segment import MOST_SEGMENTS, Segment, segment_path

_PROBE_DRAFT = Path(PROBE_NAME).with_suffix(".tmp").name
OWN_FILES = frozenset({LOCK_NAME, PROBE_NAME, _PROBE_DRAFT})
"""Beside segments and markers."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDirectory:
    lock: DirectoryLock
    ledger: Ledger
    found: list[FoundSegment]
    """Ours, ascending."""
    foreign: list[Segment]
    """Of other namespaces and versions, and what cannot be read."""
    next_number: int


def open_directory(directory: Path, *, io: DiskIO, namespace: bytes, budget_bytes: int) -> OpenedDirectory:
    """Locks the directory and reads it. TierError, with the remedy, if that cannot be."""
    try:
        io.make_directory(directory)
        lock = DirectoryLock(directory)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        return _read_directory(directory, lock, io, namespace, budget_bytes)
    except OSError as error:
        lock.release()
        raise _unusable(directory, error) from error
    except BaseException:
        lock.release()
        raise


def _read_directory(
    directory: Path, lock: DirectoryLock, io: DiskIO, namespace: bytes, budget_bytes: int
) -> OpenedDirectory:
    _delete_leftovers(directory, io, namespace)
    sizes, other_bytes = list_segments(io, directory)
    ledger = Ledger(budget_bytes, other_bytes=other_bytes)
    next_number = sizes[-1][0] + 1 if sizes else 1
    if next_number > MOST_SEGMENTS:
        raise TierError(f"disk tier: {segment_path(directory, next_number - 1)} is no segment of any tier: remove it")
    sizes = _delete_beyond_budget(directory, io, ledger, sizes)
    floor = min(next_number, read_marker(io, directory, namespace))
    found: list[FoundSegment] = []
    foreign: list[Segment] = []
    for number, file_bytes in sizes:
        segment = read_segment(io, directory, number, file_bytes, namespace)
        is_ours = segment.namespace == namespace
        if segment.is_blank or (is_ours and number < floor):
            io.unlink(segment_path(directory, number))
            continue
        ledger.set_file(number, file_bytes)
        if segment.problem:
            _log.warning("%s: %s", segment_path(directory, number), segment.problem)
        if is_ours and segment.table is not None:
            found.append(segment)
        else:
            foreign.append(Segment(number, file_bytes))
    if floor:
        io.sync_directory(directory)
        io.unlink(marker_path(directory, namespace))
    return OpenedDirectory(
        lock=lock, ledger=ledger, found=found, foreign=foreign, next_number=max(next_number, floor + 1)
    )


def _delete_leftovers(directory: Path, io: DiskIO, namespace: bytes) -> None:
    """Files that somebody was making when he ended."""
    names = {PROBE_NAME, _PROBE_DRAFT, marker_path(directory, namespace).with_suffix(".tmp").name}
    for name in names & io.list_files(directory).keys():
        io.unlink(directory / name)


def _delete_beyond_budget(
    directory: Path, io: DiskIO, ledger: Ledger, sizes: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The oldest segments go until the others fit; what is not ours in the directory counts, and stays."""
    room = ledger.budget_bytes - ledger.used_bytes
    excess = sum(num_bytes for _, num_bytes in sizes) - room
    kept = list(sizes)
    while excess > 0 and kept:
        number, num_bytes = kept.pop(0)
        io.unlink(segment_path(directory, number))
        excess -= num_bytes
    return kept


def _unusable(directory: Path, error: OSError) -> TierError:
    return TierError(
        f"disk tier: {directory} cannot be used ({error.strerror or error}): "
        "give a directory that this user can write to, on a disk that works"
    )
