"""The contest of orders, request by request."""

import pytest
from hypothesis import given, strategies as st

from octavo.chunks import PromisedPoint, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.policies import ARCPolicy, LRUPolicy, ResumePointPolicy, StoredChunk
from octavo.policies.rivals import Contest, Order, Rival, chunks_per_unit
from octavo.testing import policy_suite


def prompt(name, length):
    """A sequence of its own, in units of one slot."""
    keys = [
        make_offload_key(BlockHash(name.to_bytes(4, "big") + n.to_bytes(4, "big")), GroupIdx(0)) for n in range(length)
    ]
    return [StoredChunk(key, 1, n, keys[n - 1] if n else None) for n, key in enumerate(keys)]


def contest_of(num_slots, is_kept=lambda _: False):
    learned = ResumePointPolicy((policy_suite.FULL,), num_slots, is_rival=True)
    return Contest(learned, num_slots, policy_suite.TOKENS_PER_CHUNK, is_kept=is_kept)


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


class Tier:
    """A real tier that follows one order, and a contest that is told what it is told."""

    def __init__(self, order, num_slots):
        self.order, self.num_slots = order, num_slots
        self.policy = {Order.BY_USE: LRUPolicy, Order.ADAPTIVE: ARCPolicy}[order]((), num_slots)
        self.there = set()
        self.contest = contest_of(num_slots, self.there.__contains__)

    def begin(self, units):
        """A request for these units. Returns what it reads: those that it resumes, until it ends."""
        keys = [unit.key for unit in units]
        num_there = next((index for index, key in enumerate(keys) if key not in self.there), len(keys))
        self.policy.touch(keys[:num_there])
        self.contest.resume(keys[:num_there])
        return self._read(keys[:num_there])

    def make_room(self, units):
        """Before a part of a prompt is stored. Returns what is not there; nothing if it does not fit."""
        new = [unit for unit in units if unit.key not in self.there]
        missing = len(self.there) + len(new) - self.num_slots
        if missing > 0:
            victims = self.policy.evict(missing)
            if victims is None:
                return []
            self.contest.shrink_to(len(self.there) - missing)
            self.contest.gave_up(victims)
            self.there.difference_update(victims)
        return new

    def store(self, new):
        """Returns the chunks, which the request reads until it ends."""
        self.policy.insert(new)
        self.contest.store(new)
        self.there.update(unit.key for unit in new)
        return self._read([unit.key for unit in new])

    def _read(self, keys):
        self.policy.pin(keys)
        self.contest.pin(keys)
        return keys

    def end(self, read):
        self.policy.unpin(read)
        self.contest.unpin(read)

    def check(self):
        self.contest.check_invariants()
        rival = self.contest.rivals[self.order]
        assert all(key in rival for key in self.there)
        assert not rival.left


def branching(stem, tail, length):
    """A prompt whose first three units others share."""
    keys = [unit.key for unit in (*prompt(stem, 3), *prompt(100 * stem + tail, length))]
    return [StoredChunk(key, 1, n, keys[n - 1] if n else None) for n, key in enumerate(keys)]


@pytest.mark.parametrize("order", [Order.BY_USE, Order.ADAPTIVE])
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
        min_size=5,
        max_size=40,
    )
)
def test_the_rival_of_the_order_that_a_tier_follows_holds_what_the_tier_holds(order, requests):
    """Until something is promised. Two requests at a time, each in parts."""
    tier = Tier(order, 12)
    before = []
    for stem, tail, length, part in requests:
        units = branching(stem, tail, length)
        read = list(tier.begin(units))
        for start in range(0, len(units), part):
            new = tier.make_room(units[start : start + part])
            if start:
                tier.end(before)
                before = []
            read += tier.store(new)
        tier.end(before)
        before = read
        tier.check()


def test_a_prompt_that_came_in_parts_is_given_up_from_its_end():
    contest = contest_of(12)
    contest.store(prompt(1, 4))
    for start in (0, 2, 4):
        contest.store(prompt(0, 6)[start : start + 2])
    contest.serve(prompt(0, 6), 0)
    contest.shrink_to(4)
    for rival in (contest.rivals[Order.BY_USE], contest.rivals[Order.ADAPTIVE]):
        assert [unit.key in rival for unit in prompt(0, 6)] == [True, True, True, True, False, False]


def test_what_another_order_has_kept_counts_for_it_though_the_tier_stores_it_anew():
    contest = contest_of(12)
    contest.store(prompt(0, 4))
    contest.serve(prompt(0, 4), 0)
    served = served_by(contest.rivals[Order.BY_USE])
    contest.store(prompt(0, 6))
    contest.serve(prompt(0, 6), 0)
    contest.store(prompt(0, 6)[2:])
    contest.serve(prompt(0, 6), 0)
    assert served == [4, 6]


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
