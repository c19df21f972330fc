"""The contract of a slower tier: a medium that keeps chunks by key, below host memory.

A tier stores bytes from host buffers and loads them back, asynchronously and verified. It decides alone what it keeps:
within its budget it may refuse and evict, and reports both. One thread calls it, and no call blocks on its medium: a
fault of the disk, hanging included, shows as a job that fails, ends late or is cancelled.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from octavo.chunks import ChunkBytes, OffloadKey, SequenceNames, TierChanges, TierResult

CHUNK_EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "stored": "written",
        "store_refused": "not accepted for storing: the medium is busy, full or off",
        "store_failed": "accepted, and not written after all",
        "store_unfit": "too large for the medium",
        "loaded": "read and verified",
        "load_refused": "not accepted for loading: the medium is busy or off",
        "load_failed": "accepted, and not read after all",
        "corrupt": "read and not what was stored; forgotten since",
        "evicted": "given up for others",
        "quota_refused": "not stored, since a tenant's quota is too small for all that came at once",
        "quota_evicted": "given up on all media for newer ones of the same tenant",
        "reinserted": "written again when their turn to be evicted came, since they are in use",
        "lost": "no longer there, with a file that vanished",
        "lost_unsynced": "given up because the disk did not confirm them",
        "promoted": "brought to memory from a tier below",
        "promotion_refused": "that a tier below did not accept to bring",
        "promotion_failed": "that a tier below could not bring",
        "promotion_late": "that a tier below brought too late",
        "written_through": "copied to a tier below",
        "write_through_dropped": "never copied to a tier below, since too many waited",
        "write_through_failed": "that a tier below did not take",
    }
)
"""The events of a chunk on a medium, under the same names on every medium. Each counter counts chunks."""


class TierState(Enum):
    """Whether a tier works."""

    OK = "ok"
    DEGRADED = "degraded"
    """Turned off for now: lookups miss and stores are refused, until a probe succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """A tier at a glance, for metrics and logs."""

    state: TierState
    reason: str
    """Why it is degraded, or takes nothing though it can be read; empty while it works."""
    bytes_used: int
    """Everything that counts against the budget, metadata included."""
    bytes_budget: int
    num_chunks: int
    counters: Mapping[str, int]
    """Counts since the start, by name. Every medium counts chunks under the names of CHUNK_EVENTS; other names are the
    medium's own, such as `syncs`."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """The present state in numbers, by name, such as `segments`."""
    work: Mapping[str, float] = field(default_factory=dict)
    """Time and bytes spent since the start. A name ends in its unit: `encode_seconds`, `raw_bytes`."""


class Tier(ABC):
    """One slower medium under one namespace.

    The caller guarantees that a job's buffers live and are not changed (store) or used (load) until the job is
    reported by `poll` or `cancel` has returned. The implementer reports each job exactly once unless it is cancelled,
    keeps its queue bounded by refusing, touches no buffer of a job after the job was reported or cancelled, verifies a
    checksum over key and bytes on every load, and never exceeds its budget, not for a moment.
    """

    medium: ClassVar[str]
    """The name in events and metrics."""
    cold_start: str = ""
    """Why the medium has nothing of what it kept under another identity, if it can tell."""
    asks_ahead: bool = False
    """Whether `lookup` knows only the sequences that `ask` told it of, as on a network."""
    shared_as: str = ""
    """The name of what the medium keeps for several engines: the same name, the same chunks. Empty if it keeps them for
    this engine alone."""
    gather_s: float = 0.0
    """How long chunks wait for others of the same prompt that will be stored with them, where few large stores cost
    less than many small ones. When a prompt is complete, nothing waits any more."""

    @abstractmethod
    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        """For each key, which blocks of the chunk are held, as a bit mask: 0b0101 is blocks 0 and 2, ALL_BLOCKS a whole
        chunk, 0 a miss. Advice."""

    @abstractmethod
    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        """For each key, the number of bytes that are stored, 0 for a miss. Advice, for a tier that wraps this one and
        changes lengths, as zstd does. Such a tier reports the changed lengths, so no second one can wrap it."""

    def ask(self, sequence: SequenceNames, *, wants_answer: bool = True) -> bool:
        """Tells the tier of a sequence whose chunks somebody will look up or store. A medium that cannot answer a
        `lookup` at once, such as a store on a network, asks ahead what it has of them, and `lookup` tells what is known
        by now. True while that answer is under way: ask again. It becomes known with `poll` alone: after False, what
        `lookup` said since the last poll still holds. The tier bounds the time, and remembers answers for a bounded
        time, also negative ones. `wants_answer`: False if the chunks are only to be stored; the answer is then
        False. A tier that knows what it has does nothing."""
        return False

    @abstractmethod
    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """The chunks of these keys are being used. Unknown keys are ignored."""

    @abstractmethod
    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        """False: refused, and nothing has happened, because the queue is full or the tier is degraded. A key that is
        there already is replaced."""

    @abstractmethod
    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        """False: refused, and nothing has happened."""

    @abstractmethod
    def cancel(self, job_id: int) -> None:
        """Gives up a job, for example at its deadline. Returns promptly even while the medium hangs. Afterwards nothing
        touches the job's buffers, and the job is not reported."""

    @abstractmethod
    def poll(self, now: float) -> list[TierResult]:
        """Jobs that ended since the last call; also the moment for housekeeping that `now` (seconds, monotonic) makes
        due. Never blocks."""

    @abstractmethod
    def take_changes(self) -> TierChanges:
        """The changes since the last call."""

    def announce(self) -> None:  # noqa: B027 - a tier may have nothing to tell
        """From now on `take_changes` also reports as stored every chunk that the tier has: each chunk once, in bounded
        portions, even if it was reported before. This serves subscribers that know nothing, for example after a
        restart. Others know all from before: what goes meanwhile is reported as ever. If a tier does nothing here, its
        subscribers know of fewer chunks than it has."""

    def owned_by(self, tenants: Collection[bytes]) -> list[tuple[OffloadKey, bytes, int]]:
        """Chunks of these tenants that are there, with tenant and bytes, the oldest first. A medium that keeps nothing
        across restarts need not know."""
        return []

    @abstractmethod
    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """Forgets the chunks of these keys. Unknown keys are ignored."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets all chunks of the namespace. Stores that are under way are forgotten too when they end."""

    @abstractmethod
    def is_reset_durable(self) -> bool:
        """Whether no process finds what a `reset` forgot, even if this one is killed now. `poll` brings it about; a
        medium that keeps nothing returns True."""

    @abstractmethod
    def flush(self, timeout_s: float) -> bool:
        """Blocks until all accepted chunks are as durable as the medium makes them. False if time is up before."""

    @abstractmethod
    def status(self) -> TierStatus: ...

    @abstractmethod
    def close(self) -> None:
        """Ends in bounded time, after a flush. A medium that hangs is abandoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContext:
    """The engine that a tier is built for."""

    namespace: bytes
    """The identity under which its bytes may be reused (`octavo.namespace.identity`): 16 bytes."""
    family: bytes = b""
    """Of all namespaces of the model: a reset reaches them all, also those of other codecs and keys. Empty: this
    namespace alone."""
    max_chunk_bytes: int
    identity: Mapping[str, str] = field(default_factory=dict)
    """The parts of the identity by name, so that a tier that outlives the process can say why it has nothing. Empty, or
    with a `codec` where a tier above this one changes the bytes."""


class OffloadingSpec(ABC):
    """Builds a tier from a person's configuration. Found by name through the entry points `octavo.offloading_specs`."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def from_config(cls, config: Mapping[str, Any]) -> "OffloadingSpec":
        """Checks everything without I/O. InputError names the wrong key or value and lists the right ones."""

    @property
    def asks_ahead(self) -> bool:
        """The same as its tier's."""
        return False

    def check(self) -> None:  # noqa: B027 - a tier may have nothing to look at
        """Looks whether the medium can be opened, as far as that is seen without an engine: before a model is loaded,
        which takes long. OctavoError, with the remedy, if not."""

    @abstractmethod
    def build(self, context: TierContext) -> Tier:
        """Opens the medium. OctavoError, with the remedy, if it cannot be opened."""
