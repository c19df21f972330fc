"""The contest of orders, request by request."""

import pytest

from octavo.chunks import PromisedPoint, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.policies import LRUPolicy, ResumePointPolicy, StoredChunk
from octavo.policies.rivals import Contest, Order, Rival, chunks_per_unit
from octavo.testing import policy_suite


def prompt(name, length):
    """A sequence of its own, in units of one slot."""
    keys = [
        make_offload_key(BlockHash(name.to_bytes(4, "big") + n.to_bytes(4, "big")), GroupIdx(0)) for n in range(length)
    ]
    return [StoredChunk(key, 1, n, keys[n - 1] if n else None) for n, key in enumerate(keys)]


def contest_of(num_slots):
    learned = ResumePointPolicy((policy_suite.FULL,), num_slots, is_rival=True)
    return Contest(learned, num_slots, policy_suite.TOKENS_PER_CHUNK)


def ask(contest, units):
    contest.resume([unit.key for unit in units])
    contest.serve(units, 0)


def test_among_scans_what_came_back_is_kept():
    """Two prompts that return every fourth time, and a tier that three others fill."""
    contest = contest_of(16)
    for number in range(60):
        for hot in (0, 1):
            ask(contest, prompt(hot, 4))
        for scan in range(3):
            ask(contest, prompt(100 + 3 * number + scan, 4))
    assert contest.leader is not Order.BY_USE


def test_what_a_request_promises_twice_is_one_use():
    """Nothing is resumed by a request that goes on: by the next one that asks for the same, all is."""
    rival = Rival(LRUPolicy((), 100), 100, unit_tokens=8)
    units = prompt(0, 6)
    assert rival.serve(units[:4], 0) == 0
    assert rival.serve(units, 4) == 0
    assert rival.serve(units, 0) == 6


def served_by(rival):
    """What it resumes of each request from now on."""
    served = []
    serve = rival.serve
    rival.serve = lambda *args: served.append(serve(*args)) or served[-1]
    return served


def test_another_request_that_goes_on_from_there_has_used_it():
    """Whether or not the real tier had it, or was quick enough."""
    contest = contest_of(100)
    contest.serve(prompt(0, 6), 0)
    served = served_by(contest.rivals[Order.BY_USE])
    contest.serve(prompt(0, 8), 6)
    contest.serve(prompt(0, 10), 0)
    assert served == [0, 8]


def test_what_was_read_goes_later_as_in_a_tier_that_has_no_rivals():
    """A load ahead of a request's turn may be called in; the request comes back for the chunks."""
    policy = ResumePointPolicy((policy_suite.FULL,), 8)
    prompts = [[policy_suite.chunk_of([name] * end, GroupIdx(0)) for end in range(1, 5)] for name in (0, 1)]
    for chunks in prompts:
        policy.insert(chunks)
        policy.promise(PromisedPoint(4 * policy_suite.TOKENS_PER_CHUNK, BlockHash(chunks[-1].key[:-4])))
    keys = [chunk.key for chunk in prompts[0]]
    policy.pin(keys)
    policy.unpin(keys)
    assert policy.evict(1) == [prompts[1][-1].key]


@pytest.mark.parametrize(("promised_before", "goes"), [(0, 1), (4, 0)])
def test_the_writer_says_what_the_same_request_has_promised(promised_before, goes):
    """A prompt that is promised again outlives a later one, unless the same request has promised it."""
    policy = ResumePointPolicy((policy_suite.FULL,), 8)

    def promise(name, promised_chunks):
        tokens = policy_suite.TOKENS_PER_CHUNK
        path_hash = policy_suite.block_hash_of([name] * 4)
        policy.promise(PromisedPoint(4 * tokens, path_hash, promised_chunks * tokens))

    for name in (0, 1):
        policy.insert([policy_suite.chunk_of([name] * end, GroupIdx(0)) for end in range(1, 5)])
        promise(name, 0)
    promise(0, promised_before)
    assert policy.evict(1) == [policy_suite.chunk_of([goes] * 4, GroupIdx(0)).key]


def test_the_lead_changes_by_evidence_and_not_by_one_prompt():
    """ARC leads while all resume the same. Then only one order resumes anything."""
    contest = contest_of(64)
    for _ in range(3):
        ask(contest, prompt(0, 8))
    assert contest.leader is Order.ADAPTIVE
    for rival in contest.rivals.values():
        if rival is not contest.rivals[Order.BY_USE]:
            rival.serve = lambda *_: 0
    ask(contest, prompt(0, 8))
    assert contest.leader is Order.ADAPTIVE
    for _ in range(6):
        ask(contest, prompt(0, 8))
    assert contest.leader is Order.BY_USE


def test_a_rival_stores_as_much_as_fits():
    rival = Rival(LRUPolicy((), 70), 70, unit_tokens=8)
    assert rival.serve(prompt(0, 100), 0) == 0
    assert rival.serve(prompt(0, 100), 0) == 64


def test_units_are_chunks_in_a_small_tier_and_some_hundred_tokens_in_a_large_one():
    assert chunks_per_unit(500, 16) == 1
    assert chunks_per_unit(5_000, 16) == 9
    assert chunks_per_unit(1_000_000, 16) == 32
    assert chunks_per_unit(1_000_000, 512) == 1
