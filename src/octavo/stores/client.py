"""`RemoteClient`: what one kind of store does for `RemoteTier`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from octavo.chunks import OffloadKey, SequenceNames
from octavo.errors import TierError


class StoreDownError(TierError):
    """The store did not do what it was asked, and may do so later: it is not reached, or fails."""

    def __init__(self, sentence: str, remedy: str = "") -> None:
        super().__init__(f"{sentence}; {remedy}" if remedy else sentence)
        self.remedy = remedy
        """For what does not go away by itself."""


class StoreBusyError(StoreDownError):
    """The store throttles: it wants fewer requests."""


class HeldChunk(NamedTuple):
    """What is known of a chunk that the store has."""

    held_blocks: int
    num_bytes: int
    """Of the chunk itself, without its envelope."""
    where: Any = None
    """The client's own: where it finds the envelope."""


class OutgoingChunk(NamedTuple):
    """A chunk that is to be stored."""

    key: OffloadKey
    held_blocks: int
    num_bytes: int
    envelope: memoryview
    tenant: bytes
    replaces: bool
    """Whether the store is known to have the key with other blocks, or damaged."""


class RemoteClient(ABC):
    """One store under one namespace.

    The tier calls `expect` on the engine's thread, where it must not wait, and all else on its own loop, several calls
    at once. It limits the time of each call by cancelling it. A client raises StoreDownError where the store did not
    work; a chunk that the store does not have is an answer, and no error. It never changes what it was given.
    """

    medium: ClassVar[str]
    generation: int = 0
    """Grows when somebody has reset the store: of all that was known nothing is there any more."""

    def expect(self, sequence: SequenceNames) -> None:  # noqa: B027 - only some stores file chunks by sequence
        """Chunks of this sequence will be looked for or stored."""

    @abstractmethod
    async def probe(self) -> None:
        """One small call: StoreDownError unless the store works."""

    @abstractmethod
    async def find(self, sequence: SequenceNames) -> Mapping[OffloadKey, HeldChunk]:
        """What the store has of the sequence, in few round trips whatever its length."""

    @abstractmethod
    async def put(self, chunks: Sequence[OutgoingChunk], is_wanted: Callable[[], bool]) -> list[HeldChunk | None]:
        """By place: what the store has now; None where it did not take the chunk. `is_wanted` is False after a reset:
        what the client then writes must be found by nobody after `forget_all`."""

    @abstractmethod
    async def get(self, wanted: Sequence[tuple[OffloadKey, HeldChunk]]) -> "list[memoryview | StoreDownError | None]":
        """By place: the envelope, which the tier verifies; an error where the store did not work for this chunk, though
        it did for others; None where it does not have the chunk any more."""

    @abstractmethod
    async def forget_all(self) -> None:
        """A reset: no engine finds any more what was stored before, once this returns."""

    @abstractmethod
    async def close(self) -> None:
        """Ends connections."""
