"""Opening a directory: what is to go goes, what is ours is read, and the budget holds before anything is written."""

import logging
from pathlib import Path

from octavo.errors import TierError
from octavo.tiers.disk.directory import OpenedDirectory, Owner
from octavo.tiers.disk.health import PROBE_NAME
from octavo.tiers.disk.io import DiskIO, NotOursError, check_file, draft_name
from octavo.tiers.disk.layout import NO_FAMILY, NO_KEY_ID, VERSION
from octavo.tiers.disk.ledger import RESERVED_BYTES, Ledger
from octavo.tiers.disk.lock import LOCK_NAME, DirectoryLock
from octavo.tiers.disk.marker import marker_name, read_marker
from octavo.tiers.disk.recovery import FoundSegment, list_segments, read_segment
from octavo.tiers.disk.room import usable_bytes
from octavo.tiers.disk.segment import MOST_SEGMENTS, segment_name, segment_number
from octavo.units import format_bytes

OWN_FILES = frozenset({LOCK_NAME, PROBE_NAME, draft_name(PROBE_NAME)})
"""Our files beside segments and markers."""
_log = logging.getLogger(__name__)


def open_directory(directory: Path, *, io: DiskIO, owner: Owner, budget_bytes: int, wait_s: float) -> OpenedDirectory:
    """Locks the directory and reads it. TierError, with the remedy, if that fails; then nothing stays open."""
    _enter(directory, io)
    lock = None
    try:
        _refuse_strangers(directory, io, owner.family)
        lock = DirectoryLock(io, directory, wait_s=wait_s)
        return _read_directory(directory, lock, io, owner, budget_bytes)
    except BaseException as error:
        if lock is not None:
            lock.release()
        io.leave()
        if isinstance(error, OSError):
            raise _unusable(directory, error) from error
        raise


def check_directory(directory: Path, *, io: DiskIO, budget_bytes: int, wait_s: float) -> None:
    """TierError for what `open_directory` would refuse; a warning about a budget that exceeds the file system. The
    directory that it made and the lock's file stay. A lock that another process may still release is no error."""
    _enter(directory, io)
    try:
        for name in io.list_names():
            if name in OWN_FILES or segment_number(name) is not None:
                _check_is_ours(directory, io, name)
        if not wait_s:
            DirectoryLock(io, directory).release()
        all_bytes = io.space().all_bytes
    except OSError as error:
        raise _unusable(directory, error) from error
    finally:
        io.leave()
    if budget_bytes > all_bytes:
        _log.warning(
            "disk tier: size %s is more than the whole file system of %s has, %s: it will keep to that",
            format_bytes(budget_bytes),
            directory,
            format_bytes(all_bytes),
        )


def _enter(directory: Path, io: DiskIO) -> None:
    try:
        io.make_directory(directory)
        io.enter(directory)
    except NotOursError as error:
        raise TierError(
            f"disk tier: {directory} is not private ({error.strerror}): give a folder in it that does not exist yet, "
            "or run `chown` and `chmod go-w` on it"
        ) from error
    except OSError as error:
        raise _unusable(directory, error) from error


def _refuse_strangers(directory: Path, io: DiskIO, family: bytes) -> None:
    """TierError if a file with a name of ours could be somebody else's work."""
    names = OWN_FILES | {marker_name(family), draft_name(marker_name(family))}
    for name in io.list_names():
        if name in names or segment_number(name) is not None:
            _check_is_ours(directory, io, name)


def _check_is_ours(directory: Path, io: DiskIO, name: str) -> None:
    try:
        check_file(io.status(name))
    except FileNotFoundError:  # another engine has the directory, and is at work
        return
    except NotOursError as error:
        raise TierError(
            f"disk tier: {directory / name} is not trusted ({error.strerror}): remove it, or give another folder"
        ) from error


