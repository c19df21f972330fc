"""What the scheduler does for requests, one rule at a time. Bytes are followed by the naive engine below."""

import pytest

from octavo.blocks import KVCacheManager
from octavo.chunks import GroupOffloadConfig
from octavo.events import GroupView, external_hashes
from octavo.ids import GroupIdx
from octavo.offload.loads import Readiness
from octavo.offload.stores import StorePolicy
from octavo.testing import StepPlan, full, small_model, state, window
from rigs.faulty_tier import FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.offload_machine import PATIENCE_S, OffloadingEngine

MODELS = {
    "full": small_model(full()),
    "window + full": small_model(window(10), full()),
    "state + full": small_model(state(), full()),
}
PROMPT = list(range(30))
BOUNDARY = 28
"""The last one below the prompt's end, in blocks of 4."""
BLOCKS = BOUNDARY // 4


class Served(OffloadingEngine):
    """A model of which one request fills most of the device."""

    def __init__(self, model="full", *, tiers=(), chunks_in_memory=200, blocks_per_chunk=1, **options):
        super().__init__(KVCacheManager(MODELS[model].plan(1.0)))
        groups = [
            GroupOffloadConfig(
                spec=group.spec.rule,
                blocks_per_chunk=1 if group.spec.holds_checkpoints else blocks_per_chunk,
                page_size_bytes=group.page_bytes,
            )
            for group in self.config.groups
        ]
        options = {"policy": "lru", "store_policy": StorePolicy.AT_BOUNDARIES, **options}
        self.attach(tiers, groups, chunks_in_memory=chunks_in_memory, **options)
        self.group_of = {group.kind: index for index, group in enumerate(self.config.groups)}

    @property
    def stats(self):
        return self.offload.stats()

    def poll(self, seconds=0.01):
        self.now += seconds
        self.offload.poll(self.now)

    def settle(self):
        while self.offload.has_pending_work():
            self.poll()

    def forget(self, *kinds):
        """As if the device had evicted what nobody holds of these groups; of all, if none is named."""
        for kind in kinds or self.group_of:
            self.manager.pool.forget_group(self.group_of[kind])

    def wait(self, request):
        """Until the request may start. It never waits for longer than its patience here."""
        give_up_at = self.now + PATIENCE_S + 1
        while not self.is_ready(request):
            assert self.now < give_up_at, "it waits for ever"
            self.poll()

    def serve_offloaded(self, tokens=PROMPT):
        """A request from its beginning to its end, and all that follows from it; where it resumed."""
        request = self.begin(tokens)
        self.wait(request)
        resumed = self.prefill(request)
        self.free(request)
        self.settle()
        return resumed

    def lose_memory(self):
        """As after a restart: only tiers have anything."""
        resident = self.offloading_manager._resident
        resident.drop([key for shard in resident.index.parts() for key in shard])
        self.forget()

    def forget_all_but_tiers(self):
        """Others have taken all of memory."""
        self.serve_offloaded([1000 + i for i in range(90)])
        self.forget()


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
    served = Served("window + full")
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
    served.offload._loader.speeds.from_memory.note(8 << 20, 8.0)  # a megabyte a second, as if it had been measured
    assert served.offload.prepare(served.begin(PROMPT).blocks, served.now) is Readiness.READY
    assert served.stats.loads_too_slow == 1


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


@pytest.mark.parametrize("is_stuck", [True, False])
def test_who_leaves_while_it_is_loaded_leaves_no_page_behind(is_stuck):
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.is_stuck = is_stuck
    request = served.begin(PROMPT)
    assert not served.is_ready(request)
    served.abort(request)
    served.worker.is_stuck = False
    served.settle()
    served.check_nothing_leaks()
    assert not +served.watched.held


@pytest.mark.parametrize("is_under_way", [True, False])
def test_what_was_lent_to_a_waiting_request_is_called_in(is_under_way):
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.is_stuck = is_under_way
    request = served.begin(PROMPT)
    assert not served.is_ready(request)
    served.poll()
    assert len(list(served.held_by_transfers())) == BLOCKS
    assert served.offload.call_in(request.blocks)
    assert not served.offload.call_in(request.blocks), "it has nothing any more"
    served.worker.is_stuck = False
    served.poll()
    assert not list(served.held_by_transfers())
    served.wait(request)
    assert served.prefill(request) == BOUNDARY, "what was called in is found as long as nobody needs its pages"


def test_nothing_is_lent_where_the_whole_request_has_no_room():
    """Room for its load, and for no more."""
    served = Served()
    served.serve_offloaded()
    pool = served.manager.pool
    [taken] = pool.take([pool.config.page_classes[0].num_blocks])
    pool.let_go(GroupIdx(0), taken[:BLOCKS])
    request = served.begin(PROMPT)
    assert served.offload.prepare(request.blocks, served.now) is Readiness.NO_ROOM
    pool.let_go(GroupIdx(0), taken[BLOCKS : BLOCKS + 1])
    served.now += 1
    assert served.offload.prepare(request.blocks, served.now) is Readiness.WAIT
    assert served.offload.holds_pages()


def test_while_an_older_request_waits_for_pages_only_memory_is_filled():
    served = Served(tiers=[NaiveTier(1 << 20)])
    served.serve_offloaded()
    served.forget()
    request = served.begin(PROMPT)
    assert served.offload.prepare(request.blocks, served.now, may_borrow=False) is Readiness.NO_ROOM
    assert not list(served.held_by_transfers())
    served.poll()
    assert served.offload.prepare(request.blocks, served.now) is Readiness.WAIT
    assert len(list(served.held_by_transfers())) == BLOCKS


def test_what_comes_and_is_evicted_again_does_not_keep_a_request_waiting():
    """Memory holds a part of it, and the device forgets each part that comes."""
    served = Served(tiers=[NaiveTier(1 << 20)], chunks_in_memory=3)
    served.serve_offloaded()
    request = served.begin(PROMPT)
    for _ in range(50 * BLOCKS):
        served.forget()
        if served.is_ready(request):
            break
        served.poll(PATIENCE_S / 20)
    else:
        pytest.fail("it waits for ever")


def test_a_reset_while_it_is_loaded_publishes_nothing():
    served = Served()
    served.serve_offloaded()
    served.forget()
    served.worker.is_stuck = True
    request = served.begin(PROMPT)
    assert not served.is_ready(request)
    served.reset()
    served.worker.is_stuck = False
    served.wait(request)
    assert served.prefill(request) == 0


def test_a_store_in_flight_keeps_its_pages():
    served = Served()
    request = served.begin(PROMPT)
    served.wait(request)
    served.worker.is_stuck = True
    served.prefill(request)
    served.free(request)
    served.poll()
    assert len(list(served.held_by_transfers())) == BLOCKS
    served.worker.is_stuck = False
    served.settle()
    served.check_nothing_leaks()


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
