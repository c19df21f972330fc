"""`ObjectsKeeper`: an object store without an engine."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from octavo.chunks import OffloadKey
from octavo.errors import TierError
from octavo.stores import (
    MOST_DESCRIPTION_BYTES,
    Apart,
    Finding,
    StoredItem,
    StoreKeeper,
    examine,
    open_description,
)
from octavo.stores.objects.layout import TAIL_BYTES, Index, is_later, name_description, parse_tail
from octavo.stores.objects.troubles import explain, has_odd_names
from octavo.stores.tenants import TENANT_WORD
from octavo.tiers.disk import RecordCipher

T = TypeVar("T")

_NO_STORE = "it says yes whatever is asked, and is no object store: give the store's own address as endpoint"
_ROUND = "its listing has no end, and tells the same objects again: take a store that can list whole folders"
_NOBODYS = "octavo-nobodys"
"""The name of no object."""
_MOST_LISTED = 1000
"""In one page, as stores have it."""
NAME = re.compile(rf"([0-9a-f]+)/(\d{{8}})/([0-9a-f]{{32}})/({TENANT_WORD})/[0-9a-f]+/[0-9a-f]+/[0-9a-f]+/[0-9a-f]+")
FAMILY = re.compile(r"[0-9a-f]{32}")
_DESCRIPTION = re.compile(r"[0-9a-f]+/names/([0-9a-f]{32})")
_EPOCH = re.compile(r"([0-9a-f]+)/epochs/(\d+)")


class Seen(NamedTuple):
    """What a listing tells of an object."""

    path: str
    num_bytes: int
    modified_s: int


def _see(meta: Mapping[str, Any]) -> Seen:
    return Seen(meta["path"], meta["size"], int(meta["last_modified"].timestamp()))


class ObjectsKeeper(StoreKeeper):
    """One prefix of one store. Its calls are made apart, as a store that does not answer has a minute."""

    def __init__(self, store: Any, url: str, cipher: RecordCipher | None) -> None:
        """With `cipher`, descriptions that are encrypted with this key can be read."""
        super().__init__(url)
        self._store = store
        self._cipher = cipher
        self._apart = Apart()

    def entries(self) -> Iterator[StoredItem | None]:
        epochs: dict[str, int] = {}
        seen = None
        for seen in self._list_all():
            if name := NAME.fullmatch(seen.path):
                family, epoch, namespace, tenant = name.groups()
                if family not in epochs:
                    epochs[family] = self._find_epoch(family)
                is_former = int(epoch) < epochs[family]
                yield StoredItem(*seen, family, int(epoch), is_former, namespace, tenant)
            elif not _EPOCH.fullmatch(seen.path) and not _DESCRIPTION.fullmatch(seen.path):
                yield None
        if seen is None:
            self._check_that_it_is_a_store()

    def find(self, item: StoredItem, cipher: RecordCipher | None) -> list[Finding]:
        if (packed := self.read(item)) is None:
            return []
        namespace = bytes.fromhex(item.namespace)
        index = parse_tail(packed[-TAIL_BYTES:], len(packed), namespace)
        if index is None:
            return [Finding.LATER if is_later(packed) else Finding.BAD_INDEX]
        return [
            examine(
                packed[entry.offset : entry.offset + entry.length],
                (OffloadKey(entry.key), namespace, entry.held_blocks),
                entry.num_bytes,
                cipher,
            )
            for entry in index.chunks
        ]

    def read(self, item: StoredItem) -> memoryview | None:
        """The whole object; None if it is gone."""
        try:
            return memoryview(self._call(_read_whole, self._store, item.name))
        except FileNotFoundError:
            return None

    def read_index(self, item: StoredItem) -> Index | None:
        """The object's index, from its last bytes; None if it is gone or damaged."""
        import obstore

        start = max(0, item.num_bytes - TAIL_BYTES)
        try:
            tail = self._call(obstore.get_range, self._store, item.name, start=start, end=item.num_bytes)
        except FileNotFoundError:
            return None
        return parse_tail(memoryview(tail), item.num_bytes, bytes.fromhex(item.namespace))

    def delete(self, items: Sequence[StoredItem]) -> None:
        import obstore

        self._call(obstore.delete, self._store, [item.name for item in items])

    def describe(self, family: str, namespace: str) -> Mapping[str, str]:
        import obstore
        from obstore.exceptions import BaseError

        path = name_description(family, namespace)
        try:
            data = self._call(obstore.get_range, self._store, path, start=0, end=MOST_DESCRIPTION_BYTES)
        except (BaseError, OSError, TierError):
            return {}
        return open_description(bytes(data), namespace, self._cipher)

    def drop_descriptions(self, staying: Collection[str]) -> None:
        import obstore

        for family in filter(FAMILY.fullmatch, self._list_families()):
            found = [_DESCRIPTION.fullmatch(seen.path) for seen in self._list(f"{family}/names")]
            unseen = [name for name in found if name and name[1] not in staying]
            if gone := [name[0] for name in unseen if not self._has_any(family, name[1])]:
                self._call(obstore.delete, self._store, gone)

    @contextmanager
    def asking(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise TierError(f"{self.url}: {explain(error)}") from error
        finally:
            self._apart.close()

    def _call(self, function: Callable[..., T], *arguments: object, **named: object) -> T:
        """Asks the store apart. ValueError: obstore cannot say what it answers, such as a date in the year 0."""
        try:
            return self._apart.call(function, *arguments, **named)
        except ValueError as error:
            raise TierError(f"{self.url}: its answer is none to what was asked ({error})") from error

    def _list_all(self) -> Iterator[Seen]:
        """All objects. Folders of others are passed over from the first name on that obstore cannot tell."""
        import obstore
        from obstore.exceptions import BaseError

        with suppress(BaseError):  # obstore takes in a whole level at once, and would take in one without an end
            next(islice(self._list(""), _MOST_LISTED, None), None)
        top = self._call(obstore.list_with_delimiter, self._store)
        yield from map(_see, top["objects"])
        for folder in top["common_prefixes"]:
            try:
                yield from self._list(folder)
            except BaseError as error:
                if FAMILY.fullmatch(folder) or not has_odd_names(error):
                    raise

    def _check_that_it_is_a_store(self) -> None:
        """A page of HTML, as a store's console or a proxy answers whatever is asked, is a listing without objects to
        obstore."""
        import obstore
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        try:
            self._call(obstore.head, self._store, _NOBODYS)
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
            return
        raise TierError(f"{self.url}: {_NO_STORE}")

    def _list(self, folder: str) -> Iterator[Seen]:
        """All objects in a folder. TierError for a store that gives one page again and again, without an end."""
        import obstore

        pages, former = obstore.list(self._store, folder, chunk_size=_MOST_LISTED), set[str]()
        while (page := self._call(next, pages, None)) is not None:
            paths = {meta["path"] for meta in page}
            if len(paths) < len(page) or not paths.isdisjoint(former):
                raise TierError(f"{self.url}: {_ROUND}")
            former = paths
            yield from map(_see, page)

    def _list_families(self) -> Sequence[str]:
        """The names at the top, those of others among them."""
        import obstore

        return self._call(obstore.list_with_delimiter, self._store)["common_prefixes"]

    def _has_any(self, family: str, namespace: str) -> bool:
        return any(True for _ in self._list(f"{family}/{self._find_epoch(family):08d}/{namespace}"))

    def _find_epoch(self, family: str) -> int:
        """The present epoch. Epochs only grow, so a former one stays former."""
        names = (_EPOCH.fullmatch(seen.path) for seen in self._list(f"{family}/epochs"))
        return max((int(name[2]) for name in names if name), default=0)


def _read_whole(store: Any, path: str) -> Any:
    import obstore

    return obstore.get(store, path).bytes()
