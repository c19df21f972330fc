"""What the scheduler does for requests, one rule at a time. Bytes are followed by the naive engine below."""

import pytest

from octavo.chunks import ALL_BLOCKS, make_offload_key
from octavo.events import GroupView, external_hashes
from octavo.hashing import RequestIdentity
from octavo.namespace import may_persist
from octavo.offload.load_choice import Outlook, Way
from octavo.offload.loader import Readiness
from octavo.offload.storer import StorePolicy
from octavo.policies import POLICIES, LRUPolicy
from octavo.testing import NaiveEngine, StepPlan
from rigs.faulty_tier import FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.served import BLOCKS, BOUNDARY, MODELS, PROMPT, Served


@pytest.mark.parametrize("is_on_device", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_used_is_written_again_when_the_lowest_tier_has_lost_it(model, is_on_device):
    """A log has turned meanwhile. The resume point that was used is whole after it, not only the later one."""
    tier = NaiveTier(1 << 20)
    served = Served(model, tiers=[tier])
    served.serve_offloaded()
    if not is_on_device:
        served.forget()
    tier.remove(list(tier._chunks))
    assert served.serve_offloaded(PROMPT + list(range(1000, 1030))) == BOUNDARY
    served.lose_memory()
    assert served.serve_offloaded() == BOUNDARY


def test_a_tier_that_gathers_gets_a_prompt_once_it_is_computed():
    """Also what was promised long before the end."""
    tier = NaiveTier(1 << 20)
    tier.gather_s = 60.0
    served = Served("state + full", tiers=[tier])
    request = served.begin(PROMPT)
    served.wait(request)
    num_stored = []
    while request.computed < len(PROMPT):
        end = served.manager.cut_prefill(
            request.blocks, len(PROMPT), served.look_up(request) if not num_stored else None
        )
        assert served.schedule([StepPlan(request=request, num_tokens=end, sampled=(0,))]) == [True]
        served.commit(request)
        served.poll()
        served.poll()
        num_stored.append((served.stats.stored_chunks, len(tier._chunks)))
    assert len(num_stored) > 2
    assert num_stored[-2][0] > 0, "a part is in memory before the end"
    assert num_stored[-2][1] == 0
    assert num_stored[-1][1] == num_stored[-1][0] > 0
    served.free(request)
    served.settle()
    served.lose_memory()
    assert served.serve_offloaded() == BOUNDARY


@pytest.mark.parametrize("model", MODELS)
def test_a_request_promises_each_token_once_beyond_its_promises_before(model, monkeypatch):
    """In the order in which stores end."""
    promised = []
    monkeypatch.setattr(LRUPolicy, "promise", lambda _, point: promised.append(point))
    served = Served(model)
    for _ in range(2):
        served.serve_offloaded()
        new = sorted(
            (range(point.promised_tokens, point.num_tokens) for point in promised), key=lambda tokens: tokens.start
        )
        assert [token for tokens in new for token in tokens] == list(range(BOUNDARY))
        promised.clear()


@pytest.mark.parametrize("model", MODELS)
def test_who_is_preempted_promises_no_token_again(model, monkeypatch):
    promised = []
    monkeypatch.setattr(LRUPolicy, "promise", lambda _, point: promised.append(point))
    served = Served(model)
    request = served.begin(PROMPT)
    for _ in range(3):
        served.wait(request)
        served.prefill(request)
        served.decode(request, range(5))
        served.preempt(request)
        served.settle()
    new = [token for point in promised for token in range(point.promised_tokens, point.num_tokens)]
    assert sorted(new) == list(range(max(point.num_tokens for point in promised)))


@pytest.mark.parametrize(("model", "num_needed"), [("full", 7), ("window + full", 10), ("state + full", 8)])
def test_a_use_is_a_request_that_resumed_wherever_its_blocks_lay(model, num_needed, monkeypatch):
    uses = []
    monkeypatch.setattr(LRUPolicy, "touch", lambda _, keys: uses.append(len(keys)))
    served = Served(model, tiers=[NaiveTier(1 << 20)])
    served.serve_offloaded()
    assert not uses, "to store and to promise is no use"
    served.serve_offloaded()
    assert uses == [num_needed]
    served.forget()
    served.serve_offloaded()
    assert uses == [num_needed] * 2
    served.lose_memory()
    request = served.begin(PROMPT)
    served.wait(request)
    served.prefill(request)
    assert uses == [num_needed] * 3
    served.preempt(request)
    served.settle()
    served.wait(request)
    assert served.prefill(request) == BOUNDARY
    assert uses == [num_needed] * 3, "what it resumes with is its own"


@pytest.mark.parametrize("blocks_per_chunk", [1, 3, 4])
@pytest.mark.parametrize("model", MODELS)
def test_a_view_of_the_events_resumes_where_the_engine_does(model, blocks_per_chunk):
    served = Served(model, blocks_per_chunk=blocks_per_chunk, tiers=[NaiveTier(1 << 20)], logs_changes=True)
    view = GroupView([group.spec.rule for group in served.config.groups], hash_block_size=4)
    served.serve_offloaded()
    longer = PROMPT + list(range(1000, 1017))
    served.serve_offloaded(longer)
    view.apply(served.offload.take_events())
    served.forget()
    request = served.begin([*longer, 1])
    served.wait(request)
    resumed = served.prefill(request)
    assert resumed >= len(longer) // 4 * 4 - 4
    for medium in ("CPU", "naive"):
        assert (
            view.longest_resume(external_hashes(list(request.blocks.hashes(0))), 48, media={medium}).num_tokens
            == resumed
        )


def test_what_the_device_forgot_comes_back():
    served = Served()
    assert served.serve_offloaded() == 0
    served.forget()
    assert served.serve_offloaded() == BOUNDARY
    assert served.stats.loaded_tokens == BOUNDARY
    assert served.stats.loaded_blocks == {(0, "memory"): BLOCKS}


@pytest.mark.parametrize(
    ("model", "lost", "num_lost"), [("window + full", "sliding_window", 3), ("state + full", "mamba", 1)]
)
def test_only_what_is_missing_is_loaded(model, lost, num_lost):
    """Full attention stays on the device: one resume point over both."""
    served = Served(model)
    served.serve_offloaded()
    served.forget(lost)
    assert served.serve_offloaded() == BOUNDARY
    assert served.stats.loaded_blocks == {(served.group_of[lost], "memory"): num_lost}


@pytest.mark.parametrize("model", MODELS)
def test_what_is_there_is_not_written_again(model):
    served = Served(model)
    served.serve_offloaded()
    stored = served.stats.stored_chunks
    served.serve_offloaded()
    served.forget()
    served.serve_offloaded()
    assert served.stats.stored_chunks == stored


def test_a_prefix_that_hits_on_the_device_is_stored_if_no_tier_has_it():
    served = Served()
    served.serve_offloaded()
    served.offloading_manager.reset()
    assert served.serve_offloaded() == BOUNDARY, "a hit on the device"
    served.forget()
    assert served.serve_offloaded() == BOUNDARY, "and stored all the same"


def test_windows_and_states_are_stored_at_promised_boundaries_only():
    """Windows that weigh so much that points inside the prompt do not pay."""
    served = Served("heavy window + full")
    served.serve_offloaded()
    assert served.stats.stored_chunks == BLOCKS + 3


def test_one_load_for_all_who_wait_for_it():
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.is_stuck = True
    first, second = served.begin(PROMPT), served.begin([*PROMPT, 1])
    for _ in range(3):
        assert not served.is_ready(first)
        assert not served.is_ready(second)
        served.poll()
    served.worker.is_stuck = False
    for request in (first, second):
        served.wait(request)
    assert served.stats.loaded_blocks == {(0, "memory"): BLOCKS}
    assert served.look_up(second).num_tokens == BOUNDARY


def test_others_go_on_while_one_waits():
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.is_stuck = True
    waits, other = served.begin(PROMPT), served.begin([7] * 9)
    assert not served.is_ready(waits)
    assert served.is_ready(other)


def test_a_load_that_fails_resumes_at_the_next_lower_point():
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.fails = True
    request = served.begin(PROMPT)
    served.wait(request)
    assert served.prefill(request) < BOUNDARY
    assert served.stats.failed_load_chunks > 0


@pytest.mark.parametrize("fault", [TierFault.HANGS, TierFault.FAILS, TierFault.REFUSES, TierFault.LOSES])
def test_whatever_a_tier_does_the_request_is_computed(fault):
    tier = FaultyTier(NaiveTier(1 << 20))
    served = Served(tiers=[tier], chunks_in_memory=15)
    served.serve_offloaded()
    served.forget_all_but_tiers()
    tier.fault = fault
    assert served.serve_offloaded() == 0
    assert served.stats.loaded_tokens == 0


def test_where_loaded_tokens_came_from():
    served = Served("window + full", tiers=[NaiveTier(1 << 20)], chunks_in_memory=15)
    served.serve_offloaded()
    served.forget_all_but_tiers()
    request = served.begin(PROMPT)
    served.wait(request)
    assert served.prefill(request) == BOUNDARY
    assert served.offload.resumed_from(request.blocks) == {"naive": BOUNDARY}
    full_group, window_group = served.group_of["full_attention"], served.group_of["sliding_window"]
    assert served.stats.loaded_blocks == {(full_group, "naive"): BLOCKS, (window_group, "naive"): 3}


def test_a_prefix_that_memory_cannot_hold_at_once_comes_in_parts():
    served = Served(tiers=[NaiveTier(1 << 20)], chunks_in_memory=3)
    served.serve_offloaded()
    served.forget()
    assert served.serve_offloaded() == BOUNDARY


def test_what_takes_longer_to_load_than_to_compute_is_computed():
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.offload.note_prefill(1_000_000, 1.0)
    chooser = served.offload._loader.worth.chooser
    chooser.from_memory.note(8 << 20, 8.0)  # a megabyte a second, as if it had been measured
    slow = Way(tokens_left=1, bytes_to_device=8 << 20)
    for _ in range(2):  # what was slow once is tried again
        assert chooser.choose(slow, None, tokens_alone=9, tokens_ahead=0) is Outlook.LOAD
    assert served.offload.prepare(served.begin(PROMPT).blocks, served.now) is Readiness.READY
    assert served.stats.loads_too_slow == 1


def test_of_reads_that_seem_too_slow_the_first_and_one_in_sixteen_measure_the_tier_again():
    """What it reads can be measured; here that is all, as chunks are tiny."""
    served = Served("window + full", tiers=[NaiveTier(1 << 20)])
    served.serve_offloaded()
    served.lose_memory()
    served.offload.note_prefill(1_000_000, 1.0)
    served.offloading_manager._promotions.speeds[0].note(8 << 20, 800.0)
    for number in range(1, 19):
        assert served.offload.prepare(served.begin(PROMPT).blocks, served.now) is Readiness.READY
        assert served.stats.loads_too_slow == number
        assert served.offloading_manager.status().chunks_being_promoted == (10 if number in (1, 17) else 0)
        served.settle()
        served.lose_memory()
    served.settle()


@pytest.mark.parametrize("is_read", [True, False])
def test_nothing_is_held_for_a_request_that_was_aborted(is_read):
    tier = FaultyTier(NaiveTier(1 << 20))
    served = Served(tiers=[tier])
    served.serve_offloaded()
    served.lose_memory()
    request = served.begin(PROMPT).blocks
    assert served.offload.prepare(request, served.now, may_borrow=False) is not Readiness.READY
    if is_read:
        served.poll()
        assert served.offloading_manager.status().chunks_being_promoted == 0
    assert served.offload.has_pending_work()
    served.offload.aborted(request)
    served.poll()
    assert not served.offload.has_pending_work()


def test_a_read_under_way_counts_for_what_its_time_has_left_of_it():
    tier = FaultyTier(NaiveTier(1 << 20))
    served = Served(tiers=[tier])
    served.serve_offloaded()
    served.lose_memory()
    tier.fault = TierFault.HANGS
    manager = served.offloading_manager
    manager._promotions.speeds[0].note(8 << 20, float(8 << 20))  # a byte a second, as if it had been measured
    assert served.offload.prepare(served.begin(PROMPT).blocks, served.now) is Readiness.WAIT
    num_bytes = manager.seconds_to_read({}, waits_for_others=True)
    assert num_bytes > 0
    served.poll()
    assert manager.seconds_to_read({}, waits_for_others=True) == pytest.approx(num_bytes - 0.01, abs=1e-6)
    served.offload.close()


def test_who_is_preempted_resumes():
    served = Served("state + full")
    request = served.begin(PROMPT)
    served.wait(request)
    served.prefill(request)
    served.decode(request, range(10))
    served.preempt(request)
    served.settle()
    served.forget()
    served.wait(request)
    assert served.look_up(request).num_tokens >= BOUNDARY


@pytest.mark.parametrize(
    ("policy", "in_the_middle", "at_the_end"),
    [(StorePolicy.AT_ONCE, 4, 12), (StorePolicy.AT_BOUNDARIES, 0, 12), (StorePolicy.ON_EVICTION, 0, 0)],
)
def test_when_chunks_are_stored(policy, in_the_middle, at_the_end):
    served = Served(store_policy=policy)
    request = served.begin(range(50))
    served.wait(request)
    for num_tokens, stored in ((18, in_the_middle), (42, None), (50, at_the_end)):
        assert served.schedule([StepPlan(request=request, num_tokens=num_tokens)]) == [True]
        served.commit(request)
        served.settle()
        if stored is not None:
            assert served.stats.stored_chunks == stored


def test_flush_brings_everything_to_the_last_tier():
    tier = NaiveTier(1 << 20)
    served = Served(tiers=[tier], store_policy=StorePolicy.ON_EVICTION)
    request = served.begin(PROMPT)
    served.wait(request)
    served.prefill(request)
    served.free(request)
    assert tier.status().num_chunks == 0
    assert served.offload.flush(60.0, lambda: served.now)
    assert tier.status().num_chunks == BLOCKS


@pytest.mark.parametrize("model", MODELS)
def test_what_may_not_persist_reaches_no_medium_below_the_device(model):
    """An adapter known by name only: stored, used again on the device, preempted, ended and flushed."""
    tier = NaiveTier(1 << 20)
    served = Served(model, tiers=[tier], may_persist=lambda request: may_persist(request.identity))
    tuned = RequestIdentity(lora_name="tuned", lora_path="/loras/tuned")
    for tokens in (PROMPT, PROMPT + list(range(1000, 1030))):
        request = served.begin(tokens, tuned)
        served.wait(request)
        resumed = served.prefill(request)
        served.preempt(request)
        served.wait(request)
        served.prefill(request)
        served.free(request)
        served.settle()
    assert resumed == BOUNDARY  # it was used, where it may be
    assert served.offload.flush(60.0, lambda: served.now)
    assert not tier._chunks
    assert served.offload.status().num_chunks == 0
    served.serve_offloaded()
    assert tier._chunks


@pytest.mark.parametrize("policy", POLICIES.names())
def test_what_is_read_takes_no_room_of_what_is_loaded_with_it(policy):
    """The first half of a prefix is in memory alone, and older than what else is there."""
    tier = NaiveTier(1 << 20)
    served = Served(tiers=[tier], chunks_in_memory=2 * BLOCKS - 4, policy=policy)
    served.serve_offloaded()
    keys = list(tier._chunks)
    served.offloading_manager._resident.drop(keys[3:])
    served.serve_offloaded([1000 + token for token in PROMPT])
    tier.remove(keys[:3])
    served.forget()
    assert served.serve_offloaded() == BOUNDARY


def test_a_use_names_no_chunk_of_which_a_longer_one_has_all(monkeypatch):
    """The shorter one was stored when the sequence ended there."""
    uses = []
    monkeypatch.setattr(LRUPolicy, "touch", lambda _, keys: uses.append(len(keys)))
    served = Served(blocks_per_chunk=4)
    assert served.serve_offloaded() == 0
    longer = [*PROMPT, 1000, 1001, 1002]
    served.serve_offloaded(longer)
    assert served.serve_offloaded(longer) == 32
    assert uses == [2, 2]


@pytest.mark.parametrize("chunks_in_memory", [6, 200])
def test_a_chunk_that_memory_has_a_part_of_is_stored_whole(chunks_in_memory):
    """Whether or not its promise takes so much of memory that it is pinned."""
    served = Served(
        "window + full",
        chunks_in_memory=chunks_in_memory,
        blocks_per_chunk=4,
        may_persist=lambda request: request.num_prompt_tokens < 90,
    )
    served.serve_offloaded(range(29))
    request = served.begin(range(33))
    served.wait(request)
    served.look_up(request)
    served.schedule([StepPlan(request=request, num_tokens=33, sampled=(0,))])
    NaiveEngine.commit(served, request)
    for first in (1000, 2000):  # others take the pages of the blocks that the window has left
        served.serve_offloaded(range(first, first + 90))
    served.offload.computed(request.blocks, served.now)
    served.free(request)
    served.settle()
    group = served.group_of["sliding_window"]
    part, whole = (make_offload_key(request.blocks.hashes(group)[block], group) for block in (6, 7))
    manager = served.offloading_manager
    assert manager.held_blocks([part, whole]) == [0b111, 0b1100]

    manager._resident.drop([part])
    served.forget()
    assert served.serve_offloaded(range(33)) < 32
    assert manager.held_blocks([whole]) == [ALL_BLOCKS]
    served.forget()
    assert served.serve_offloaded(range(33)) == 32
