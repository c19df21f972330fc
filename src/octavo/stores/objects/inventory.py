"""What a store holds, object by object, as names alone tell: no engine, no key and no object's bytes are needed."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from octavo.errors import TierError
from octavo.stores.objects.config import ObjectsConfig
from octavo.stores.objects.troubles import explain

_NAME = re.compile(r"([0-9a-f]+)/(\d{8})/([0-9a-f]{32})/([0-9a-f]+|shared)/[0-9a-f]+/[0-9a-f]+/[0-9a-f]+/[0-9a-f]+")
_EPOCH = re.compile(r"([0-9a-f]+)/epochs/(\d+)")


class StoredObject(NamedTuple):
    """One object of an engine."""

    path: str
    num_bytes: int
    modified_s: int
    """Since 1970, by the store's clock."""
    family: str
    epoch: int
    namespace: str
    tenant: str
    """The digest of a salt in hex, or `shared`."""


@dataclass(slots=True)
class Share:
    """Objects that have something in common."""

    objects: int = 0
    num_bytes: int = 0
    oldest_s: int = 0
    """Since 1970, of the oldest one."""

    def add(self, found: StoredObject) -> None:
        self.oldest_s = min(self.oldest_s, found.modified_s) if self.objects else found.modified_s
        self.objects += 1
        self.num_bytes += found.num_bytes


@dataclass(slots=True)
class Inventory:
    """Of a whole store. It grows with namespaces, tenants and seconds, and not with objects."""

    epochs: dict[str, int] = field(default_factory=dict)
    """The present one of each family that was ever reset."""
    namespaces: dict[tuple[str, int, str], Share] = field(default_factory=dict)
    """By family, epoch and namespace."""
    tenants: dict[str, Share] = field(default_factory=dict)
    seconds: dict[tuple[str, int], Counter[int]] = field(default_factory=dict)
    """Bytes of the objects of a family and epoch, by the second in which they were stored."""
    others: int = 0
    """Objects that no engine has stored. Nothing touches them."""

    def is_former(self, family: str, epoch: int) -> bool:
        """Whether a reset has left these objects behind."""
        return epoch < self.epochs.get(family, 0)


@contextmanager
def asking(config: ObjectsConfig) -> Iterator[None]:
    """What obstore raises becomes one sentence."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise TierError(f"{config.url}: {explain(error)}") from error


def list_objects(store: Any, inventory: Inventory | None = None) -> Iterator[StoredObject]:
    """The objects of engines, page by page; the inventory learns of them, and of what else there is."""
    import obstore

    for page in obstore.list(store):
        for meta in page:
            found = _parse(meta)
            if found is not None:
                if inventory is not None:
                    _count(inventory, found)
                yield found
            elif inventory is not None and (epoch := _EPOCH.fullmatch(meta["path"])):
                inventory.epochs[epoch[1]] = max(inventory.epochs.get(epoch[1], 0), int(epoch[2]))
            elif inventory is not None:
                inventory.others += 1


def _parse(meta: Any) -> StoredObject | None:
    name = _NAME.fullmatch(meta["path"])
    if name is None:
        return None
    modified_s = int(meta["last_modified"].timestamp())
    return StoredObject(meta["path"], meta["size"], modified_s, name[1], int(name[2]), name[3], name[4])


def _count(inventory: Inventory, found: StoredObject) -> None:
    inventory.namespaces.setdefault((found.family, found.epoch, found.namespace), Share()).add(found)
    inventory.tenants.setdefault(found.tenant, Share()).add(found)
    inventory.seconds.setdefault((found.family, found.epoch), Counter())[found.modified_s] += found.num_bytes
