"""The contract of a slower tier: a medium that keeps chunks by key, below host memory.

A tier stores bytes from host buffers and loads them back, asynchronously and verified. It decides alone what it keeps:
within its budget it may refuse and evict, and reports both. One thread calls it, and no call blocks on its medium: a
fault of the disk, hanging included, shows as a job that fails, ends late or is cancelled.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from octavo.chunks import ChunkBytes, OffloadKey, TierChanges, TierResult


class TierState(Enum):
    OK = "ok"
    DEGRADED = "degraded"
    """Turned off for now: lookups miss and stores are refused, until a probe succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """A tier at a glance, for metrics and logs."""

    state: TierState
    reason: str
    """Why it is degraded; empty when it is not."""
    bytes_used: int
    """All that counts against the budget, metadata included."""
    bytes_budget: int
    num_chunks: int
    counters: Mapping[str, int]
    """Monotonic, by name: stores_refused, store_failures, load_failures, corrupt_records, evicted, ..."""


class Tier(ABC):
    """One slower medium under one namespace.

    The caller guarantees that a job's buffers live and are not changed (store) or used (load) until the job is
    reported by `poll` or `cancel` has returned. The implementer reports each job exactly once unless it is cancelled,
    keeps its queue bounded by refusing, touches no buffer of a job after the job was reported or cancelled, verifies a
    checksum over key and bytes on every load, and never exceeds its budget, not for a moment.
    """

    medium: ClassVar[str]
    """As events and metrics name it."""

    @abstractmethod
    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        """For each key, which blocks of the chunk are held, as a bit mask: 0b0101 is blocks 0 and 2, ALL_BLOCKS a whole
        chunk, 0 a miss. Advice."""

    @abstractmethod
    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        """For each key, the number of bytes that are stored, 0 for a miss. Advice, for a tier that wraps this one and
        changes lengths, as zstd does. Such a tier reports the changed lengths, so no second one can wrap it."""

    @abstractmethod
    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """The chunks of these keys are in use. Unknown keys are ignored."""

    @abstractmethod
    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        """False: refused, nothing has happened (the queue is full, or the tier is degraded). A key that is there is
        replaced."""

    @abstractmethod
    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        """False: refused, nothing has happened."""

    @abstractmethod
    def cancel(self, job_id: int) -> None:
        """Gives up a job, for example at its deadline. Returns promptly even while the medium hangs. Afterwards nothing
        touches the job's buffers, and the job is not reported."""

    @abstractmethod
    def poll(self, now: float) -> list[TierResult]:
        """Jobs that ended since the last call; also the moment for housekeeping that `now` (seconds, monotonic) makes
        due. Never blocks."""

    @abstractmethod
    def take_changes(self) -> TierChanges: ...

    @abstractmethod
    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """Forgets the chunks of these keys. Unknown keys are ignored."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets all chunks of the namespace; stores that are under way are forgotten too when they end."""

    @abstractmethod
    def is_reset_durable(self) -> bool:
        """Whether no process finds again what a `reset` forgot, also if this one is killed now. `poll` brings it about;
        a medium that keeps nothing says True."""

    @abstractmethod
    def flush(self, timeout_s: float) -> bool:
        """Blocks until all accepted chunks are as durable as the medium makes them. False if time is up first."""

    @abstractmethod
    def status(self) -> TierStatus: ...

    @abstractmethod
    def close(self) -> None:
        """Ends in bounded time, after a flush; a medium that hangs is abandoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContext:
    """The engine that a tier is built for."""

    namespace: bytes
    """The identity under which its bytes may be reused (`octavo.namespace.identity`): 16 bytes."""
    max_chunk_bytes: int
    identity: Mapping[str, str] = field(default_factory=dict)
    """The parts of the identity by name, so that a tier that outlives the process can say why it has nothing."""


class OffloadingSpec(ABC):
    """Builds a tier from a person's configuration. Found by name through the entry points `octavo.offloading_specs`."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def from_config(cls, config: Mapping[str, Any]) -> "OffloadingSpec":
        """Checks everything, does no I/O. InputError names the wrong key or value and lists the right ones."""

    @abstractmethod
    def build(self, context: TierContext) -> Tier:
        """Opens the medium. OctavoError, with the remedy, if that cannot be."""
