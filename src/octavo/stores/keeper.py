"""`StoreKeeper`: counts, verifies and deletes the content of a shared store without an engine.

Names alone tell the content: counting and deleting need no key and no byte of a chunk.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, NamedTuple

from octavo.stores.envelope import Finding
from octavo.tiers.disk import RecordCipher


class StoredItem(NamedTuple):
    """One name that engines have stored: an object with some chunks, or a value with one."""

    name: str
    num_bytes: int
    modified_s: int | None
    """Seconds since 1970, by the store's clock; None if the store does not tell."""
    family: str
    epoch: int | str
    is_former: bool
    """Whether a reset has left it behind, or a writer that was killed. Once true, it stays true."""
    namespace: str
    tenant: str
    """The digest of a salt in hex, or NOBODY."""


class StoreKeeper(ABC):
    """One store, of all engines. Its methods wait, and `find` may run in several threads."""

    item: ClassVar[str] = "object"
    """The store's word for one of its items."""
    own_expiry: ClassVar[str] = ""
    """A sentence on how the store itself limits age or size, if it does. Then `gc` takes no age and no size."""

    def __init__(self, url: str) -> None:
        self.url = url
        """The url without a password."""

    @abstractmethod
    def entries(self) -> Iterator[StoredItem | None]:
        """All items, page by page; None for one that no engine stored. Those that change meanwhile may be missing."""

    @abstractmethod
    def find(self, item: StoredItem, cipher: RecordCipher | None) -> list[Finding]:
        """The findings of its chunks, read to the last byte; [BAD_INDEX] if it does not list its chunks, [LATER] if
        this version cannot tell them, and empty if it is gone."""

    @abstractmethod
    def delete(self, items: Sequence[StoredItem]) -> None:
        """Deletes a thousand items at most. One that is already gone is no error."""

    def describe(self, family: str, namespace: str) -> Mapping[str, str]:
        """Whose a namespace is, as an engine that stored there said: `model`, `dtype` and the like, printable. For
        people only, as anybody who may write there can say anything. Empty if that is not known."""
        return {}

    def drop_descriptions(self, staying: Collection[str]) -> None:  # noqa: B027 - see `describe`
        """Deletes what describes other namespaces than these, if they have nothing now: an engine may have stored there
        since they were listed."""

    def now_s(self) -> float:
        """Seconds since 1970: by the clock that dates items, where it can be asked, and else by this machine's."""
        return time.time()

    @abstractmethod
    def asking(self) -> AbstractContextManager[None]:
        """Goes around all calls. Turns the client's errors into TierError, a sentence with the store's url."""
