"""Deleting from a store beside running engines: an engine that finds something gone computes it.

All there is to know stands in the store, so a run that was cut off is gone on with by another one. Memory does not grow
with the number of items: one listing counts bytes by second, a second one deletes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from octavo.stores.inventory import Inventory, Share
from octavo.stores.keeper import StoredItem, StoreKeeper

_AT_ONCE = 1000
"""Items that one request deletes."""


@dataclass(slots=True)
class Expiry:
    """Which items are to go: those of former epochs, those that are too old, and then the oldest."""

    before_s: int
    """Whatever was stored before this second goes."""
    at_cut_bytes: int
    """So many bytes of what was stored in that second go too."""

    def takes(self, found: StoredItem) -> bool:
        """Asked once for each item."""
        if found.is_former or found.modified_s is None:
            return found.is_former
        if found.modified_s < self.before_s:
            return True
        if found.modified_s > self.before_s or self.at_cut_bytes <= 0:
            return False
        self.at_cut_bytes -= found.num_bytes
        return True


def expire(inventory: Inventory, *, most_bytes: int | None, before_s: int) -> Expiry:
    """Afterwards the store holds at most so many bytes, and nothing that was stored before a second since 1970."""
    kept = {second: num_bytes for second, num_bytes in inventory.seconds.items() if second >= before_s}
    excess = 0 if most_bytes is None else sum(kept.values()) - most_bytes
    for second in sorted(kept):
        if excess <= 0:
            break
        if excess < kept[second]:
            return Expiry(second, excess)
        excess -= kept[second]
        before_s = second + 1
    return Expiry(before_s, 0)


def delete_items(
    keeper: StoreKeeper, chosen: Iterable[StoredItem], *, is_dry: bool, tell: Callable[[Share], None]
) -> Share:
    """What has gone, or would go. `tell` hears of it as it grows."""
    gone = Share()
    for batch in _batches(chosen):
        if not is_dry:
            keeper.delete(batch)
        for found in batch:
            gone.add(found)
        tell(gone)
    return gone


def _batches(chosen: Iterable[StoredItem]) -> Iterator[list[StoredItem]]:
    batch: list[StoredItem] = []
    for found in chosen:
        batch.append(found)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
