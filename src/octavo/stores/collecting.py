"""Deletes from a store beside running engines: an engine computes again what it does not find.

All state is in the store, so another run continues one that was cut off. Memory does not grow with the number of items:
one listing counts bytes per second, a second one deletes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from octavo.stores.inventory import Inventory, Share, is_ahead
from octavo.stores.keeper import StoredItem, StoreKeeper

_AT_ONCE = 1000
"""The most items that one request deletes."""


@dataclass(slots=True)
class Expiry:
    """Chooses the items to delete: those of former epochs, those that are too old, and then the oldest."""

    before_s: int
    """Items stored before this second are deleted."""
    at_cut_bytes: int
    """Of the items stored in that second, this many bytes are deleted too."""
    now_s: int
    ahead_bytes: int
    """Of the items whose time is still to come, this many bytes are deleted."""

    def takes(self, found: StoredItem) -> bool:
        """Whether to delete an item. Asked once for each."""
        if found.is_former or found.modified_s is None:
            return found.is_former
        if found.modified_s < self.before_s:
            return True
        if is_ahead(found.modified_s, self.now_s):
            is_taken = self.ahead_bytes > 0
            self.ahead_bytes -= found.num_bytes
            return is_taken
        if found.modified_s > self.before_s or self.at_cut_bytes <= 0:
            return False
        self.at_cut_bytes -= found.num_bytes
        return True


def expire(inventory: Inventory, *, most_bytes: int | None, before_s: int, now_s: int) -> Expiry:
    """The deletions that leave at most `most_bytes` in the store, and nothing from before the second `before_s`. Items
    whose time is still to come go first where there is too much, but not for their age, which nobody knows."""
    kept = {second: num_bytes for second, num_bytes in inventory.seconds.items() if second >= before_s}
    excess = 0 if most_bytes is None else sum(kept.values()) - most_bytes
    ahead_bytes = max(0, min(excess, inventory.bytes_ahead(now_s)))
    excess -= ahead_bytes
    for second in sorted(second for second in kept if not is_ahead(second, now_s)):
        if excess <= 0:
            break
        if excess < kept[second]:
            return Expiry(second, excess, now_s, ahead_bytes)
        excess -= kept[second]
        before_s = second + 1
    return Expiry(before_s, 0, now_s, ahead_bytes)


def delete_items(
    keeper: StoreKeeper, chosen: Iterable[StoredItem], *, is_dry: bool, tell: Callable[[Share], None]
) -> Share:
    """Deletes items, and returns how much is gone, or would be. `tell` gets the count as it grows."""
    gone = Share()
    left = iter(chosen)
    while batch := list(islice(left, _AT_ONCE)):
        if not is_dry:
            keeper.delete(batch)
        for found in batch:
            gone.add(found)
        tell(gone)
    return gone
