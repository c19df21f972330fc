"""`ShardedDict`: a dictionary of millions of digests that never stops its caller for long.

One dictionary of a million keys takes tens of milliseconds to grow, in whichever call it happens. Split by the first
byte of the key, each part grows in one or so, and as parts differ in size, not all at the same time. Keys are
digests (block hashes, offload keys), so the first byte is as good as random; keys that are not still work, and grow
like one dictionary.

    first byte   0 1 2 | 3 4 5 6 | 7 8 9 10 11 | 12 13 14 | ...    a part serves three, four or five first bytes

Parts could be smaller; but a dictionary keeps neighbours in time together, so the larger it is, the more of a batch's
keys share cache lines and pages.

Values should be numbers or bytes: the garbage collector then never looks into the parts.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any, Generic, TypeVar

_FIRST_BYTES = 256
_WIDTHS = (3, 4, 5)

_V = TypeVar("_V")


class ShardedDict(Generic[_V]):
    """A mapping; a key that is not there has the value `missing`."""

    __slots__ = ("missing", "shards")

    def __init__(self, missing: _V) -> None:
        self.missing = missing
        self.shards: list[dict[bytes, _V]] = _make_shards()
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

    def parts(self) -> list[dict[bytes, _V]]:
        """Each part once."""
        return list({id(shard): shard for shard in self.shards}.values())

    def items(self) -> Iterator[tuple[bytes, _V]]:
        """All keys and values, in no order."""
        for part in self.parts():
            yield from part.items()

    def __setitem__(self, key: bytes, value: _V) -> None:
        self.shards[key[0]][key] = value

    def __contains__(self, key: bytes) -> bool:
        return key in self.shards[key[0]]

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts():
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self.parts()))


def _make_shards() -> list[dict[bytes, Any]]:
    shards: list[dict[bytes, Any]] = []
    widths = cycle(_WIDTHS)
    while len(shards) < _FIRST_BYTES:
        shards += [{}] * next(widths)
    return shards[:_FIRST_BYTES]
