"""Changes below the device, as events on the wire and as a router sees them."""

from octavo.chunks import (
    ALL_BLOCKS,
    GroupOffloadConfig,
    MediumChanges,
    OffloadChanges,
    get_offload_block_hash,
    make_offload_key,
)
from octavo.events import AllBlocksCleared, BlockRemoved, BlockStored, GroupView, external_hashes
from octavo.host import PAGE_BYTES
from octavo.ids import BlockHash, GroupIdx
from octavo.offload.event_source import OffloadEventSource
from octavo.policies import LRUPolicy
from rigs.naive_tier import NaiveTier
from rigs.offload_world import GROUPS, NUM_SLOTS, OffloadWorld, key_of, wanted


def changes(*media, was_cleared=False):
    return OffloadChanges(
        was_cleared=was_cleared,
        media=tuple(
            MediumChanges(
                medium=name,
                removed=removed,
                stored=stored,
                held={**dict.fromkeys(removed, 0), **dict.fromkeys(stored, ALL_BLOCKS)},
            )
            for name, removed, stored in media
        ),
    )


def hash_of(key):
    return external_hashes([get_offload_block_hash(key)])[0]


def test_removals_before_stores_one_message_for_each_group_and_medium():
    gone, come = [key_of(0), key_of(1, 1), key_of(2)], [key_of(3, 1), key_of(4, 1)]
    source = OffloadEventSource(GROUPS)
    source.messages(changes(("memory", [], gone), ("disk", [], [key_of(9)])))
    events = source.messages(changes(("memory", gone, []), ("disk", [key_of(9)], come)))
    assert [(type(e), e.medium, e.ownership, e.group_idx) for e in events] == [
        (BlockRemoved, "CPU", "memory", 0),
        (BlockRemoved, "CPU", "memory", 1),
        (BlockRemoved, "STORAGE", "disk", 0),
        (BlockStored, "STORAGE", "disk", 1),
    ]
    assert events[0].block_hashes == [hash_of(key_of(0)), hash_of(key_of(2))]
    stored = events[-1]
    assert stored.block_hashes == list(map(hash_of, come))
    assert stored.block_size == 8, "chunks of two blocks that nobody named: each by its last block, with its size"
    assert (stored.kv_cache_spec_kind, stored.token_ids) == ("full_attention", [])


def test_a_block_is_there_while_any_chunk_has_it():
    """One sequence whose first promise ended inside a chunk: key(5) has blocks 4 and 5, key(7) has 4 to 7."""
    group = GroupOffloadConfig(spec=GROUPS[0].spec, blocks_per_chunk=4, page_size_bytes=1500)
    source = OffloadEventSource([group])
    digests = [BlockHash(bytes([number]) * 16) for number in range(8)]
    hashes = external_hashes(digests)
    short, long = (make_offload_key(digests[last], GroupIdx(0)) for last in (5, 7))
    source.name(short, digests[4:6])
    source.name(long, digests[4:8])

    def told(**held):
        masks = {{"short": short, "long": long}[name]: mask for name, mask in held.items()}
        medium = MediumChanges(medium="memory", removed=[], stored=[], held=masks)
        events = source.messages(OffloadChanges(was_cleared=False, media=(medium,)))
        assert all(event.block_size == 4 for event in events if isinstance(event, BlockStored))
        return [(type(event), [hashes.index(found) for found in event.block_hashes]) for event in events]

    assert told(short=0b11) == [(BlockStored, [4, 5])]
    assert told(long=ALL_BLOCKS) == [(BlockStored, [4, 5, 6, 7])]
    assert told(short=0) == []
    assert told(long=0b1101) == [(BlockRemoved, [5]), (BlockStored, [4, 6, 7])]
    assert told(long=0b1110) == [(BlockRemoved, [4]), (BlockStored, [5, 6, 7])]
    assert told(short=0b11, long=0) == [(BlockRemoved, [6, 7]), (BlockStored, [4, 5])]


def test_a_chunk_of_a_former_process_is_told_by_its_last_block():
    """Until a request names it: then by its blocks, and the former word is taken back."""
    group = GroupOffloadConfig(spec=GROUPS[0].spec, blocks_per_chunk=4, page_size_bytes=1500)
    source = OffloadEventSource([group])
    view = GroupView([group.spec], hash_block_size=4)
    digests = [BlockHash(bytes([number]) * 16) for number in range(8)]
    hashes = external_hashes(digests)
    whole, part = (make_offload_key(digests[last], GroupIdx(0)) for last in (3, 5))

    def tell(**held):
        masks = {{"whole": whole, "part": part}[name]: mask for name, mask in held.items()}
        medium = MediumChanges(medium="disk", removed=[], stored=[], held=masks)
        events = source.messages(OffloadChanges(was_cleared=False, media=(medium,)))
        view.apply(events)
        return [(event.block_size, event.block_hashes) for event in events if isinstance(event, BlockStored)]

    assert tell(whole=ALL_BLOCKS) == [(16, [hashes[3]])]
    assert (view.longest_resume(hashes, 33).num_tokens, view.is_complete) == (16, True)
    assert tell(part=0b11) == [(0, [hashes[5]])]
    assert (view.longest_resume(hashes, 33).num_tokens, view.is_complete) == (16, False)
    source.name(whole, digests[:4])
    source.name(part, digests[4:6])
    assert tell(whole=0b1111, part=0b11) == [(4, hashes[:6])]
    assert view.longest_resume(hashes, 33).num_tokens == 24
    tell(whole=0)
    assert view.longest_resume(hashes, 33).num_tokens == 0
    assert view.hashes(0, "STORAGE") == set(hashes[4:6])


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
    assert seen() == {hash_of(key_of(0)), hash_of(key_of(1)), hash_of(key_of(2))}
    assert not view.is_complete, "nobody named the blocks of the third"
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
