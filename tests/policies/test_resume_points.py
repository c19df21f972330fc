from functools import partial
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from octavo.chunks import PromisedPoint, get_offload_group_idx
from octavo.policies import ResumePointPolicy
from octavo.policies.hazards import Role
from octavo.specs import GroupAvailability, ResumePoint, SlidingWindowSpec, longest_resume
from octavo.testing import EvictionPolicySuite, policy_suite

HYBRID = (policy_suite.FULL, policy_suite.WINDOW, policy_suite.STATE)
WINDOW_CHUNKS = 2
"""That hold the 12 tokens before a boundary."""


class TestResumePointPolicyConforms(EvictionPolicySuite):
    policy_class = ResumePointPolicy


# ---- what is kept can be resumed --------------------------------------------------------------------------------


class Held:
    """What a tier has of one group of one sequence, in blocks."""

    def __init__(self, path, group_idx, group, present):
        self.path, self.group_idx, self.group, self.present = path, group_idx, group, present

    def is_there(self, block):
        stop = block // self.group.blocks_per_chunk + 1
        return policy_suite.chunk_of(self.path[:stop], self.group_idx).key in self.present

    def first_missing(self, start, stop):
        return next((k for k in range(start, stop) if not self.is_there(k)), stop)

    def available_until(self, stop):
        return next((end for end in range(stop, 0, -1) if self.is_there(end - 1)), 0)


def can_resume(groups, path, present):
    """By the only rule that counts."""
    num_tokens = len(path) * policy_suite.TOKENS_PER_CHUNK
    groups = [
        GroupAvailability(spec=group.spec, blocks=Held(path, index, group, present))
        for index, group in enumerate(groups)
        if group.spec.indexes_decoder_tokens
    ]
    return longest_resume(groups, ResumePoint(num_tokens + 1)).num_tokens == num_tokens


def path_of(block_hash):
    return [symbol for symbol in block_hash[1:] if symbol != 0xFF]


class KeptPointsMachine(policy_suite.PolicyMachine):
    """Any calls but `remove`, which breaks points behind the policy's back."""

    remove = None

    @invariant()
    def every_kept_point_can_be_resumed(self):
        if hasattr(self, "policy"):
            for point in self.policy.kept_points():
                path = path_of(point.block_hash)
                assert point.num_tokens == len(path) * policy_suite.TOKENS_PER_CHUNK
                assert can_resume(self.groups, path, self.slots)


@pytest.mark.parametrize(("most_passed", "most_looked_at"), [(256, 2048), (1, 2)])
@pytest.mark.parametrize(
    "groups", policy_suite.GROUPS, ids=lambda groups: "+".join(group.spec.kind for group in groups)
)
def test_every_kept_point_can_be_resumed(groups, most_passed, most_looked_at, monkeypatch):
    monkeypatch.setattr("octavo.policies.point_table._MOST_PASSED", most_passed)
    monkeypatch.setattr("octavo.policies.point_table._MOST_LOOKED_AT", most_looked_at)
    run_state_machine_as_test(
        partial(KeptPointsMachine, ResumePointPolicy, groups),
        settings=settings(max_examples=15, stateful_step_count=30, deadline=None),
    )


# ---- single rules -----------------------------------------------------------------------------------------------


class Writer:
    """A policy's caller, who stores what a promise needs, and knows what is there."""

    def __init__(self, groups=HYBRID, num_slots=1000, *, is_rival=False):
        self.policy = ResumePointPolicy(groups, num_slots, is_rival=is_rival)
        self.groups = groups
        self.present = set()

    def insert(self, *chunks):
        new = [chunk for chunk in chunks if chunk.key not in self.present]
        self.policy.insert(new)
        self.present.update(chunk.key for chunk in new)

    def store(self, path, *, promises=True):
        """All of a sequence's attention, and the rest where it is promised."""
        lasts = {0: len(path), 1: WINDOW_CHUNKS, 2: 1, 3: 0}
        self.insert(
            *(
                policy_suite.chunk_of(path[:stop], group_idx)
                for group_idx in range(len(self.groups))
                for stop in range(max(1, len(path) + 1 - lasts[group_idx]), len(path) + 1)
            )
        )
        if promises:
            self.promise(path)

    def promise(self, path, *, promised_chunks=0):
        num_tokens, promised = (count * policy_suite.TOKENS_PER_CHUNK for count in (len(path), promised_chunks))
        self.policy.promise(PromisedPoint(num_tokens, policy_suite.block_hash_of(path), promised))

    def use(self, path):
        self.policy.touch([policy_suite.chunk_of(path, 0).key, policy_suite.chunk_of(path, 2).key])

    def evict(self, num_slots=1):
        victims = self.policy.evict(num_slots)
        self.policy.check_invariants()
        self.present.difference_update(victims or ())
        return victims

    @property
    def kept(self):
        return [path_of(point.block_hash) for point in self.policy.kept_points()]

    def resumes(self, path):
        return can_resume(self.groups, path, self.present)


