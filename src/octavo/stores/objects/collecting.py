"""Deleting objects beside running engines: an engine that finds one gone computes what it held.

All there is to know stands in the store, so a run that was cut off is gone on with by another one. Memory does not grow
with the number of objects: one listing counts bytes by second, a second one deletes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from octavo.stores.objects.inventory import Inventory, Share, StoredObject

_AT_ONCE = 1000
"""Objects that one request deletes."""


@dataclass(slots=True)
class Expiry:
    """Which objects are to go: those of former epochs, those that are too old, and then the oldest."""

    inventory: Inventory
    before_s: int
    """Whatever was stored before this second goes."""
    at_cut_bytes: int
    """So many bytes of what was stored in that second go too."""

    def takes(self, found: StoredObject) -> bool:
        """Asked once for each object."""
        if self.inventory.is_former(found.family, found.epoch) or found.modified_s < self.before_s:
            return True
        if found.modified_s > self.before_s or self.at_cut_bytes <= 0:
            return False
        self.at_cut_bytes -= found.num_bytes
        return True


def expire(inventory: Inventory, *, most_bytes: int | None, before_s: int) -> Expiry:
    """Afterwards the store holds at most so many bytes, and nothing that was stored before a second since 1970."""
    present = sum(
        (by_second for key, by_second in inventory.seconds.items() if not inventory.is_former(*key)), Counter[int]()
    )
    kept = sum(num_bytes for second, num_bytes in present.items() if second >= before_s)
    excess = 0 if most_bytes is None else kept - most_bytes
    for second in sorted(second for second in present if second >= before_s):
        if excess <= 0:
            break
        if excess < present[second]:
            return Expiry(inventory, second, excess)
        excess -= present[second]
        before_s = second + 1
    return Expiry(inventory, before_s, 0)


def delete_objects(store: Any, chosen: Iterable[StoredObject], *, is_dry: bool, tell: Callable[[Share], None]) -> Share:
    """What has gone, or would go. `tell` hears of it as it grows."""
    import obstore

    gone = Share()
    for batch in _batches(chosen):
        if not is_dry:
            obstore.delete(store, [found.path for found in batch])
        for found in batch:
            gone.add(found)
        tell(gone)
    return gone


def _batches(chosen: Iterable[StoredObject]) -> Iterator[list[StoredObject]]:
    batch: list[StoredObject] = []
    for found in chosen:
        batch.append(found)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
