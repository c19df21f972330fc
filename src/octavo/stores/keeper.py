"""`StoreKeeper`: a shared store without an engine: what it holds, whether that is whole, and deleting it.

Names alone tell what there is: to count and to delete takes no key and no byte of a chunk.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, NamedTuple

from octavo.stores.envelope import Finding
from octavo.tiers.disk import RecordCipher


class StoredItem(NamedTuple):
    """What engines have stored under one name: an object with some chunks, or a value with one."""

    name: str
    num_bytes: int
    modified_s: int | None
    """Since 1970, by the store's clock; None where the store does not tell."""
    family: str
    epoch: int | str
    is_former: bool
    """Whether a reset has left it behind. It stays so."""
    namespace: str
    tenant: str
    """The digest of a salt in hex, or `shared`."""


class StoreKeeper(ABC):
    """One store, of all engines. Its methods wait, and `find` may run in several threads."""

    items: ClassVar[str] = "objects"
    """What the store calls them."""
    own_expiry: ClassVar[str] = ""
    """Where the store itself ends what is old or too much: how, in a sentence. `gc` then takes no age and no size."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Without a password."""

    @abstractmethod
    def entries(self) -> Iterator[StoredItem | None]:
        """All there is, page by page; None for what no engine has stored. What changes meanwhile may be left out."""

    @abstractmethod
    def find(self, item: StoredItem, cipher: RecordCipher | None) -> list[Finding]:
        """What its chunks are, read to the last byte; [BAD_INDEX] where it does not tell its chunks, and nothing where
        it has gone meanwhile."""

    @abstractmethod
    def delete(self, items: Sequence[StoredItem]) -> None:
        """A thousand at most. One that has gone is no error."""

    @abstractmethod
    def asking(self) -> AbstractContextManager[None]:
        """Around all calls: TierError, a sentence with the store's url, for what its client raises."""
