"""How long the adapter waits for chunks that are there, without an engine."""

import warnings

import pytest

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from test_plugin_adapter import TIMEOUT_S, Engine, look
    from vllm.v1.kv_offload.base import LookupResult

from octavo.offload import LoadRule
from rigs.faulty_tier import FaultyTier, TierFault
from rigs.naive_tier import NaiveTier

pytestmark = [pytest.mark.vllm, pytest.mark.every_vllm, pytest.mark.filterwarnings("ignore")]

NUM_SLOTS = 8


class OneReadAtATime(FaultyTier):
    """Refuses a second read, as a tier whose queue is full."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reading = None

    def submit_load(self, job_id, chunks):
        is_free = self.reading is None and super().submit_load(job_id, chunks)
        self.reading = job_id if is_free else self.reading
        return is_free

    def cancel(self, job_id):
        super().cancel(job_id)
        self.reading = None if job_id == self.reading else self.reading

    def poll(self, now):
        results = super().poll(now)
        if any(result.job_id == self.reading for result in results):
            self.reading = None
        return results


@pytest.fixture
def engine(tmp_path):
    tier = OneReadAtATime(NaiveTier(1 << 20))
    made = Engine(str(tmp_path / "arena"), num_slots=NUM_SLOTS, tier=tier, loads=LoadRule.ALWAYS)
    yield made
    made.tier.fault = TierFault.NONE
    made.close()


def left_on_tier(engine, name, count):
    """A sequence that was stored before, and that memory has lost."""
    context, keys = engine.request(name, count)
    for key in keys:
        engine.store(context, [key])
        engine.settle()
    engine.manager.manager._resident.drop(keys)
    return engine.announced(name, count)


def given_up(engine):
    return engine.manager._waits.num_given_up


def test_whoever_finds_the_queue_of_a_tier_full_waits_for_its_turn(engine):
    first, second = left_on_tier(engine, "a", 3), left_on_tier(engine, "b", 3)
    engine.tier.fault = TierFault.HANGS
    for _ in range(3):
        assert look(engine, *first) == look(engine, *second) == [LookupResult.HIT_PENDING] * 3
        engine.step()
        engine.now += TIMEOUT_S / 5
    engine.tier.fault = TierFault.NONE
    for _ in range(2):
        look(engine, *second)
        engine.step()
    assert look(engine, *first) == look(engine, *second) == [LookupResult.HIT] * 3
    assert given_up(engine) == 0


def test_whoever_finds_memory_full_of_what_others_load_waits_for_room(engine):
    first, second = left_on_tier(engine, "a", NUM_SLOTS), left_on_tier(engine, "b", NUM_SLOTS)
    look(engine, *first)
    engine.step()
    engine.step()
    assert look(engine, *first) == [LookupResult.HIT] * NUM_SLOTS
    engine.manager.prepare_load(first[1], first[0])
    for _ in range(3):
        assert look(engine, *second) == [LookupResult.HIT_PENDING] * NUM_SLOTS
        engine.step()
    engine.manager.complete_load(set(first[1]), first[0])
    for _ in range(3):
        look(engine, *second)
        engine.step()
    assert look(engine, *second) == [LookupResult.HIT] * NUM_SLOTS


def test_of_two_that_keep_memory_from_each_other_one_gives_up(engine):
    first, second = left_on_tier(engine, "a", NUM_SLOTS), left_on_tier(engine, "b", NUM_SLOTS)
    for context, keys in (first, second):
        for key in keys[: NUM_SLOTS // 2]:
            engine.manager.lookup(key, context)
        engine.step()
        engine.step()
    look(engine, *first)  # each has a half in memory, and asks for the rest
    look(engine, *second)
    engine.step()
    assert given_up(engine) == 1
    half = NUM_SLOTS // 2
    assert look(engine, *first) == [LookupResult.HIT] * half + [LookupResult.MISS] * half
    engine.manager.prepare_load(first[1][:half], first[0])
    for _ in range(2):
        assert look(engine, *second) == [LookupResult.HIT] * half + [LookupResult.HIT_PENDING] * half
        engine.step()
    engine.manager.complete_load(set(first[1][:half]), first[0])
    for _ in range(3):
        assert LookupResult.MISS not in look(engine, *second)
        engine.step()
    assert look(engine, *second) == [LookupResult.HIT] * NUM_SLOTS


def test_what_memory_cannot_hold_is_not_waited_for(engine):
    """Nor while others load."""
    other = left_on_tier(engine, "a", 1)
    many = left_on_tier(engine, "b", NUM_SLOTS + 2)
    look(engine, *other)
    engine.step()
    engine.step()
    look(engine, *other)
    engine.manager.prepare_load(other[1], other[0])
    while not given_up(engine):
        assert LookupResult.HIT_PENDING in look(engine, *many)
        engine.step()
    assert look(engine, *many) == [LookupResult.HIT] * (NUM_SLOTS - 1) + [LookupResult.MISS] * 3
    engine.manager.complete_load(set(other[1]), other[0])
    assert engine.now < 101.0, "long before the deadline"


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "too late"])
def test_whoever_gave_up_and_is_preempted_waits_again(engine, refuses):
    context, keys = left_on_tier(engine, "a", 3)
    engine.tier.fault = TierFault.REFUSES if refuses else TierFault.HANGS
    look(engine, context, keys)
    engine.step()
    engine.now += 0.0 if refuses else TIMEOUT_S
    assert look(engine, context, keys) == [LookupResult.MISS] * 3
    engine.manager.prepare_store([], context)  # it is computed
    engine.step()
    engine.tier.fault = TierFault.NONE
    engine.now += 60.0
    engine.step()
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 3
    engine.step()
    engine.step()
    assert look(engine, context, keys) == [LookupResult.HIT] * 3