def tokens_saved(writer, path):
    """What a point's worth counts."""
    policy = writer.policy
    policy._reckon_changed()
    policy.check_invariants()
    point = policy._full_point(policy_suite.block_hash_of(path))
    return policy._points.tokens_per_slot[point] * policy._points.freed[point]


def test_what_no_point_needs_goes_first():
    writer = Writer()
    writer.store([0, 1, 2, 3])
    stray = [policy_suite.chunk_of([0], 1), policy_suite.chunk_of([0, 1], 2)]
    writer.insert(*stray)
    assert set(writer.evict(2)) == {chunk.key for chunk in stray}
    assert writer.resumes([0, 1, 2, 3])


def test_a_point_goes_whole():
    """What only it needed goes before anything of another point."""
    writer = Writer()
    writer.store([0, 1, 2])
    own = set(writer.present)
    writer.store([5, 6, 7])
    first = writer.evict(1)
    assert set(first) <= own
    assert writer.kept == [[5, 6, 7]]
    assert set(first) | set(writer.evict(len(own) - 1)) == own
    assert writer.resumes([5, 6, 7])


def test_it_tells_which_points_it_keeps():
    writer = Writer()
    writer.store([0, 1, 2])
    name = policy_suite.block_hash_of([0, 1, 2])
    assert writer.policy.keeps(name)
    assert not writer.policy.keeps(policy_suite.block_hash_of([0, 1]))
    writer.evict(1)
    assert not writer.policy.keeps(name)


def test_what_another_point_needs_too_stays():
    writer = Writer()
    writer.store([0, 1])
    writer.store([0, 1, 2, 3, 4])
    writer.use([0, 1, 2, 3, 4])
    writer.evict(3)  # the window and the state of the former
    assert writer.kept == [[0, 1, 2, 3, 4]]
    assert writer.resumes([0, 1, 2, 3, 4])


def test_a_point_that_a_later_one_follows_goes_first():
    """Who asks for the later one resumes there; this one is worth what its own uses are."""
    writer = Writer()
    writer.store([0] * 6)
    writer.store([0] * 3)
    assert {key[-1] for key in writer.evict(3)} == {1, 2}, "no attention"
    assert writer.kept == [[0] * 6]


def test_a_point_saves_more_or_less_when_one_below_it_goes_or_comes():
    """Of the points inside a long prompt those that are left are worth all that would be computed without them."""
    writer = Writer()
    for end in (3, 9, 12):
        writer.store([0] * end)
    writer.promise([0] * 9)
    writer.evict(1)
    assert writer.kept == [[0] * 9, [0] * 12], "the first was the least"
    assert tokens_saved(writer, [0] * 9) == 9 * policy_suite.TOKENS_PER_CHUNK
    writer.store([0] * 6)
    assert tokens_saved(writer, [0] * 9) == 3 * policy_suite.TOKENS_PER_CHUNK


WINDOWS = (policy_suite.FULL, policy_suite.WINDOW)


def store_dense(writer, symbol, length):
    """A point at each chunk, so that each window chunk but the last is held by two points. A request uses the end."""
    for end in range(1, length + 1):
        writer.store([symbol] * end)
    writer.policy.touch([policy_suite.chunk_of([symbol] * length, group_idx).key for group_idx in range(2)])


def groups_of(keys):
    return {get_offload_group_idx(key) for key in keys}


