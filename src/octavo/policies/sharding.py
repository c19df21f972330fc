"""Dictionaries of millions of keys that never stop the caller for long.

One dictionary of a million keys takes tens of milliseconds to grow, in whichever call it happens. Split by the first
byte of the key, each part grows in microseconds and at another time. Keys are digests (block hashes, offload keys), so
the first byte is as good as random; keys that are not still work, and grow like one dictionary.

Values should be numbers or bytes: the garbage collector then never looks into the parts.
"""

from typing import TypeVar

NUM_SHARDS = 256
"""A first byte's values."""

_V = TypeVar("_V")

Shards = list[dict[bytes, _V]]
"""The parts; a key's own is `shards[key[0]]`. No class around it: the hot loops index it in place."""


def make_shards() -> Shards[_V]:
    return [{} for _ in range(NUM_SHARDS)]


def count_keys(shards: Shards[_V]) -> int:
    return sum(map(len, shards))
