"""The grammar of eviction policies: which chunks a full tier gives up.

A policy orders keys and counts their slots; it holds no bytes and knows no medium. One tier asks it, from one thread.

    unknown --insert--> idle --pin--> pinned --unpin--> idle --evict or remove--> unknown
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.ids import BlockHash, OffloadKey
from octavo.policies.discards import Part
from octavo.specs import KVCacheSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffloadConfig:
    """What is constant about one group's chunks."""

    spec: KVCacheSpec
    """Its rule says which chunks a resume point needs."""
    blocks_per_chunk: int
    page_size_bytes: int
    """Bytes of one block as it is offloaded."""

    @property
    def tokens_per_chunk(self) -> int:
        return self.spec.block_size * self.blocks_per_chunk

    @property
    def chunk_bytes(self) -> int:
        return self.page_size_bytes * self.blocks_per_chunk


class StoredChunk(NamedTuple):
    """One chunk, as a policy sees it when it enters a tier."""

    key: OffloadKey
    num_slots: int
    """What evicting it makes free. Chunks of one group may differ, where only some of their blocks were kept."""
    position: int
    """Its place among the chunks of its group in the sequence."""
    parent: OffloadKey | None
    """The chunk before it in its group, whether or not that is kept anywhere; None for the first."""


class PromisedPoint(NamedTuple):
    """A boundary at which the writer promises that requests can resume.

    What a resume there needs follows from the groups' specs: for each group, chunks that are ancestors of
    `make_offload_key(block_hash, group)`, itself included, or all chunks of an encoder.
    """

    num_tokens: int
    block_hash: BlockHash
    """The hash of the block that ends there: of every group that has a block that ends there."""


class EvictionPolicy(ABC):
    """The order in which a tier gives up chunks.

    The caller guarantees: `insert` is given keys that are unknown, in the order of their sequences; `pin`, `unpin` and
    `remove` keys that are known; each `unpin` follows a `pin` of the same key (pins nest). Unknown keys in `touch` and
    `promise` are fine: what a promise names may have been evicted, or not have arrived.

    The implementer never names a pinned key as a victim, forgets a victim in the same call that names it,
    and does bounded work in each call: in proportion to the keys given, whatever the number of keys it knows.
    """

    @abstractmethod
    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int) -> None:
        """`num_slots` is the tier's capacity, for policies that divide it."""

    @abstractmethod
    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        """These entered the tier, idle."""

    @abstractmethod
    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """A request uses these, in the order of its sequence."""

    @abstractmethod
    def promise(self, point: PromisedPoint) -> None:
        """A writer promises this resume point; its chunks have been inserted or are there. It may be one that was
        promised before."""

    @abstractmethod
    def pin(self, keys: Sequence[OffloadKey]) -> None:
        """These are being read: no victims until unpinned."""

    @abstractmethod
    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        """One reader fewer for each."""

    @abstractmethod
    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """These left the tier for another reason; pinned ones may be among them, and their pins are forgotten."""

    @abstractmethod
    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        """Victims that free at least `num_slots`. None, and nothing has changed, if idle chunks do not suffice."""

    @abstractmethod
    def clear(self) -> Sequence[Part]:
        """Forgets everything, pins included, and hands over what it held, so that it can be freed piecemeal."""

    @abstractmethod
    def check_invariants(self) -> None:
        """For tests: the policy's own bookkeeping agrees with itself."""