def test_points_go_that_free_something_only_together():
    """Else points that lie as dense as windows are long would stay for as long as the last of them is used."""
    writer = Writer(groups=WINDOWS)
    store_dense(writer, 0, 12)
    assert groups_of(writer.evict(6)) == {1}, "no attention"
    assert [0] * 12 in writer.kept
    assert len(writer.kept) < 6


def test_an_eviction_gives_up_a_bounded_number_of_points_that_free_nothing(monkeypatch):
    """The next ones go on from there."""
    monkeypatch.setattr("octavo.policies.point_keeper._MOST_HELD", 9)
    writer = Writer(groups=WINDOWS)
    store_dense(writer, 0, 40)
    for symbol in range(1, 9):
        writer.store([symbol])
    for _ in range(4):
        num_kept = len(writer.kept)
        assert len(writer.evict(2)) == 2
        assert num_kept - len(writer.kept) <= 3 + 2
    for _ in range(8):
        writer.evict(2)
    assert [0] * 40 in writer.kept
    assert len(writer.kept) < 22


def test_something_is_freed_where_all_points_free_nothing_alone(monkeypatch):
    """The last one is being read. So many go as together free something."""
    monkeypatch.setattr("octavo.policies.point_keeper._MOST_HELD", 1)
    writer = Writer(groups=WINDOWS)
    store_dense(writer, 0, 12)
    read = [policy_suite.chunk_of([0] * end, group_idx).key for end in (11, 12) for group_idx in range(2)]
    writer.policy.pin(read)
    assert groups_of(writer.evict(3)) == {1}
    assert [0] * 12 in writer.kept


def test_the_former_turn_stands_again_when_the_later_one_goes():
    writer = Writer(groups=(policy_suite.FULL,))
    writer.store([0, 1, 2])
    writer.store([0, 1, 2, 3])
    assert writer.evict(1) == [policy_suite.chunk_of([0, 1, 2, 3], 0).key]
    assert writer.kept == [[0, 1, 2]]
    assert len(writer.evict(3)) == 3


def test_what_a_use_renews_outlives_what_was_stored_later():
    writer = Writer()
    for symbol in (0, 1, 2):
        writer.store([symbol] * 3)
    writer.use([0] * 3)
    writer.evict(1)
    assert sorted(writer.kept) == [[0] * 3, [2] * 3]


def test_a_use_renews_the_points_below_too():
    """Of two conversations the former turn goes whose later turn was used longer ago."""
    writer = Writer(num_slots=50)
    for symbol in (0, 1):
        writer.store([symbol] * 3)
        writer.store([symbol] * 6)
    writer.use([0] * 6)
    while [1] * 3 in writer.kept:
        writer.evict()
    assert [0] * 3 in writer.kept


def test_points_inside_a_prompt_are_of_another_class_once_a_request_went_through():
    writer = Writer()
    writer.store([0] * 3)
    writer.store([0] * 6, promises=False)
    writer.promise([0] * 6, promised_chunks=3)
    roles, inside = writer.policy._points.roles, writer.policy._full_point(policy_suite.block_hash_of([0] * 3))
    assert roles[inside] == Role.BETWEEN
    writer.use([0] * 6)
    assert roles[inside] == Role.PASSED


def test_the_last_to_leave_a_fork_counts_what_was_shared():
    """Its worth is reckoned anew (`check_invariants` compares), and so it goes down to the first chunk."""
    writer = Writer(groups=(policy_suite.FULL,))
    shared = [0, 1, 2]
    for tail in (3, 4):
        writer.store([*shared, tail])
    assert writer.evict(1) == [policy_suite.chunk_of([*shared, 3], 0).key]
    writer.store([9])
    writer.use([9])
    assert len(writer.evict(4)) == 4
    assert writer.kept == [[9]]


def test_each_side_of_a_fork_is_worth_what_it_keeps_of_the_beginning_too():
    """Given up alone neither frees the long beginning, and both together do. So they are not worth as much per slot as
    if each had only its own end."""
    writer = Writer(num_slots=40)
    beginning = [0] * 20
    for tail in (1, 2):
        writer.store([*beginning, tail])
    writer.store([3] * 28)
    writer.use([3] * 28)
    for symbol in (4, 5):
        writer.store([symbol] * 4)
    while [*beginning, 2] in writer.kept:
        writer.evict()
    assert sorted(writer.kept) == [[3] * 28, [4] * 4, [5] * 4]


