"""`Inventory`: the content of a store, counted by namespace, tenant and age."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from octavo.stores.keeper import StoredItem

_DIFFER_S = 86_400
"""Clocks that are kept differ by less."""


def is_ahead(time_s: float, now_s: float) -> bool:
    """Whether a time is one of a clock that was wrong. What has it is taken for the oldest: it would never grow old."""
    return time_s > now_s + _DIFFER_S


@dataclass(slots=True)
class Share:
    """The count of items that have something in common."""

    count: int = 0
    num_bytes: int = 0
    oldest_s: int | None = None
    """Seconds since 1970 of the oldest item with a time."""

    def add(self, found: StoredItem) -> None:
        times = [time for time in (self.oldest_s, found.modified_s) if time is not None]
        self.oldest_s = min(times, default=None)
        self.count += 1
        self.num_bytes += found.num_bytes


@dataclass(slots=True)
class Inventory:
    """The counts of a whole store. It grows with namespaces, tenants and seconds, but not with items."""

    total: Share = field(default_factory=Share)
    former: Share = field(default_factory=Share)
    """Items that resets have left behind."""
    namespaces: dict[tuple[str, int | str, bool, str], Share] = field(default_factory=dict)
    """The items by family, epoch, whether that is a former one, and namespace."""
    tenants: dict[str, Share] = field(default_factory=dict)
    seconds: Counter[int] = field(default_factory=Counter)
    """Bytes outside former epochs, by the second in which they were stored."""
    others: int = 0
    """Items that no engine has stored. Nothing touches them."""

    def counting(self, entries: Iterable[StoredItem | None]) -> Iterator[StoredItem]:
        """Counts items that engines have stored, as they pass."""
        for found in entries:
            if found is None:
                self.others += 1
                continue
            self._count(found)
            yield found

    def bytes_ahead(self, now_s: float) -> int:
        """The bytes whose time is still to come."""
        return sum(num_bytes for second, num_bytes in self.seconds.items() if is_ahead(second, now_s))

    def _count(self, found: StoredItem) -> None:
        self.total.add(found)
        self.namespaces.setdefault((found.family, found.epoch, found.is_former, found.namespace), Share()).add(found)
        self.tenants.setdefault(found.tenant, Share()).add(found)
        if found.is_former:
            self.former.add(found)
        elif found.modified_s is not None:
            self.seconds[found.modified_s] += found.num_bytes
