"""`RemoteClient`: the part of `RemoteTier` that one kind of store supplies."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from octavo.chunks import OffloadKey, SequenceNames
from octavo.errors import TierError


class StoreDownError(TierError):
    """The store failed or was not reached; it may work later."""

    turns_off: ClassVar[bool] = False
    """Whether one such error is enough to leave the store alone for a while."""

    def __init__(self, sentence: str, remedy: str = "") -> None:
        super().__init__(f"{sentence}; {remedy}" if remedy else sentence)
        self.remedy = remedy
        """The advice for an error that does not go away by itself."""


class StoreBusyError(StoreDownError):
    """The store throttles: it wants fewer requests."""

    turns_off = True


class SeveralStoresError(StoreDownError):
    """What looks like one store is several: a call that works says nothing of the next one."""

    turns_off = True


class HeldChunk(NamedTuple):
    """What is known of a chunk in the store."""

    held_blocks: int
    num_bytes: int
    """The bytes of the chunk itself, without its envelope."""
    where: Any = None
    """Where the envelope is; only the client reads it."""


class OutgoingChunk(NamedTuple):
    """A chunk to be stored."""

    key: OffloadKey
    held_blocks: int
    num_bytes: int
    envelope: memoryview
    tenant: bytes
    replaces: bool
    """Whether the store is known to have the key with other blocks, or damaged."""


class RemoteClient(ABC):
    """One store under one namespace.

    The tier calls `expect` on the engine's thread, where it must not wait, and all other methods on its own loop,
    several at once. It limits the time of each call by cancelling it. A client raises StoreDownError if the store did
    not work; a chunk that the store lacks is an answer, not an error. A client never changes its arguments.
    """

    medium: ClassVar[str]
    generation: int = 0
    """Grows when an engine has reset the store: nothing that was known before is there any more."""

    def expect(self, sequence: SequenceNames) -> None:  # noqa: B027 - only some stores file chunks by sequence
        """Tells that chunks of this sequence will be looked for or stored."""

    @abstractmethod
    async def probe(self) -> None:
        """Makes one small call. Raises StoreDownError unless the store works."""

    @abstractmethod
    async def find(self, sequence: SequenceNames) -> Mapping[OffloadKey, HeldChunk]:
        """Finds the store's chunks of the sequence, in few round trips whatever its length."""

    @abstractmethod
    async def put(self, chunks: Sequence[OutgoingChunk], is_wanted: Callable[[], bool]) -> list[HeldChunk | None]:
        """By index: the chunk in the store now; None if the store did not take it. `is_wanted` is False after a reset:
        then no engine may find what the client writes, once `forget_all` has returned."""

    @abstractmethod
    async def get(self, wanted: Sequence[tuple[OffloadKey, HeldChunk]]) -> "list[memoryview | StoreDownError | None]":
        """By index: the envelope, which the tier verifies; an error if the store failed for this chunk only; None if
        the store lacks the chunk by now."""

    @abstractmethod
    async def forget_all(self) -> None:
        """A reset: once it returns, no engine finds what was stored before."""

    @abstractmethod
    async def close(self) -> None:
        """Closes connections."""