def test_a_former_turn_has_its_place_by_its_last_use():
    """Not by when the later turn went: else all conversations were nibbled in turn."""
    writer = Writer(groups=(policy_suite.FULL,), is_rival=True)  # ARC, which leads in the net, counts the turns as uses
    for symbol in (0, 1):
        writer.store([symbol])
        writer.store([symbol, symbol])
    writer.evict(2)
    assert writer.present == {policy_suite.chunk_of(path, 0).key for path in ([1], [1, 1])}


def test_a_long_chain_is_given_up_from_its_end_and_no_farther_than_needed():
    writer = Writer(groups=(policy_suite.FULL,))
    path = [0] * 9
    writer.store(path)
    for length in (9, 8, 7):
        assert writer.evict(1) == [policy_suite.chunk_of(path[:length], 0).key]
    writer.use(path[:6])
    writer.store(path)
    assert writer.kept == [path]


def test_a_prefill_that_goes_on_is_not_its_own_victim():
    writer = Writer()
    writer.store([9, 9, 9, 9])
    writer.store([8] * 9)
    path = [0, 1, 2, 3, 4, 5]
    writer.insert(*(policy_suite.chunk_of(path[:stop], 0) for stop in range(1, 4)))
    writer.evict(3)
    writer.insert(*(policy_suite.chunk_of(path[:stop], 0) for stop in range(4, 7)))
    writer.store(path)
    assert path in writer.kept
    assert writer.resumes(path)


def test_a_prefix_whose_beginning_is_gone_goes_first():
    writer = Writer()
    writer.store([9, 9])
    writer.insert(policy_suite.chunk_of([0, 1, 2], 0), policy_suite.chunk_of([0, 1, 2, 3], 0))
    writer.evict(2)
    assert policy_suite.chunk_of([0, 1, 2], 0).key not in writer.present
    assert writer.resumes([9, 9])


def test_a_promise_inside_a_chunk():
    """Whose last blocks are missing: its key is the hash of the last that is there."""
    writer = Writer(groups=(policy_suite.FULL, policy_suite.WINDOW))
    writer.store([9])
    writer.policy.insert([policy_suite.chunk_of(path, group_idx) for group_idx in (0, 1) for path in ([0], [0, 1])])
    writer.policy.promise(PromisedPoint(policy_suite.TOKENS_PER_CHUNK + 4, policy_suite.block_hash_of([0, 1])))
    assert (
        PromisedPoint(policy_suite.TOKENS_PER_CHUNK + 4, policy_suite.block_hash_of([0, 1]))
        in writer.policy.kept_points()
    )
    writer.policy.check_invariants()


def test_a_promise_without_all_its_chunks_keeps_nothing():
    writer = Writer()
    writer.store([9])
    writer.store([0, 1, 2], promises=False)
    writer.policy.remove([policy_suite.chunk_of([0, 1], 1).key])
    writer.promise([0, 1, 2])
    assert writer.kept == [[9]]


def test_a_hole_heals():
    writer = Writer()
    writer.store([0, 1, 2])
    lost = policy_suite.chunk_of([0, 1], 0)
    writer.policy.remove([lost.key])
    writer.policy.check_invariants()
    writer.present.remove(lost.key)
    assert not writer.resumes([0, 1, 2])
    writer.insert(lost, policy_suite.chunk_of([0], 0))
    writer.policy.check_invariants()
    assert writer.kept == [[0, 1, 2]]
    assert writer.resumes([0, 1, 2])
    assert len(writer.evict(6)) == 6


def test_a_point_whose_last_chunk_is_removed_is_given_up():
    writer = Writer()
    writer.store([0, 1, 2])
    writer.policy.remove([policy_suite.chunk_of([0, 1, 2], 2).key])
    assert writer.kept == []


