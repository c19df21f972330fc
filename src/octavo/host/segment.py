"""A named segment: an arena that other processes can map, and that a restarted engine finds again.

    0            header       what it is, whose it is, how it is cut; at 64 the floor: records up to it do not count
    4096         chains       int32 for each slot: the next slot of the same chunk
    ...          records      for each slot: the chunk whose first slot it is
    ...          slots        from a multiple of 4096 on

A record carries a checksum over itself and its chain, and is erased before a slot of it is given to another chunk; so a
process that is killed leaves at worst a record that is torn, which is passed over. A chunk's bytes are verified against
the record's checksum by whoever reads them first. Owners lock the file; workers only map it.
"""

import fcntl
import logging
import mmap
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from octavo.chunks import OffloadKey, StoredChunk
from octavo.errors import InputError, NotEnoughMemoryError
from octavo.host.arena import PAGE_BYTES, HostArena, populate
from octavo.host.slots import NO_CHECKSUM, SlotTable
from octavo.specs import ceil_div

logger = logging.getLogger(__name__)

_MAGIC = b"OCTARENA"
_VERSION = 2
_HEADER = struct.Struct("<8sIQ16sQQ")
"""Magic, version, process id of the owner, namespace, slot bytes, slots."""
_FLOOR_AT = 64
_HIGHEST_FLOOR = 1 << 62
"""What no sequence ever reaches: beyond it a floor is damaged, and no record can be believed."""
_CHAINS_AT = PAGE_BYTES
_SUM = struct.Struct("<Q")
_BODY = struct.Struct("<QqQQIBB64s64s")
"""Sequence (from 1), held blocks, checksum of the bytes, their length, position, lengths of key and parent, both."""
_MOST_KEY_BYTES = 64
_SHM = Path("/dev/shm")  # noqa: S108 - files there are opened without following links, and must be ours

RECORD_BYTES = _SUM.size + _BODY.size + 4
"""For each slot, its place in the chain included."""


class FoundRecord(NamedTuple):
    """A chunk that a former process left."""

    sequence: int
    head: int
    chunk: StoredChunk
    held_blocks: int
    checksum: int
    num_bytes: int


