"""`ShardedDict`: a dictionary of millions of digests that never stops its caller for long.

One dictionary of a million keys takes tens of milliseconds to grow, in whichever call it happens. Split by the first
byte of the key, each of 256 parts grows in a tenth of one, and rarely many in the same call. Keys are digests (block
hashes, offload keys), so the first byte is as good as random; keys that are not still work, and grow like one
dictionary.

Values should be numbers or bytes: the garbage collector then never looks into the parts.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

_FIRST_BYTES = 256

_V = TypeVar("_V")


class ShardedDict(Generic[_V]):
    """A mapping; a key that is not there has the value `missing`."""

    __slots__ = ("missing", "shards")

    def __init__(self, missing: _V) -> None:
        self.missing = missing
        self.shards: list[dict[bytes, _V]] = [{} for _ in range(_FIRST_BYTES)]
        """The parts, by first byte. Hot loops use `shards[key[0]]` directly, which saves a call per key."""

    def get(self, key: bytes) -> _V:
        return self.shards[key[0]].get(key, self.missing)

    def find(self, keys: Iterable[bytes]) -> list[_V]:
        """The values of these keys."""
        shards, missing = self.shards, self.missing
        return [shards[key[0]].get(key, missing) for key in keys]

    def pop(self, key: bytes) -> _V:
        return self.shards[key[0]].pop(key, self.missing)

    def pop_all(self, keys: Iterable[bytes]) -> list[_V]:
        shards, missing = self.shards, self.missing
        return [shards[key[0]].pop(key, missing) for key in keys]

    def items(self) -> Iterator[tuple[bytes, _V]]:
        """All keys and values, in no order."""
        for part in self.shards:
            yield from part.items()

    def __setitem__(self, key: bytes, value: _V) -> None:
        self.shards[key[0]][key] = value

    def __contains__(self, key: bytes) -> bool:
        return key in self.shards[key[0]]

    def __iter__(self) -> Iterator[bytes]:
        for part in self.shards:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self.shards))
