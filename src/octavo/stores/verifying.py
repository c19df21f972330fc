"""Reads many items of a store, several at once."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from octavo.stores.envelope import Finding
from octavo.stores.keeper import StoredItem, StoreKeeper
from octavo.tiers.disk import RecordCipher

T = TypeVar("T")
_AT_ONCE = 8
_BYTES_AT_ONCE = 256 << 20
"""The most bytes that are read at once. An item that is alone may be larger."""


def find_all(
    keeper: StoreKeeper, chosen: Iterable[StoredItem], cipher: RecordCipher | None
) -> Iterator[tuple[StoredItem, list[Finding]]]:
    """The findings of each item's chunks, in order."""
    return read_all(chosen, lambda item: keeper.find(item, cipher))


def read_all(chosen: Iterable[StoredItem], read: Callable[[StoredItem], T]) -> Iterator[tuple[StoredItem, T]]:
    """Each item with what `read`, which runs in several threads, says of it, in order. What is being read when it ends
    too soon is not waited for: whoever closes the keeper ends it."""
    under_way: deque[tuple[StoredItem, Future[T]]] = deque()

    def has_room(item: StoredItem) -> bool:
        num_bytes = sum(other.num_bytes for other, _ in under_way) + item.num_bytes
        return not under_way or (len(under_way) < _AT_ONCE and num_bytes <= _BYTES_AT_ONCE)

    threads = ThreadPoolExecutor(_AT_ONCE, "octavo-read")
    try:
        for item in chosen:
            while not has_room(item):
                first, found = under_way.popleft()
                yield first, found.result()
            under_way.append((item, threads.submit(read, item)))
        for last, found in under_way:
            yield last, found.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