class SlotRecords:
    """What is in which slots, written down beside them."""

    def __init__(
        self, next_slot: "memoryview[int]", records: memoryview, slot_bytes: int, floor: "memoryview[int]"
    ) -> None:
        """`floor`: one number, the last record that does not count any more."""
        self.next_slot = next_slot
        self._records = records
        self._slot_bytes = slot_bytes
        self._floor = floor
        self._sequence = 0

    def write(self, chunk: StoredChunk, head: int, table: SlotTable) -> None:
        """A chunk without a checksum could not be trusted later, so it is not written down."""
        key, parent = chunk.key, chunk.parent or b""
        if table.checksums[head] == NO_CHECKSUM or max(len(key), len(parent)) > _MOST_KEY_BYTES:
            return
        self._sequence += 1
        body = _BODY.pack(
            self._sequence,
            table.mask(head),
            table.checksums[head],
            table.lengths[head],
            chunk.position,
            len(key),
            len(parent),
            key,
            parent,
        )
        at = head * _STRIDE
        self._records[at + _SUM.size : at + _STRIDE] = body
        self._records[at : at + _SUM.size] = _SUM.pack(_record_sum(body, table.chain(head)))

    def erase(self, heads: Sequence[int]) -> None:
        for head in heads:
            at = head * _STRIDE
            self._records[at : at + 2 * _SUM.size] = bytes(2 * _SUM.size)

    def clear(self) -> None:
        """Forgets all records so far, in one write: to erase a million takes long."""
        self._floor[0] = self._sequence

    def read(self, table: SlotTable) -> list[FoundRecord]:
        """The chunks that are there whole, oldest first. Records of all others are erased."""
        rows = np.frombuffer(self._records, dtype=np.uint8).reshape(table.num_slots, _STRIDE)
        if self._floor[0] > _HIGHEST_FLOOR:
            rows[:], self._floor[0] = 0, 0
        sequences = np.ascontiguousarray(rows[:, _SUM.size : 2 * _SUM.size]).view(np.uint64)[:, 0]
        is_used = rows[:, : _SUM.size].any(axis=1) | (sequences > 0)
        used = np.flatnonzero(is_used & ~((sequences > 0) & (sequences <= self._floor[0]))).tolist()
        found, keys, taken, torn = [], set(), bytearray(table.num_slots), []
        candidates = [(self._parse(head, table.num_slots), head) for head in used]
        # of two records of one key the newer is right
        for record, head in sorted(candidates, key=lambda c: c[0][0].sequence if c[0] else 0, reverse=True):
            if record is None or record[0].chunk.key in keys or any(taken[slot] for slot in record[1]):
                torn.append(head)
                continue
            keys.add(record[0].chunk.key)
            for slot in record[1]:
                taken[slot] = 1
            found.append(record[0])
        self.erase(torn)
        found.reverse()
        self._sequence = max(self._floor[0], found[-1].sequence if found else 0)
        if torn:
            logger.warning("the arena's segment had %d torn records, which were dropped", len(torn))
        return found

    def _parse(self, head: int, num_slots: int) -> tuple[FoundRecord, Sequence[int]] | None:
        """The record at a slot and its chain, if they are right; nothing in it is believed before."""
        at = head * _STRIDE
        (expected,) = _SUM.unpack_from(self._records, at)
        body = bytes(self._records[at + _SUM.size : at + _STRIDE])
        sequence, mask, checksum, num_bytes, position, key_len, parent_len, key, parent = _BODY.unpack(body)
        count = ceil_div(num_bytes, self._slot_bytes)
        if not 0 < count <= num_slots or checksum == NO_CHECKSUM or not 0 < key_len <= _MOST_KEY_BYTES:
            return None
        chain = [head]
        while len(chain) < count and 0 <= chain[-1] < num_slots:
            chain.append(self.next_slot[chain[-1]])
        if not 0 <= chain[-1] < num_slots or self.next_slot[chain[-1]] != -1:
            return None
        if _record_sum(body, chain) != expected:
            return None
        chunk = StoredChunk(
            key=OffloadKey(key[:key_len]),
            num_slots=count,
            position=position,
            parent=OffloadKey(parent[:parent_len]) if parent_len else None,
        )
        found = FoundRecord(
            sequence=sequence, head=head, chunk=chunk, held_blocks=mask, checksum=checksum, num_bytes=num_bytes
        )
        return found, chain


_STRIDE = _SUM.size + _BODY.size


def _record_sum(body: bytes, chain: Sequence[int]) -> int:
    return xxh3_64_intdigest(body + np.array(chain, dtype=np.int32).tobytes()) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLayout:
    """Where things lie in a segment."""

    namespace: bytes
    """16 bytes."""
    slot_bytes: int
    num_slots: int

    @property
    def records_at(self) -> int:
        return _CHAINS_AT + 4 * self.num_slots

    @property
    def slots_at(self) -> int:
        return ceil_div(self.records_at + _STRIDE * self.num_slots, PAGE_BYTES) * PAGE_BYTES

    @property
    def num_bytes(self) -> int:
        return self.slots_at + self.slot_bytes * self.num_slots

    def header(self) -> bytes:
        return _HEADER.pack(_MAGIC, _VERSION, os.getpid(), self.namespace, self.slot_bytes, self.num_slots)


class Segment:
    """A named segment that this process owns, until it is closed."""

    def __init__(self, path: Path, layout: SegmentLayout, file: int, memory: mmap.mmap) -> None:
        self.path = path
        self.arena = HostArena(layout.num_slots, layout.slot_bytes, memory=memory, offset=layout.slots_at)
        whole = memoryview(memory)
        self._chains = whole[_CHAINS_AT : layout.records_at].cast("i")
        self._records = whole[layout.records_at : layout.records_at + _STRIDE * layout.num_slots]
        self._floor = whole[_FLOOR_AT : _FLOOR_AT + 8].cast("Q")
        self.records = SlotRecords(self._chains, self._records, layout.slot_bytes, self._floor)
        self._file = file

    @classmethod
    def open(cls, name: str, layout: SegmentLayout) -> "Segment":
        """Finds the segment of this name, or makes it. One that is ours but of another namespace, version or cut is
        replaced by an empty one; one that somebody else holds, or that is no segment, is refused."""
        path = segment_path(name)
        file = _open_locked(path)
        try:
            reason = _why_unusable(path, file, layout)
            if reason:
                logger.warning("the segment %s is replaced by an empty one: %s", path, reason)
                # a new file, since workers of the former owner may still map the old one
                path.unlink()
                os.close(file)
                file = _open_locked(path)
            if not os.fstat(file).st_size:
                _make_empty(path, file, layout)
            os.pwrite(file, layout.header(), 0)
            memory = mmap.mmap(file, layout.num_bytes)
            populate(memory)
        except BaseException:
            os.close(file)
            raise
        return cls(path, layout, file, memory)

    def close(self) -> None:
        """Lets others have it; what is in it stays."""
        if self._file < 0:
            return
        fcntl.flock(self._file, fcntl.LOCK_UN)  # the mapping has a handle of its own, which would keep the lock
        os.close(self._file)
        self._file = -1
        self.arena.close()


