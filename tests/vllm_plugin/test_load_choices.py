"""What a request of vLLM's loads: one resume point over all groups, what it takes, and what computing takes."""

import pytest

from octavo.chunks import GroupOffloadConfig, WantedChunk, make_offload_key
from octavo.host import HostArena
from octavo.ids import BlockHash
from octavo.offload import LoadRule, OffloadingManager, Outlook
from octavo.policies import LRUPolicy
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec, SlidingWindowSpec
from octavo.vllm_plugin.load_choices import LoadChoices, WaitingRequest
from rigs.naive_tier import NaiveTier

BLOCK, PAGE, BLOCKS = 16, 1024, 10
FULL = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1)
WINDOW = SlidingWindowSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, sliding_window=2 * BLOCK)
STATE = MambaSpec(block_size=BLOCK, shapes=((1,),), dtypes=(CacheDType.FLOAT32,))
HASHES = [BlockHash(f"{i:032d}".encode()) for i in range(BLOCKS)]
PER_TOKEN = 0.001


class World:
    """Memory above one tier, and what a request of ten blocks and five tokens finds there."""

    def __init__(self, *specs, rule=LoadRule.MEASURED, slots=64, blocks_per_chunk=1):
        self.groups = [
            GroupOffloadConfig(spec=spec, blocks_per_chunk=blocks_per_chunk, page_size_bytes=PAGE) for spec in specs
        ]
        self.manager = OffloadingManager(
            HostArena(slots, PAGE), self.groups, LRUPolicy(self.groups, slots), [NaiveTier(1 << 20)]
        )
        self.choices = LoadChoices(self.manager, self.groups, rule, tokens_per_hash=BLOCK)
        self.choices.chooser.prefill.note(1000, 1000 * PER_TOKEN)

    def key(self, group_idx, block):
        return make_offload_key(HASHES[block], group_idx)

    def store(self, group_idx, blocks):
        size = self.groups[group_idx].blocks_per_chunk
        chunks = [WantedChunk(self.key(group_idx, block), block // size, None) for block in blocks]
        self.manager.complete_store(self.manager.prepare_store(chunks).job_id)
        while self.manager.has_pending_work():
            self.manager.poll(1.0)

    def leave_on_tier(self, group_idx, blocks):
        """Others have taken their place in memory."""
        self.manager._resident.drop([self.key(group_idx, block) for block in blocks])

    def tier_takes(self, seconds):
        """For 4 MiB or more; for less in proportion."""
        self.manager.media.read_speeds[0][1].note(8 << 20, seconds * (8 << 20) / PAGE)

    def request(self, *, device_tokens=0, tokens_ahead=0, may_read=True, num_tokens=BLOCKS * BLOCK + 5):
        return WaitingRequest(
            hashes=HASHES,
            num_tokens=num_tokens,
            device_tokens=device_tokens,
            tokens_ahead=tokens_ahead,
            may_read=may_read,
        )

    def find(self, **request):
        return self.choices.find(self.request(**request))

    def choose(self, *, loads_end_in=(), **request):
        return self.choices.choose(self.request(**request), self.find(**request), loads_end_in)


def test_all_groups_end_at_one_resume_point():
    world = World(FULL, WINDOW, STATE)
    world.store(0, range(8))
    world.store(1, range(3, 7))
    world.store(2, (2, 5, 9))
    found = world.find()
    assert found.num_tokens == 6 * BLOCK, "there are states at 3, 6 and 10; 10 lacks a prefix"
    assert found.known_tokens == 8 * BLOCK
    assert not found.is_all
    assert [key for key, _, _ in found.chunks] == [
        *(world.key(0, block) for block in range(6)),
        *(world.key(1, block) for block in (4, 5)),
        world.key(2, 5),
    ]


def test_only_what_the_device_lacks_is_loaded():
    world = World(FULL, WINDOW)
    world.store(0, range(BLOCKS))
    world.store(1, range(BLOCKS))
    found = world.find(device_tokens=9 * BLOCK)
    assert [key for key, _, _ in found.chunks] == [world.key(0, 9), world.key(1, 9)]
    assert found.is_all
    assert world.find(device_tokens=10 * BLOCK).chunks == []


def test_chunks_of_several_blocks_are_found_by_their_last():
    world = World(FULL, blocks_per_chunk=4, slots=64)
    world.store(0, (3, 7))
    found = world.find()
    assert found.num_tokens == 8 * BLOCK
    assert [num_bytes for _, num_bytes, _ in found.chunks] == [4 * PAGE] * 2


@pytest.mark.parametrize(("spec", "num_tokens"), [(FULL, 10 * BLOCK), (STATE, 9 * BLOCK)])
def test_a_prompt_that_ends_with_a_chunk(spec, num_tokens):
    """vLLM computes the last token once more; of a state it takes the one before."""
    world = World(spec)
    world.store(0, range(BLOCKS))
    assert world.find(num_tokens=10 * BLOCK).num_tokens == num_tokens


def test_what_is_slower_than_computing_is_not_loaded():
    world = World(FULL)
    world.store(0, range(BLOCKS))
    assert world.choose().outlook is Outlook.LOAD, "memory is not measured yet"
    world.choices.chooser.from_memory.note(8 << 20, 8192 * BLOCK * PER_TOKEN * 2)  # twice as long as computing
    assert [world.choose().outlook for _ in range(2)] == [Outlook.LOAD] * 2, "it is tried again"
    assert world.choose().outlook is Outlook.COMPUTE
    assert world.choose(tokens_ahead=1000).outlook is Outlook.LOAD, "who waits for others may wait for bytes"
    assert (world.choices.chooser.num_too_slow, world.choices.chooser.num_cut_short) == (1, 0)


def test_of_a_slow_tier_memorys_part_is_loaded():
    world = World(FULL, WINDOW)
    for group_idx in range(2):
        world.store(group_idx, range(BLOCKS))
        world.leave_on_tier(group_idx, range(6, BLOCKS))
    assert world.choose().outlook is Outlook.LOAD, "the tier is not measured yet"
    world.tier_takes(BLOCK * PER_TOKEN)  # six chunks where four blocks are to be computed
    assert world.choose().outlook is Outlook.LOAD_PART
    assert world.choose(device_tokens=6 * BLOCK).outlook is Outlook.COMPUTE
    assert (world.choices.chooser.num_too_slow, world.choices.chooser.num_cut_short) == (1, 1)


def test_what_others_have_queued_counts():
    world = World(FULL)
    world.store(0, range(BLOCKS))
    world.leave_on_tier(0, range(BLOCKS))
    world.tier_takes(BLOCK * PER_TOKEN / 2)
    assert world.choose().outlook is Outlook.LOAD
    world.choices.chooser.from_memory.note(8 << 20, 8192 * BLOCK * PER_TOKEN / 10)
    world.choices.bytes_in_flight = 100 * PAGE
    assert world.choose().outlook is Outlook.COMPUTE


def test_what_computing_costs_those_who_wait_for_loads_counts():
    """The tier takes one and a half times as long as computing; whoever has loaded before waits for the rest of it."""
    world = World(FULL)
    world.store(0, range(BLOCKS))
    world.leave_on_tier(0, range(BLOCKS))
    world.tier_takes(BLOCK * PER_TOKEN * 1.5)
    alone_s = BLOCKS * BLOCK * PER_TOKEN
    assert world.choose().outlook is Outlook.COMPUTE
    assert world.choose(loads_end_in=[alone_s * 2]).outlook is Outlook.COMPUTE
    choice = world.choose(loads_end_in=[0.0])
    assert choice.outlook is Outlook.LOAD
    assert choice.loading_s == pytest.approx(1.5 * alone_s)
    assert world.choose().loading_s is None


def test_what_may_not_be_read_is_not_counted():
    world = World(FULL)
    world.store(0, range(BLOCKS))
    world.leave_on_tier(0, range(6, BLOCKS))
    assert world.find(may_read=False).num_tokens == 6 * BLOCK
    assert world.find().num_tokens == 10 * BLOCK


def test_the_first_refusal_and_then_one_in_sixteen_measure_the_tier_again():
    world = World(FULL)
    world.store(0, range(BLOCKS))
    world.leave_on_tier(0, range(2, BLOCKS))
    world.tier_takes(100.0)
    choices = [world.choose() for _ in range(32)]
    assert {choice.outlook for choice in choices} == {Outlook.LOAD_PART}
    probes = [index for index, choice in enumerate(choices, 1) if choice.to_probe]
    assert probes == [1, 17]
    assert choices[0].to_probe == [world.key(0, block) for block in range(2, BLOCKS)]


def test_a_long_prompt_is_asked_for_in_few_calls(monkeypatch):
    world = World(FULL, WINDOW)
    world.store(0, range(BLOCKS))
    world.store(1, range(BLOCKS))
    asked = []
    lookup = world.manager.lookup
    monkeypatch.setattr(world.manager, "lookup", lambda keys: asked.append(len(keys)) or lookup(keys))
    world.choose()
    assert len(asked) <= 2
