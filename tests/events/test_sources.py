from array import array
from dataclasses import replace

import pytest

from octavo.blocks import RequestBlocks
from octavo.events.changes import CacheChanges, StepEvents, StoredRun
from octavo.events.messages import AllBlocksCleared, BlockRemoved
from octavo.events.sources import EventSource, external_hashes, untagged
from octavo.hashing import BlockHasher, MultiModalItem, RequestIdentity
from octavo.specs import FullAttentionSpec, PromisePlan, SlidingWindowSpec

SPECS = [
    FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8),
    SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=8, sliding_window=32),
]
TOKENS = list(range(100, 180))
IDENTITY = RequestIdentity(
    lora_name="tuned",
    lora_path="/loras/tuned",
    cache_salt="salt",
    multimodal=(MultiModalItem(identifier="cat", offset=20, length=4),),
)


def request(identity=None):
    identity = identity or RequestIdentity()
    made = RequestBlocks(
        "r",
        array("i", TOKENS),
        identity,
        num_encoder_tokens=0,
        promises=PromisePlan(granularity=16, prompt_boundary=64),
    )
    made.hashed = BlockHasher(hash_block_size=16).hash_tokens(TOKENS, identity)
    made.group_hashes = [made.hashed, made.hashed]
    return made


def run(group, blocks, identity=None):
    sequence = request(identity)
    return StoredRun(
        group_idx=group,
        sequence=sequence,
        blocks=blocks,
        hashes=[sequence.hashed[b] for b in blocks],
        rows=list(blocks),
        parent_hash=sequence.hashed[blocks[0] - 1] if blocks[0] else None,
    )


def messages(*runs, removed=None, cleared=False, **options):
    changes = CacheChanges(was_cleared=cleared, removed=removed or {}, stored=runs)
    return EventSource(SPECS, medium="CPU", hash_block_size=16, **options).messages(changes)


def test_a_stored_run_names_its_group_kind_and_medium():
    (event,) = messages(run(0, range(1, 3)))
    hashes = external_hashes(request().hashed)
    assert event.block_hashes == hashes[1:3]
    assert event.parent_block_hash == hashes[0]
    assert event.token_ids == TOKENS[16:48]
    assert (event.group_idx, event.kv_cache_spec_kind, event.medium) == (0, "full_attention", "CPU")
    assert event.extra_keys is None


def test_a_window_stores_some_blocks_of_a_span():
    (event,) = messages(run(1, [2, 4]))
    assert len(event.block_hashes) == 2
    assert event.token_ids == TOKENS[32:80]
    assert event.kv_cache_spec_sliding_window == 32


def test_extra_keys_stand_beside_their_blocks_without_tags():
    (event,) = messages(run(0, range(3), IDENTITY))
    assert event.lora_name == "tuned"
    assert event.extra_keys == [("tuned", "salt"), ("tuned", ("cat", 4)), ("tuned",)]
    assert untagged([()]) is None


def test_tokens_are_optional():
    (event,) = messages(run(0, range(2)), with_tokens=False)
    assert event.token_ids == []


def test_a_step_says_what_was_cleared_then_removed_once_a_group_then_stored():
    gone = {0: request().hashed[:2], 1: request().hashed[2:3]}
    events = messages(run(0, range(1)), removed=gone, cleared=True)
    assert [type(event) for event in events[:3]] == [AllBlocksCleared, BlockRemoved, BlockRemoved]
    assert [event.group_idx for event in events[1:]] == [0, 1, 0]


@pytest.mark.parametrize("digest", [bytes(range(16)), bytes(range(32))])
def test_an_external_hash_is_the_low_64_bits(digest):
    assert external_hashes([digest]) == [int.from_bytes(digest, "big") % 2**64]
    assert external_hashes([]) == []


class TestNetEffect:
    """A step's changes, whatever order they happened in."""

    def take(self, *log):
        step = StepEvents(2)
        for change in log:
            match change:
                case StoredRun():
                    step.stored(change)
                case None:
                    step.cleared()
                case hashes:
                    step.removed(0, hashes)
        return step.take()

    def test_what_was_stored_and_removed_is_not_mentioned(self):
        stored = run(0, range(2))
        changes = self.take(stored, stored.hashes[:1])
        assert changes.removed == {}
        assert [list(kept.hashes) for kept in changes.stored] == [stored.hashes[1:]]

    def test_what_was_removed_and_stored_again_is_not_mentioned(self):
        stored = run(0, range(2))
        changes = self.take(stored.hashes[:1], stored)
        assert changes.removed == {}
        assert [list(kept.hashes) for kept in changes.stored] == [stored.hashes[1:]]

    def test_what_was_removed_stored_and_removed_is_removed(self):
        stored = run(0, range(2))
        changes = self.take(stored.hashes, stored, stored.hashes)
        assert changes.removed == {0: stored.hashes}
        assert changes.stored == ()

    def test_what_happened_before_everything_was_cleared_is_not_mentioned(self):
        stored, later = run(0, range(2)), run(0, range(2, 3))
        changes = self.take(stored, None, later)
        assert (changes.was_cleared, changes.removed, changes.stored) == (True, {}, (later,))

    def test_groups_are_apart(self):
        stored = run(1, range(2))
        changes = self.take(stored, stored.hashes)
        assert changes.removed == {0: stored.hashes}
        assert changes.stored == (stored,)

    def test_what_was_stored_twice_is_told_once_with_its_last_row(self):
        first = run(0, range(2))
        last = replace(first, rows=[7, 8])
        assert self.take(first, first.hashes, last).stored == (replace(last, blocks=[0, 1]),)

    def test_a_second_take_finds_nothing(self):
        step = StepEvents(2)
        step.stored(run(0, range(1)))
        step.take()
        assert step.take() == CacheChanges(was_cleared=False, removed={}, stored=())


def test_hashes_of_any_length_become_numbers():
    """Those that a medium tells may be of no algorithm."""
    odd = [b"", b"\1", bytes(5) + b"\2", bytes(40) + b"\3", bytes(20)]
    assert external_hashes(odd) == [0, 1, 2, 3, 0]
    assert external_hashes([bytes(7) + b"\1" + bytes(8), bytes(15) + b"\5"]) == [0, 5]
    assert external_hashes([bytes(19) + b"\7"] * 3) == [7] * 3
