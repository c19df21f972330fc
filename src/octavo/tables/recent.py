"""`Recent`: a mapping that forgets. It keeps the newest N keys at the least and 2 N at the most, in two generations:

    young [ keys put since the last turn ]   old [ those before ]   gone

Keys that are put together are forgotten together. So if the last key of a chain is there, its first keys are too.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from octavo.tables.discards import Discards

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The newest keys and their values. Work per call is in proportion to the keys given."""

    def __init__(self, fewest: int) -> None:
        """`fewest`: the keys that are kept at the least; as many end a generation."""
        self.has_forgotten = False
        """Whether a key may be missing because it is old."""
        self._fewest = fewest
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._gone = Discards()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, key: K) -> bool:
        return key in self._young or key in self._old

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def is_young(self, key: K) -> bool:
        """Whether it is among the young."""
        return key in self._young

    def put(self, keys: Sequence[K], value: V) -> None:
        """Puts these keys as the newest, all with one value."""
        self._gone.free(2 * len(keys) + 1)
        self._young.update(dict.fromkeys(keys, value))
        if len(self._young) >= self._fewest:
            self.has_forgotten |= bool(self._old)
            self._gone.add([self._old])
            self._old, self._young = self._young, {}

    def clear(self) -> None:
        self._gone.add([self._young, self._old])
        self._young, self._old, self.has_forgotten = {}, {}, False
