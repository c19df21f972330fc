"""Changes below the device, as events on the wire and as a router sees them."""

from octavo.chunks import MediumChanges, OffloadChanges, get_offload_block_hash
from octavo.events import AllBlocksCleared, BlockRemoved, BlockStored, GroupView, external_hashes
from octavo.host import PAGE_BYTES
from octavo.offload.event_source import OffloadEventSource
from octavo.policies import LRUPolicy
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld, key_of, wanted


def changes(*media, was_cleared=False):
    return OffloadChanges(
        was_cleared=was_cleared,
        media=tuple(MediumChanges(medium=name, removed=removed, stored=stored) for name, removed, stored in media),
    )


def hash_of(key):
    return external_hashes([get_offload_block_hash(key)])[0]


def test_removals_before_stores_one_message_for_each_group_and_medium():
    gone, come = [key_of(0), key_of(1, 1), key_of(2)], [key_of(3, 1), key_of(4, 1)]
    events = OffloadEventSource(GROUPS).messages(changes(("memory", gone, []), ("disk", [key_of(9)], come)))
    assert [(type(e), e.medium, e.ownership, e.group_idx) for e in events] == [
        (BlockRemoved, "CPU", "memory", 0),
        (BlockRemoved, "CPU", "memory", 1),
        (BlockRemoved, "STORAGE", "disk", 0),
        (BlockStored, "STORAGE", "disk", 1),
    ]
    assert events[0].block_hashes == [hash_of(key_of(0)), hash_of(key_of(2))]
    stored = events[-1]
    assert stored.block_hashes == list(map(hash_of, come))
    assert (stored.block_size, stored.kv_cache_spec_kind, stored.token_ids) == (8, "full_attention", [])


def test_hashes_as_bytes():
    (event,) = OffloadEventSource(GROUPS, hashes_as_bytes=True).messages(changes(("memory", [], [key_of(0)])))
    assert event.block_hashes == [get_offload_block_hash(key_of(0))]


def test_after_a_reset_only_what_came_since_is_told():
    events = OffloadEventSource(GROUPS).messages(
        changes(("memory", [], [key_of(1)]), ("disk", [key_of(0)], []), was_cleared=True)
    )
    assert [type(event) for event in events] == [AllBlocksCleared, BlockStored]


def test_a_view_that_follows_them_knows_what_is_there():
    """Two tiers of one medium: a chunk is gone from it with its last copy."""
    below = NaiveTier(64 * PAGE_BYTES)
    below.medium = "memory"
    world = OffloadWorld(LRUPolicy(GROUPS, NUM_SLOTS), [below])
    source = OffloadEventSource(GROUPS)
    view = GroupView([group.spec for group in GROUPS], hash_block_size=4)

    def seen():
        view.apply(source.messages(world.manager.take_changes()))
        return view.hashes(0, "CPU")

    world.store(wanted(0), wanted(1), wanted(2, held_blocks=1))
    assert seen() == {hash_of(key_of(0)), hash_of(key_of(1))}
    world.poll()
    world.settle()
    for number in range(100, 100 + NUM_SLOTS):
        world.store(wanted(number))
    assert hash_of(key_of(0)) in seen()
    below.remove([key_of(0)])
    assert hash_of(key_of(0)) not in seen()
    assert hash_of(key_of(1)) in seen()
    world.manager.reset()
    assert seen() == set()
    world.manager.close()
