"""What a tier knows of a store, and how its followers are told."""

from octavo.chunks import ALL_BLOCKS
from octavo.stores.client import HeldChunk
from octavo.stores.known import KnownChunks

HELD = HeldChunk(held_blocks=ALL_BLOCKS, num_bytes=1)
KEYS = [number.to_bytes(8, "big") for number in range(5000)]
MOST_TOLD = 512


def take(known, followed):
    """What a follower knows after one call more. Whether the next one tells more."""
    changes = known.take_changes()
    assert len(changes.removed) <= MOST_TOLD + 1, "a bounded part with each call"
    assert not set(changes.removed) & set(changes.stored)
    followed.difference_update(changes.removed)
    followed.update(changes.stored)
    return changes.has_more


def test_what_was_forgotten_at_once_is_told_part_by_part():
    known, followed = KnownChunks(), set()
    for key in KEYS:
        known.found(key, HELD)
        take(known, followed)
    assert followed == set(KEYS)
    known.clear()
    assert take(known, followed)
    assert len(followed) == len(KEYS) - MOST_TOLD
    first, last = min(followed), max(followed)
    for key in (first, last):
        known.found(key, HELD)
    known.gone([first])
    while take(known, followed):
        pass
    assert followed == {last}
    known.clear()
    known.found(first, HELD)
    known.clear()
    while take(known, followed):
        pass
    assert not followed
