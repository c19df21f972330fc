"""The policy over many requests: loops that do not fit, of which LRU resumes nothing, in a tier so large that what went
is known by few of its chunks; and what is removed from outside."""

import gc
import sys
from hashlib import sha256

import pytest

from octavo.chunks import GroupOffloadConfig, PromisedPoint, StoredChunk, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.policies import ResumePointPolicy
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec

SPEC = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8)
GROUPS = (GroupOffloadConfig(spec=SPEC, blocks_per_chunk=1, page_size_bytes=SPEC.page_size_bytes),)
STATE = MambaSpec(block_size=16, shapes=((64,),), dtypes=(CacheDType.FLOAT32,))
HYBRID = (*GROUPS, GroupOffloadConfig(spec=STATE, blocks_per_chunk=1, page_size_bytes=STATE.page_size_bytes))
NUM_SLOTS = 1 << 14
"""A unit has 512 tokens here, which are 32 chunks."""


class Tier:
    """The policy, and which chunks it keeps."""

    def __init__(self, num_slots):
        self.num_slots = num_slots
        self.policy = ResumePointPolicy(GROUPS, num_slots)
        self.kept = set()

    def serve(self, keys):
        """A request of these chunks; how many of them it resumes."""
        num_there = next((index for index, key in enumerate(keys) if key not in self.kept), len(keys))
        self.policy.touch(keys[:num_there])
        new = [
            StoredChunk(key, 1, index, keys[index - 1] if index else None)
            for index, key in enumerate(keys)
            if key not in self.kept
        ]
        missing = len(self.kept) + len(new) - self.num_slots
        if missing > 0:
            self.policy.pin(keys[:num_there])
            self.kept -= set(self.policy.evict(missing))
            self.policy.unpin(keys[:num_there])
        self.policy.insert(new)
        self.kept |= set(keys)
        self.policy.promise(PromisedPoint(num_tokens=len(keys) * 16, block_hash=BlockHash(keys[-1][:-4])))
        return num_there


def chunks_of(prompt, num_chunks):
    return [make_offload_key(BlockHash(b"%8d%8d" % (prompt, index)), GroupIdx(0)) for index in range(num_chunks)]


@pytest.mark.parametrize("num_chunks", [24, 250])
def test_a_loop_that_does_not_fit_is_resumed_in_part(num_chunks):
    tier, num_prompts = Tier(NUM_SLOTS), NUM_SLOTS * 5 // 4 // num_chunks
    prompts = [chunks_of(number, num_chunks) for number in range(num_prompts)]
    rounds = [sum(map(tier.serve, prompts)) for _ in range(12)]
    tier.policy.check_invariants()
    assert sum(rounds[-4:]) > 2 * num_prompts * num_chunks


def test_chunks_that_are_removed_from_outside_are_forgotten():
    """Damaged ones, or those of a tenant beyond its quota: each leaves a hole."""
    tier = Tier(100)
    for number in range(300):
        tier.serve(chunks_of(number, 10))
        former = chunks_of(number - 5, 10)[4]
        if former in tier.kept:
            tier.policy.remove([former])
            tier.kept.discard(former)
    tier.policy.check_invariants()


def num_lines(call):
    """The lines that run in a call."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("in_order", [True, False])
def test_readers_of_a_long_prompt_end_in_time_proportional_to_it(in_order):
    """Where each chunk was read by itself, and only the prompt's end is a point."""

    def cost(num_chunks):
        policy = ResumePointPolicy(HYBRID, num_chunks + 1)
        keys = chunks_of(0, num_chunks)
        parents = [None, *keys[:-1]]
        chunks = [StoredChunk(key, 1, index, parents[index]) for index, key in enumerate(keys)]
        state = make_offload_key(BlockHash(keys[-1][:-4]), GroupIdx(1))
        policy.insert([*chunks, StoredChunk(state, 1, num_chunks - 1, None)])
        policy.promise(PromisedPoint(num_tokens=num_chunks * 16, block_hash=BlockHash(keys[-1][:-4])))
        readers = [*keys[::2], *keys[1::2]]
        for key in readers:
            policy.pin([key])
        lines = num_lines(lambda: policy.unpin(keys if in_order else readers))
        policy.check_invariants()
        return lines

    assert cost(400) < 2.5 * cost(200)


def dicts_within(thing):
    """All dictionaries of a policy, its tables, and theirs."""
    seen, waiting = {}, [thing]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and (isinstance(one, dict | list) or type(one).__module__.startswith("octavo.")):
            seen[id(one)] = one
            waiting += gc.get_referents(one)
    return [one for one in seen.values() if isinstance(one, dict)]


@pytest.mark.parametrize("num_chunks", [4, 32])
def test_no_dictionary_grows_with_the_tier(num_chunks):
    """A large one takes milliseconds to grow, in whichever call it happens, and those of rivals grow at once."""
    tier = Tier(NUM_SLOTS)
    for number in range(3 * NUM_SLOTS // num_chunks):
        hashes = [BlockHash(sha256(key).digest()) for key in chunks_of(number, num_chunks)]
        tier.serve([make_offload_key(hash_, GroupIdx(0)) for hash_ in hashes])
    tier.policy.check_invariants()
    assert max(map(len, dicts_within(tier.policy))) < 1024
