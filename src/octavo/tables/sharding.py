"""Dictionaries of millions of keys that never stop the caller for long.

One dictionary of a million keys takes tens of milliseconds to grow, in whichever call it happens. Split by the first
byte of the key, each part grows in one or so, and as parts differ in size, not all at the same time. Keys are
digests (block hashes, offload keys), so the first byte is as good as random; keys that are not still work, and grow
like one dictionary.

    first byte   0 1 2 | 3 4 5 6 | 7 8 9 10 11 | 12 13 14 | ...    a part stands at three, four or five places

Parts could be smaller; but a dictionary keeps neighbours in time together, so the larger it is, the more of a batch's
keys share cache lines and pages.

Values should be numbers or bytes: the garbage collector then never looks into the parts.
"""

from itertools import cycle
from typing import TypeVar

NUM_PLACES = 256
"""A first byte's values."""
_WIDTHS = (3, 4, 5)

_V = TypeVar("_V")

Shards = list[dict[bytes, _V]]
"""The parts, by first byte: a key's own is `shards[key[0]]`. No class around it: the hot loops index it in place."""


def make_shards() -> Shards[_V]:
    shards: Shards[_V] = []
    widths = cycle(_WIDTHS)
    while len(shards) < NUM_PLACES:
        shards += [{}] * next(widths)
    return shards[:NUM_PLACES]


def distinct_parts(shards: Shards[_V]) -> list[dict[bytes, _V]]:
    """Each part once."""
    return list({id(shard): shard for shard in shards}.values())


def count_keys(shards: Shards[_V]) -> int:
    return sum(map(len, distinct_parts(shards)))