def test_pinned_chunks_of_a_point_that_goes_are_the_next_to_go():
    writer = Writer()
    writer.store([0, 1, 2])
    state = policy_suite.chunk_of([0, 1, 2], 2).key
    writer.policy.pin([state])
    writer.store([5, 6, 7])
    writer.evict(5)
    assert state in writer.present
    writer.policy.unpin([state])
    assert writer.evict(1) == [state]
    assert writer.kept == [[5, 6, 7]]


@pytest.mark.parametrize(
    ("groups", "weight", "kept"),
    [
        ((policy_suite.FULL,), 1.0, [True, True, False, False]),
        ((policy_suite.FULL,), 4.0, [False, True, False, True]),
        (HYBRID, 1.0, [False, True, False, True]),
        (HYBRID, 4.0, [False, True, False, True]),
    ],
)
def test_points_that_are_being_read_are_passed_over(groups, weight, kept):
    """They would free nothing now. Afterwards they are as old as they were before; but ARC, which leads at first with
    full attention, counts them as the newest."""
    writer = Writer(groups=groups)
    paths = [[symbol, symbol, symbol] for symbol in range(4)]
    for path in paths:
        writer.store(path)
        writer.policy.weigh(policy_suite.block_hash_of(path), weight)
    ends = [path[:stop] for path in paths[:2] for stop in (1, 2, 3)]
    keys = [policy_suite.chunk_of(end, group_idx).key for end in ends for group_idx in range(len(groups))]
    read = [key for key in keys if key in writer.present]
    writer.policy.pin(read)
    writer.evict(len(read) // 2)
    assert [path in writer.kept for path in paths] == [True, True, False, True]
    writer.policy.unpin(read)
    writer.policy.check_invariants()
    writer.evict(len(read) // 2)
    assert [path in writer.kept for path in paths] == kept


@pytest.mark.parametrize("groups", [(policy_suite.FULL,), HYBRID], ids=["full", "hybrid"])
def test_an_eviction_passes_over_a_bounded_number_of_points(groups, monkeypatch):
    monkeypatch.setattr("octavo.policies.point_table._MOST_PASSED", 8)
    writer = Writer(groups=groups)
    paths = [[symbol // 8, 8 + symbol % 8] for symbol in range(64)]
    for path in paths:
        writer.store(path)
    keys = [policy_suite.chunk_of(path, group_idx).key for path in paths[:40] for group_idx in range(len(groups))]
    read = [key for key in keys if key in writer.present]
    writer.policy.pin(read)
    looks, can_go = [], writer.policy._points._frees_at_once
    monkeypatch.setattr(writer.policy._points, "_frees_at_once", lambda point: looks.append(point) or can_go(point))
    searches, find_least = [], writer.policy._points._find_least
    monkeypatch.setattr(writer.policy._points, "_find_least", lambda *part: searches.append(part) or find_least(*part))
    num_kept = len(writer.kept)
    assert writer.policy.evict(1)
    assert len(looks) <= 16, "those that are passed over, and the one that goes"
    assert len(searches) <= 5, "each finds as many more as were passed over"
    assert len(writer.kept) == num_kept - 1
    assert all(path in writer.kept for path in paths[:40]), "what is being read stays"
    writer.policy.unpin(read)
    writer.policy.check_invariants()


def test_points_are_not_sought_again_for_each_one_that_is_read(monkeypatch):
    """All are read, and what hangs on them is wanted: each point goes, and then that. One search finds them all."""
    monkeypatch.setattr("octavo.policies.point_table._SHARE_FOUND", 1)
    writer = Writer()
    paths = [[symbol // 8, symbol % 8, 9, 9, 9] for symbol in range(64)]
    for path in paths:
        writer.store(path)
    ends = [(path[:stop], group_idx) for path in paths for stop in (3, 4, 5) for group_idx in range(3)]
    writer.policy.pin(dict.fromkeys(key for end in ends if (key := policy_suite.chunk_of(*end).key) in writer.present))
    searches, find_least = [], writer.policy._points._find_least
    monkeypatch.setattr(writer.policy._points, "_find_least", lambda *part: searches.append(part) or find_least(*part))
    assert len(writer.evict(5)) == 5
    assert writer.kept == []
    assert len(searches) <= 2


@pytest.mark.parametrize(("num_points", "found"), [(16, 1), (72, 4), (512, 16)])
def test_one_look_finds_several_points(monkeypatch, num_points, found):
    """A look costs as much as several points do. Where there are few, what was found soon is not the least any more."""
    writer = Writer(num_slots=10_000)
    for symbol in range(num_points):
        writer.store([symbol // 64, symbol // 8 % 8, symbol % 8])
    kept, find_least = [len(writer.kept)], writer.policy._points._find_least
    monkeypatch.setattr(
        writer.policy._points, "_find_least", lambda *part: kept.append(len(writer.kept)) or find_least(*part)
    )
    while len(kept) < 4:
        writer.evict(1)
    assert [before - after for before, after in pairwise(kept[1:])] == [found] * 2


def test_points_are_reckoned_when_the_least_is_sought_and_not_at_each_change_beside_them(monkeypatch):
    writer = Writer()
    reckoned, set_worth = [], writer.policy._points.set_worth
    monkeypatch.setattr(
        writer.policy._points, "set_worth", lambda *worth, **more: reckoned.append(worth) or set_worth(*worth, **more)
    )
    for length in range(2, 22, 2):
        writer.store([0] * length)
    assert not reckoned
    assert writer.policy.evict(1)
    assert len(reckoned) == 10


def test_few_points_wait_to_be_reckoned_where_nothing_goes():
    """Else the first eviction of a tier that was filled would reckon all of it."""
    writer = Writer(num_slots=10_000)
    for symbol in range(512):
        writer.store([symbol // 64, symbol // 8 % 8, symbol % 8])
    assert len(writer.policy._stretches.changed) <= 70


def test_fewer_points_wait_to_be_reckoned_where_each_holds_much():
    window = SlidingWindowSpec(block_size=8, num_kv_heads=1, head_size=8, sliding_window=64 * 8 + 1)
    writer = Writer(groups=(policy_suite.FULL, policy_suite.policy_group(window)), num_slots=10_000)
    for length in range(1, 100):
        writer.insert(*(policy_suite.chunk_of([0] * length, group_idx) for group_idx in range(2)))
        writer.promise([0] * length)
    assert len(writer.kept) == 99
    assert len(writer.policy._stretches.changed) <= 256 // 64


def test_chunks_before_a_pinned_one_are_given_up_in_the_end():
    writer = Writer(groups=(policy_suite.FULL,))
    writer.store([0, 1, 2, 3])
    writer.policy.pin([policy_suite.chunk_of([0, 1, 2, 3], 0).key])
    assert writer.evict(4) is None
    assert len(writer.evict(3)) == 3


def test_what_the_points_of_pinned_chunks_hold_is_given_up_in_the_end():
    """Here the window of a point that frees nothing of its own, and whose attention is pinned."""
    writer = Writer(groups=(policy_suite.FULL, policy_suite.WINDOW))
    writer.store([0, 1])
    writer.promise([0])
    assert sorted(writer.kept) == [[0], [0, 1]]
    writer.policy.pin([policy_suite.chunk_of([0], 0).key, policy_suite.chunk_of([0, 1], 0).key])
    assert len(writer.evict(2)) == 2
    assert writer.kept == []


def test_without_promises_points_are_where_they_can_be():
    writer = Writer()
    writer.store([0, 1], promises=False)
    writer.store([0, 1, 2, 3], promises=False)
    assert sorted(writer.kept) == [[0, 1], [0, 1, 2, 3]]
    strays = [policy_suite.chunk_of([5], 1), policy_suite.chunk_of([5], 2)]
    writer.insert(*strays)
    assert set(writer.evict(2)) == {stray.key for stray in strays}, "no attention is there"


def test_without_promises_a_prefix_grows_until_all_is_there():
    writer = Writer()
    for stop in (2, 4):
        writer.insert(*(policy_suite.chunk_of([0, 1, 2, 3][:end], 0) for end in range(stop - 1, stop + 1)))
        writer.policy.check_invariants()
    assert writer.kept == []
    writer.store([0, 1, 2, 3], promises=False)
    assert writer.kept == [[0, 1, 2, 3]]


def test_after_a_promise_only_promises_count():
    writer = Writer()
    writer.store([7, 7])
    writer.store([0, 1], promises=False)
    assert writer.kept == [[7, 7]]


def test_a_prompt_that_comes_back_is_known_as_far_as_it_was_there():
    """Its beginning is a point then, and outlives a prompt that was stored later."""
    writer = Writer(groups=(policy_suite.FULL,), is_rival=True)  # without the net, in which ARC leads at first
    writer.store([0, 1, 2, 3])
    writer.evict(4)
    writer.store([0, 1, 2, 7, 7])
    writer.store([8, 8, 8])
    writer.evict(5)
    assert writer.resumes([0, 1, 2])
    assert writer.present == {policy_suite.chunk_of(path, 0).key for path in ([0], [0, 1], [0, 1, 2])}


@pytest.mark.parametrize("groups", [HYBRID, (*HYBRID, policy_suite.CIRCULAR)])
def test_a_former_turn_that_comes_back_outlives_one_that_was_stored_later(groups):
    """Only its window and state went, since the later turn needs its attention; a circular buffer has nothing that
    could come back. In so large a tier all are of one age."""
    writer = Writer(groups, num_slots=100_000)
    for symbol in (0, 1):
        writer.store([symbol] * 3)
        writer.store([symbol] * 6)
    while [0] * 3 in writer.kept:
        writer.evict()
    assert [0] * 6 in writer.kept
    writer.store([0] * 3)
    for length in (3, 6):
        writer.store([2] * length)
    while [2] * 3 in writer.kept:
        writer.evict()
    assert [0] * 3 in writer.kept


def test_what_a_request_used_inside_a_point_outlives_the_rest():
    writer = Writer(groups=(policy_suite.FULL,), is_rival=True)  # without the net, in which ARC leads at first
    writer.store([0, 1, 2, 3])
    writer.store([9, 9])
    writer.policy.touch([policy_suite.chunk_of(path, 0).key for path in ([0], [0, 1])])
    writer.evict(4)
    assert writer.present == {policy_suite.chunk_of(path, 0).key for path in ([0], [0, 1])}


def test_an_encoders_input_is_kept_by_its_use():
    writer = Writer(groups=(policy_suite.FULL, policy_suite.CROSS))
    for symbol in (3, 4):
        writer.policy.insert([policy_suite.chunk_of([symbol], 1), policy_suite.chunk_of([symbol, symbol], 1)])
    writer.policy.touch([policy_suite.chunk_of([3, 3], 1).key])
    assert writer.policy.evict(2) == [policy_suite.chunk_of([4, 4], 1).key, policy_suite.chunk_of([4], 1).key]


def test_a_point_that_holds_nothing_alone_is_kept_and_given_up():
    policy = ResumePointPolicy((policy_suite.WINDOW,), 100)
    policy.insert([policy_suite.chunk_of([0], 0), policy_suite.chunk_of([0, 1], 0)])
    for path in ([0, 1], [0]):
        policy.promise(PromisedPoint(len(path) * policy_suite.TOKENS_PER_CHUNK, policy_suite.block_hash_of(path)))
    assert len(list(policy.kept_points())) == 2
    assert len(policy.evict(2)) == 2


@pytest.mark.parametrize("groups", [(policy_suite.WINDOW, policy_suite.STATE), (policy_suite.STATE,)])
def test_models_without_a_prefix_group_have_points_too(groups):
    policy = ResumePointPolicy(groups, 100)
    for path in ([0, 1, 2], [5, 6, 7]):
        lasts = [WINDOW_CHUNKS, 1] if len(groups) == 2 else [1]
        policy.insert(
            [
                policy_suite.chunk_of(path[:stop], g)
                for g, last in enumerate(lasts)
                for stop in range(len(path) + 1 - last, 4)
            ]
        )
        policy.promise(PromisedPoint(3 * policy_suite.TOKENS_PER_CHUNK, policy_suite.block_hash_of(path)))
    victims = policy.evict(1)
    assert [path_of(point.block_hash) for point in policy.kept_points()] == [[5, 6, 7]]
    assert all(path_of(key[:-4])[0] == 0 for key in victims)
