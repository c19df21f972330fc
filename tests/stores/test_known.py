"""What a tier knows of a store, and how its followers are told."""

from octavo.chunks import ALL_BLOCKS
from octavo.stores.client import HeldChunk
from octavo.stores.known import KnownChunks

HELD = HeldChunk(held_blocks=ALL_BLOCKS, num_bytes=1)
KEYS = [number.to_bytes(8, "big") for number in range(5000)]


def follow(known, keys):
    """The keys that a follower knows in the end, who knew these before."""
    keys = set(keys)
    has_more = True
    while has_more:
        removed, stored, _, has_more = known.take_changes()
        assert len(removed) + len(stored) <= 2048 + 2, "a bounded part with each call"
        assert not set(removed) & set(stored)
        keys = (keys - set(removed)) | set(stored)
    return keys


def test_what_was_forgotten_at_once_is_told_part_by_part():
    known = KnownChunks()
    for key in KEYS:
        known.found(key, HELD)
        known.take_changes()
    known.clear()
    assert not len(known)
    known.take_changes()
    kept = [KEYS[1], KEYS[-1]]
    for key in kept:
        known.found(key, HELD)
    known.gone(kept[:1])
    assert follow(known, KEYS) == {kept[1]}
    known.clear()
    known.found(kept[0], HELD)
    known.clear()
    assert follow(known, kept[1:]) == set()