def _read_directory(
    directory: Path, lock: DirectoryLock, io: DiskIO, owner: Owner, budget_bytes: int
) -> OpenedDirectory:
    family = owner.family
    _delete_leftovers(io, family)
    sizes, other_bytes = list_segments(io)
    ledger = Ledger(budget_bytes, other_bytes=other_bytes)
    next_number = sizes[-1][0] + 1 if sizes else 1
    if next_number > MOST_SEGMENTS:
        stranger = directory / segment_name(next_number - 1)
        raise TierError(f"disk tier: {stranger} is no segment of any tier: remove it")
    sizes = _delete_beyond_budget(io, ledger, sizes)
    floor = min(next_number, read_marker(io, family))
    found: list[FoundSegment] = []
    not_read: list[FoundSegment] = []
    for number, file_bytes in sizes:
        segment = read_segment(io, number, file_bytes, owner.namespace)
        is_ours = segment.namespace == owner.namespace
        may_be_related = is_ours or (segment.version == VERSION and segment.family in (family, NO_FAMILY))
        if segment.is_blank or (may_be_related and number < floor):
            io.unlink(segment_name(number))
            continue
        ledger.set_file(number, file_bytes)
        if segment.problem:
            _log.warning("%s: %s", directory / segment_name(number), segment.problem)
        if is_ours and segment.table is not None:
            found.append(segment)
        else:
            not_read.append(segment)
    if floor:
        io.sync_directory()
        io.unlink(marker_name(family))
    return OpenedDirectory(
        path=directory,
        io=io,
        owner=owner,
        lock=lock,
        ledger=ledger,
        found=found,
        not_read=not_read,
        other_bytes=other_bytes,
        next_number=max(next_number, floor + 1),
        room_bytes=usable_bytes(io.space()),
    )


def tell_of_others(opened: OpenedDirectory, segment_bytes: int) -> None:
    """Logs what is not read, and what takes the tier's room: one line for each reason that a person can do something
    about."""
    directory, key_id, budget_bytes = opened.path, opened.owner.key_id, opened.ledger.budget_bytes
    left = budget_bytes - opened.other_bytes - RESERVED_BYTES
    if opened.other_bytes >= segment_bytes:
        _log.warning(
            "disk tier %s has other files, which count: they take %s of its %s, so %s; give it a folder of its own",
            directory,
            format_bytes(opened.other_bytes),
            format_bytes(budget_bytes),
            f"it keeps to {format_bytes(left)}" if left >= segment_bytes else "it stores nothing",
        )
    versions = {segment.version for segment in opened.not_read if segment.is_foreign}
    if versions:
        _log.warning(
            "disk tier %s holds segments of version %s of the format, and this is version %d: they are not read, and "
            "go when room is needed",
            directory,
            ", ".join(map(str, sorted(versions))),
            VERSION,
        )
    other_keys = {segment.key_id for segment in opened.not_read} - {NO_KEY_ID, key_id}
    if other_keys:
        _log.warning(
            "disk tier %s holds segments encrypted under key %s, and %s was given (key_file, or OCTAVO_DISK_KEY): they "
            "are not read, and go when room is needed",
            directory,
            ", ".join(sorted(key.hex() for key in other_keys)),
            "no key" if key_id == NO_KEY_ID else f"key {key_id.hex()}",
        )


def _delete_leftovers(io: DiskIO, family: bytes) -> None:
    """Deletes files that a process was making when it ended."""
    names = {PROBE_NAME, draft_name(PROBE_NAME), draft_name(marker_name(family))}
    for name in names & io.list_files().keys():
        io.unlink(name)


def _delete_beyond_budget(io: DiskIO, ledger: Ledger, sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Deletes the oldest segments until the others fit. Foreign files in the directory count, and stay."""
    room = ledger.budget_bytes - ledger.used_bytes
    excess = sum(num_bytes for _, num_bytes in sizes) - room
    kept = list(sizes)
    while excess > 0 and kept:
        number, num_bytes = kept.pop(0)
        io.unlink(segment_name(number))
        excess -= num_bytes
    return kept


def _unusable(directory: Path, error: OSError) -> TierError:
    is_of_a_file = isinstance(error.filename, str) and "/" not in error.filename
    file = f"{error.filename}: " if is_of_a_file else ""
    return TierError(
        f"disk tier: {directory} cannot be used ({file}{error.strerror or error}): "
        "give a directory that this user can write to, on a disk that works"
    )
