"""The grammar of eviction policies: which chunks a full tier gives up.

A policy orders keys and counts their slots; it holds no bytes and knows no medium. One tier asks it, from one thread.

    unknown --insert--> idle --pin--> pinned --unpin--> idle --evict or remove--> unknown
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk
from octavo.ids import BlockHash
from octavo.tables import Part


class EvictionPolicy(ABC):
    """The order in which a tier gives up chunks.

    The caller guarantees: `insert` is given keys that are unknown, in the order of their sequences; `pin`, `unpin` and
    `remove` keys that are known; each `unpin` follows a `pin` of the same key (pins nest). Unknown keys in `touch` and
    `promise` are fine: what a promise names may have been evicted, or not have arrived.

    When the caller calls:

        insert      a store, or a read from a tier below, has ended
        promise     the last store for a point has ended, and again whenever a request promises the same point
        touch       a request has resumed: once for each request, with the chunks of all groups that its resume point
                    needs, whether their blocks came from here, from the device or from another tier
        pin, unpin  around a load, and around a write to a tier below
        weigh       somebody has said how long a point will be wanted, and again as that time passes

    So a use is a `touch`. To store, to promise, to load and to write down are none.

    The implementer never names a pinned key as a victim, forgets a victim in the same call that names it,
    and does bounded work in each call: in proportion to the keys given, whatever the number of keys it knows.
    """

    @abstractmethod
    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int) -> None:
        """`num_slots` is the tier's capacity, for policies that divide it."""

    @abstractmethod
    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        """These chunks entered the tier, idle."""

    @abstractmethod
    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """A request has resumed with these: group by group, in the order of its sequence."""

    @abstractmethod
    def promise(self, point: PromisedPoint) -> None:
        """A writer promises this resume point; its chunks have been inserted or are there. It may be one that was
        promised before."""

    def weigh(self, block_hash: BlockHash, weight: float) -> bool:
        """From now on the point that ends with this block counts as worth so many times as much as the policy reckons,
        all its groups together, also if it comes later: until the weight is 1 again, or, if it is less than 1, until
        the point is used. The caller bounds how many weights there are. No weight keeps a point for ever: `evict`
        gives up all that is idle where that is wanted. False, and nothing has changed: the policy judges no points."""
        return False

    def keeps(self, block_hash: BlockHash) -> bool:
        """Whether the point that ends with this block is kept, as far as the policy tells."""
        return True

    @abstractmethod
    def pin(self, keys: Sequence[OffloadKey]) -> None:
        """These chunks are being read, so they are no victims until they are unpinned."""

    @abstractmethod
    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        """Each of these chunks has one reader fewer."""

    @abstractmethod
    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """These chunks left the tier for another reason. Pinned ones may be among them; their pins are forgotten."""

    @abstractmethod
    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        """Gives up victims that free at least `num_slots`, and returns them. If idle chunks do not suffice, it returns
        None and has changed nothing."""

    @abstractmethod
    def clear(self) -> Sequence[Part]:
        """Forgets everything, pins included, and returns what it held, so that the caller can free it piece by
        piece."""

    @abstractmethod
    def check_invariants(self) -> None:
        """For tests: the policy's own bookkeeping agrees with itself."""
