"""`RedisKeeper`: a Redis or Valkey server without an engine."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from octavo.chunks import OffloadKey
from octavo.errors import MALFORMED, TierError
from octavo.stores import (
    MOST_DESCRIPTION_BYTES,
    Finding,
    StoredItem,
    StoreKeeper,
    examine,
    name_unread,
    open_description,
    summarize,
)
from octavo.stores.redis.client import name_description
from octavo.stores.redis.troubles import explain, is_of_another_type, other_answer
from octavo.stores.tenants import TENANT_WORD
from octavo.tiers.disk import RecordCipher

_NAME = re.compile(rf"(octavo:[0-9a-f]+):([0-9a-f]+):([0-9a-f]{{32}}):({TENANT_WORD}):((?:[0-9a-f]{{2}})+)")
_DESCRIPTION = re.compile(r"octavo:[0-9a-f]+:names:([0-9a-f]{32})")
_MARK = re.compile(r"octavo:[0-9a-f]+")
_LISTED = 1000
"""The names that one round trip looks at."""


class RedisKeeper(StoreKeeper):
    """One database of one server."""

    item = "value"
    own_expiry = (
        "Redis ends values by itself: by age with engines' --shared-keep, by size with the server's maxmemory and "
        "maxmemory-policy volatile-lru; leave --older-than and --size out, and gc deletes what resets left behind"
    )

    def __init__(self, redis: Any, url: str, cipher: RecordCipher | None) -> None:
        """`redis` is the synchronous client of the package redis. With `cipher`, descriptions that are encrypted with
        this key can be read."""
        super().__init__(url)
        self._redis = redis
        self._cipher = cipher

    def entries(self) -> Iterator[StoredItem | None]:
        """A value may come twice while the server's table of names grows or shrinks."""
        for names in self._pages():
            yield from self._look_at([n for n in names if not _MARK.fullmatch(n) and not _DESCRIPTION.fullmatch(n)])

    def find(self, item: StoredItem, cipher: RecordCipher | None) -> list[Finding]:
        from redis.exceptions import ResponseError

        try:
            with self._understanding():
                envelope = memoryview(self._redis.get(item.name) or b"")
        except ResponseError as error:
            if is_of_another_type(error):
                return [Finding.DAMAGED]
            raise
        if not envelope:
            return []
        summary = summarize(envelope)
        if summary is None:
            return [name_unread(envelope)]
        held_blocks, num_bytes = summary
        key = OffloadKey(bytes.fromhex(item.name.rpartition(":")[2]))
        return [examine(envelope, (key, bytes.fromhex(item.namespace), held_blocks), num_bytes, cipher)]

    def delete(self, items: Sequence[StoredItem]) -> None:
        self._unlink([item.name for item in items])

    def describe(self, family: str, namespace: str) -> Mapping[str, str]:
        from redis.exceptions import RedisError

        name = name_description(f"octavo:{family}", namespace)
        try:
            with self._understanding():
                data = bytes(memoryview(self._redis.getrange(name, 0, MOST_DESCRIPTION_BYTES - 1)))
        except (RedisError, OSError, TierError):
            return {}
        return open_description(data, namespace, self._cipher)

    def drop_descriptions(self, staying: Collection[str]) -> None:
        """An engine's first values are there before its description, so the second look sees them."""
        if unseen := [name for name in self._names(_DESCRIPTION) if name[1] not in staying]:
            present = {name[3] for name in self._names(_NAME)}
            self._unlink([name[0] for name in unseen if name[1] not in present])

    @contextmanager
    def asking(self) -> Iterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        except (RedisError, OSError) as error:
            raise TierError(f"{self.url}: {explain(error, self.url)}") from error
        finally:
            self._redis.close()

    def _unlink(self, names: Sequence[str]) -> None:
        """One command for each name, in one round trip: where a server has all slots of a cluster to itself, it refuses
        a command with names of several slots."""
        with self._understanding(), self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.unlink(name)
            pipeline.execute()

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        """Goes around one question and what is made of its answer. What is no Redis may answer anything, and the client
        takes it for what it expects."""
        try:
            yield
        except (AttributeError, TypeError, *MALFORMED) as error:
            told = explain(error) if isinstance(error, UnicodeError) else other_answer()
            raise TierError(f"{self.url}: {told}") from error

    def _pages(self, pattern: str | None = None) -> Iterator[list[str]]:
        """The names of all values, or of those that match, page by page. TierError for a server that says again
        where it was, as its pages would have no end."""
        former, cursor = None, 0
        while cursor != former:
            with self._understanding():
                former, (cursor, raw) = cursor, self._redis.scan(cursor, match=pattern, count=_LISTED)
                names = [name.decode(errors="replace") for name in raw]
            yield names
            if not cursor:
                return
        raise TierError(f"{self.url}: {other_answer()}")

    def _names(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        for names in self._pages("octavo:*"):
            yield from filter(None, map(pattern.fullmatch, names))

    def _look_at(self, names: Sequence[str]) -> Iterator[StoredItem | None]:
        """Epochs are asked for after the names: they are random, so one that is not the present one now, though a value
        of it was there before, is former for ever."""
        found = {name: parts for name in names if (parts := _NAME.fullmatch(name))}
        families = sorted({parts[1] for parts in found.values()})
        with self._understanding():
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in found:
                    pipeline.memory_usage(name)
                answers = pipeline.execute()
            sizes = {n: None if size is None else int(size) for n, size in zip(found, answers, strict=True)}
            # each alone: no answer to another question may pass for an epoch, as all others are deleted
            marks = {family: bytes(memoryview(self._redis.get(family) or b""))[:32].hex() for family in families}
        for name in names:
            if (parts := found.get(name)) is None:
                yield None
            elif (num_bytes := sizes[name]) is not None:  # it is still there
                family, epoch, namespace, tenant, _ = parts.groups()
                is_former = epoch != marks[family]
                family = family.removeprefix("octavo:")
                yield StoredItem(name, num_bytes, None, family, epoch, is_former, namespace, tenant)
