"""`ObjectsKeeper`: an object store without an engine."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from octavo.chunks import OffloadKey
from octavo.errors import TierError
from octavo.stores import MOST_DESCRIPTION_BYTES, Finding, StoredItem, StoreKeeper, examine, open_description
from octavo.stores.objects.layout import TAIL_BYTES, Index, name_description, parse_tail
from octavo.stores.objects.troubles import explain
from octavo.tiers.disk import RecordCipher

NAME = re.compile(r"([0-9a-f]+)/(\d{8})/([0-9a-f]{32})/([0-9a-f]+|shared)/[0-9a-f]+/[0-9a-f]+/[0-9a-f]+/[0-9a-f]+")
_FAMILY = re.compile(r"[0-9a-f]+")
_DESCRIPTION = re.compile(r"[0-9a-f]+/names/([0-9a-f]{32})")
_EPOCH = re.compile(r"([0-9a-f]+)/epochs/(\d+)")


class ObjectsKeeper(StoreKeeper):
    """One prefix of one store."""

    def __init__(self, store: Any, url: str, cipher: RecordCipher | None = None) -> None:
        """With `cipher`, descriptions that are encrypted with this key can be read."""
        super().__init__(url)
        self._store = store
        self._cipher = cipher

    def entries(self) -> Iterator[StoredItem | None]:
        import obstore

        epochs: dict[str, int] = {}
        for page in obstore.list(self._store):
            for meta in page:
                if name := NAME.fullmatch(meta["path"]):
                    family, epoch, namespace, tenant = name.groups()
                    if family not in epochs:
                        epochs[family] = self._find_epoch(family)
                    is_former = int(epoch) < epochs[family]
                    seen = (meta["path"], meta["size"], int(meta["last_modified"].timestamp()))
                    yield StoredItem(*seen, family, int(epoch), is_former, namespace, tenant)
                elif not _EPOCH.fullmatch(meta["path"]) and not _DESCRIPTION.fullmatch(meta["path"]):
                    yield None

    def find(self, item: StoredItem, cipher: RecordCipher | None) -> list[Finding]:
        if (packed := self.read(item)) is None:
            return []
        namespace = bytes.fromhex(item.namespace)
        index = parse_tail(packed[-TAIL_BYTES:], len(packed), namespace)
        if index is None:
            return [Finding.BAD_INDEX]
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
        import obstore

        try:
            return memoryview(obstore.get(self._store, item.name).bytes())
        except FileNotFoundError:
            return None

    def read_index(self, item: StoredItem) -> Index | None:
        """The object's index, from its last bytes; None if it is gone or damaged."""
        import obstore

        start = max(0, item.num_bytes - TAIL_BYTES)
        try:
            tail = obstore.get_range(self._store, item.name, start=start, end=item.num_bytes)
        except FileNotFoundError:
            return None
        return parse_tail(memoryview(tail), item.num_bytes, bytes.fromhex(item.namespace))

    def delete(self, items: Sequence[StoredItem]) -> None:
        import obstore

        obstore.delete(self._store, [item.name for item in items])

    def describe(self, family: str, namespace: str) -> Mapping[str, str]:
        import obstore
        from obstore.exceptions import BaseError

        path = name_description(family, namespace)
        try:
            data = obstore.get_range(self._store, path, start=0, end=MOST_DESCRIPTION_BYTES)
        except (BaseError, OSError):
            return {}
        return open_description(bytes(data), namespace, self._cipher)

    def drop_descriptions(self, staying: Collection[str]) -> None:
        import obstore

        for family in obstore.list_with_delimiter(self._store)["common_prefixes"]:
            if _FAMILY.fullmatch(family):
                for page in obstore.list(self._store, f"{family}/names"):
                    found = [_DESCRIPTION.fullmatch(meta["path"]) for meta in page]
                    unseen = [name for name in found if name and name[1] not in staying]
                    if gone := [name[0] for name in unseen if not self._has_any(family, name[1])]:
                        obstore.delete(self._store, gone)

    @contextmanager
    def asking(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise TierError(f"{self.url}: {explain(error)}") from error

    def _has_any(self, family: str, namespace: str) -> bool:
        import obstore

        return any(obstore.list(self._store, f"{family}/{self._find_epoch(family):08d}/{namespace}"))

    def _find_epoch(self, family: str) -> int:
        """The present epoch. Epochs only grow, so a former one stays former."""
        import obstore

        names = (
            _EPOCH.fullmatch(meta["path"]) for page in obstore.list(self._store, f"{family}/epochs") for meta in page
        )
        return max((int(name[2]) for name in names if name), default=0)