def attach(name: str) -> HostArena:
    """The arena of a segment that another process owns: for its workers, which use slots as they are told."""
    path = segment_path(name)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise InputError(
            f"there is no segment {path} to attach to ({error.strerror}): start its owner first"
        ) from error
    try:
        _require_ours(path, file)
        layout = _layout_of(os.pread(file, _HEADER.size, 0))
        if layout is None or layout.num_bytes != os.fstat(file).st_size:
            raise InputError(f"{path} is no segment that this version knows: start its owner with this version")
        memory = mmap.mmap(file, layout.num_bytes)
    finally:
        os.close(file)
    return HostArena(layout.num_slots, layout.slot_bytes, memory=memory, offset=layout.slots_at)


def segment_path(name: str) -> Path:
    """A name without a slash is a file in /dev/shm."""
    return Path(name) if "/" in name else _SHM / f"octavo-{name}"


def _open_locked(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InputError(f"the segment {path} cannot be opened ({error.strerror}): choose another name") from error
    try:
        _require_ours(path, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _HEADER.unpack(os.pread(file, _HEADER.size, 0).ljust(_HEADER.size, b"\0"))[2]
        os.close(file)
        raise InputError(f"the segment {path} is held by process {holder}: stop it, or choose another name") from error
    except BaseException:
        os.close(file)
        raise
    return file


def _require_ours(path: Path, file: int) -> None:
    """Whoever could write to it could make us serve wrong bytes."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InputError(
            f"{path} is not a file that belongs to this user alone (mode {status.st_mode:o}, user {status.st_uid}): "
            "remove it, or choose another name"
        )


def _why_unusable(path: Path, file: int, layout: SegmentLayout) -> str | None:
    """None for a segment that can be used, or a file that is empty still."""
    size = os.fstat(file).st_size
    if not size:
        return None
    header = os.pread(file, _HEADER.size, 0)
    if header[: len(_MAGIC)] != _MAGIC[: len(header)] and header.strip(b"\0"):
        raise InputError(f"{path} is a file, but not a segment: choose another name")
    found = _layout_of(header)
    if found is None:
        return "it is torn, or of another version"
    if found.namespace != layout.namespace:
        return f"it is of namespace {found.namespace.hex()}, not {layout.namespace.hex()}"
    if found != layout or size != layout.num_bytes:
        return (
            f"it has {found.num_slots} slots of {found.slot_bytes} bytes, not {layout.num_slots} of {layout.slot_bytes}"
        )
    return None


def _layout_of(header: bytes) -> SegmentLayout | None:
    if len(header) < _HEADER.size:
        return None
    magic, version, _, namespace, slot_bytes, num_slots = _HEADER.unpack(header)
    if magic != _MAGIC or version != _VERSION or not slot_bytes or slot_bytes % PAGE_BYTES or not num_slots:
        return None
    return SegmentLayout(namespace=namespace, slot_bytes=slot_bytes, num_slots=num_slots)


def _make_empty(path: Path, file: int, layout: SegmentLayout) -> None:
    try:
        os.posix_fallocate(file, 0, layout.num_bytes)  # or a full file system would show as SIGBUS later
    except OSError as error:
        path.unlink()
        raise NotEnoughMemoryError(
            f"{path.parent} has no room for a segment of {layout.num_bytes} bytes ({error.strerror}): lower its size, "
            "or name a folder with more room"
        ) from error
