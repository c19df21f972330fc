"""`OpenedDirectory`: the directory of one tier, as all its parts share it; and its `Owner`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from octavo.tiers.base import TierContext
from octavo.tiers.disk.cipher import RecordCipher
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.layout import NO_KEY_ID
from octavo.tiers.disk.ledger import Ledger
from octavo.tiers.disk.lock import DirectoryLock
from octavo.tiers.disk.recovery import FoundSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose records a tier reads and writes."""

    namespace: bytes
    """Of encrypted records, it depends on the key too."""
    family: bytes
    """All namespaces of the model, which a reset reaches."""
    cipher: RecordCipher | None

    @classmethod
    def of(cls, context: TierContext, cipher: RecordCipher | None) -> Self:
        namespace = cipher.namespace(context.namespace) if cipher else context.namespace
        return cls(namespace=namespace, family=context.family or context.namespace, cipher=cipher)

    @property
    def key_id(self) -> bytes:
        return self.cipher.key_id if self.cipher else NO_KEY_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDirectory:
    """A locked directory and what it holds."""

    path: Path
    io: DiskIO
    owner: Owner
    lock: DirectoryLock
    ledger: Ledger
    found: list[FoundSegment]
    """Our segments, ascending."""
    not_read: list[FoundSegment]
    """Segments of other namespaces and versions, and unreadable ones."""
    other_bytes: int
    """The bytes of all files but segments."""
    next_number: int
    room_bytes: int
    """The bytes that the file system has left."""
