"""What the adapter loads and what it leaves to vLLM to compute, without an engine."""

import warnings
from types import SimpleNamespace

import pytest

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from test_plugin_adapter import PAGE, STEP, TOKENS, Engine, look
    from vllm.v1.kv_offload.base import LookupResult
    from vllm.v1.request import RequestStatus

from octavo.offload import LoadRule
from octavo.why import MARK, find_report, tell_misses
from rigs.slow_to_answer import SlowToAnswer

pytestmark = [pytest.mark.vllm, pytest.mark.every_vllm, pytest.mark.filterwarnings("ignore")]

PER_TOKEN = 0.001
MEASURED_BYTES = 8 << 20


class Measured(Engine):
    """Has computed prompts at a thousand tokens a second."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.run(1.0, warm=1000)
        self.manager._choosing._choices.chooser.chunks_to_probe = lambda *_: 0  # probes have tests of their own

    def run(self, seconds, **scheduled):
        """A step of vLLM's, with its tokens by request."""
        scheduler_output = SimpleNamespace(  # noqa: F841 - it is looked for
            num_scheduled_tokens=scheduled, scheduled_spec_decode_tokens={}
        )
        self.manager.on_schedule_end(STEP)
        self.now += seconds
        return self.manager.get_stats()

    def tier_takes(self, seconds):
        """For each chunk."""
        self.manager.manager.media.read_speeds[0][1].note(MEASURED_BYTES, seconds * MEASURED_BYTES / PAGE)

    def leave_on_tier(self, name, count=8, in_memory=0):
        """A sequence that was stored, and of which memory has only the first chunks by now."""
        context, keys = self.request(name, count)
        self.store(context, keys)
        self.settle()
        self.manager.manager._resident.drop(keys[in_memory:])


@pytest.fixture
def engine(tmp_path):
    made = Measured(str(tmp_path / "arena"), num_ranks=1)
    yield made
    made.close()


def counted(engine):
    return {reason: count for reason, count in engine.manager._choosing.given_up.items() if count}


def test_what_is_quicker_to_compute_is_a_miss_until_it_is_served(engine):
    engine.leave_on_tier("a")
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    context, keys = engine.announced("a")
    for _ in range(3):
        assert look(engine, context, keys) == [LookupResult.MISS] * 8
        engine.run(0.01)
    assert engine.manager.manager.status().chunks_being_promoted == 0
    assert counted(engine) == {"too_slow": 1}, "once for each wait"
    engine.tier_takes(0.0001)
    engine.tier_takes(0.0001)
    assert look(engine, context, keys) == [LookupResult.MISS] * 8, "a request keeps to its choice"
    engine.manager.prepare_store([], context)
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 8, "it was preempted, and chooses again"


def test_a_load_that_was_chosen_is_waited_for(engine):
    engine.leave_on_tier("a", 6)
    engine.tier_takes(TOKENS * PER_TOKEN / 2)
    context, keys = engine.announced("a", 6)
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 6
    engine.tier_takes(TOKENS * PER_TOKEN * 100)
    engine.run(0.01)
    engine.run(0.01)
    assert look(engine, context, keys) == [LookupResult.HIT] * 6
    assert counted(engine) == {}


def test_of_a_slow_tier_what_memory_has_is_loaded(engine):
    engine.leave_on_tier("a", in_memory=3)
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    context, keys = engine.announced("a")
    found = [LookupResult.HIT] * 3 + [LookupResult.MISS] * 5
    assert look(engine, context, keys) == found
    stats = engine.run(1.0)
    assert look(engine, context, keys) == found
    assert engine.manager.manager.status().chunks_being_promoted == 0
    assert counted(engine) == {"cut_short": 1}
    assert stats.data["data"]["octavo_loads_given_up"] == {("cut_short",): 1}


def test_a_load_is_free_while_others_compute(engine):
    engine.leave_on_tier("a", 6)
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    runs = {"status": RequestStatus.RUNNING, "num_prompt_tokens": 2000, "num_computed_tokens": 500}
    other, others = engine.announced("other", **runs)
    assert look(engine, other, others) == [LookupResult.MISS] * 8
    context, keys = engine.announced("a", 6)
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 6


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (RequestStatus.WAITING, LookupResult.HIT_PENDING),
        (RequestStatus.WAITING_FOR_REMOTE_KVS, LookupResult.HIT_PENDING),
        (RequestStatus.RUNNING, LookupResult.MISS),
        (RequestStatus.FINISHED_ABORTED, LookupResult.MISS),
    ],
)
def test_computing_costs_those_who_wait_for_loads(engine, status, found):
    engine.leave_on_tier("a", 6)
    engine.tier_takes(TOKENS * PER_TOKEN * 1.2)
    context, keys = engine.request("b", 2)
    engine.store(context, keys)
    other, others = engine.announced("b", 2, status=RequestStatus.WAITING)
    assert look(engine, other, others) == [LookupResult.HIT] * 2
    engine.told["b"].status = status
    context, keys = engine.announced("a", 6)
    assert look(engine, context, keys) == [found] * 6


def test_who_has_computed_its_prompt_keeps_nobody_waiting(engine):
    engine.leave_on_tier("a", 6)
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    decodes = {"status": RequestStatus.RUNNING, "num_prompt_tokens": 2000, "num_computed_tokens": 2000}
    for number in range(2):
        other, others = engine.announced(f"other {number}", **decodes)
        look(engine, other, others)
    context, keys = engine.announced("a", 6)
    assert look(engine, context, keys) == [LookupResult.MISS] * 6


@pytest.mark.parametrize(("asked_from", "found"), [(0, LookupResult.HIT_PENDING), (6, LookupResult.MISS)])
def test_what_the_device_has_need_not_be_computed(engine, asked_from, found):
    """All eight chunks take as long to read as six take to compute."""
    engine.leave_on_tier("a")
    engine.manager.manager.media.read_speeds[0][1].note(MEASURED_BYTES, 6 * TOKENS * PER_TOKEN)
    engine.manager.manager.media.read_speeds[0][1].note(4 * MEASURED_BYTES, 6 * TOKENS * PER_TOKEN)
    context, keys = engine.announced("a")
    assert look(engine, context, keys[asked_from:]) == [found] * (8 - asked_from)


def test_copies_are_measured_while_no_prompt_is_computed(engine, monkeypatch):
    noted = []
    memory = engine.manager._choosing._choices.chooser.from_memory
    monkeypatch.setattr(memory, "note", lambda num_bytes, seconds: noted.append((num_bytes, seconds)))
    context, keys = engine.announced("a", 4)
    engine.store(context, keys)
    engine.settle()
    for scheduled, measured in (({"other": 500}, []), ({"other": 1}, [(4 * PAGE, 0.5)])):
        assert look(engine, context, keys) == [LookupResult.HIT] * 4
        engine.manager.prepare_load(keys, context)
        engine.run(0.5, **scheduled)
        engine.manager.complete_load(set(keys), context)
        assert noted == measured


def test_a_reset_leaves_nothing_on_its_way(engine):
    context, keys = engine.announced("a", 4)
    engine.store(context, keys)
    engine.settle()
    look(engine, context, keys)
    engine.manager.prepare_load(keys, context)
    assert engine.manager._choosing._choices.bytes_in_flight == 4 * PAGE
    engine.manager.reset_cache()
    assert engine.manager._choosing._choices.bytes_in_flight == 0


def test_the_log_says_what_was_not_loaded(engine, caplog):
    engine.leave_on_tier("a")
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    context, keys = engine.announced("a")
    with caplog.at_level("INFO", logger="vllm.octavo"):
        look(engine, context, keys)
        engine.manager.on_request_finished(context)
    assert MARK in caplog.text
    assert any("expected to be quicker" in line for line in tell_misses(find_report(caplog.text.splitlines(), "a")))


@pytest.mark.parametrize(
    ("rule", "found"), [(LoadRule.ALWAYS, LookupResult.HIT_PENDING), (LoadRule.NEVER, LookupResult.MISS)]
)
def test_a_person_may_decide(tmp_path, rule, found):
    engine = Measured(str(tmp_path / "arena"), loads=rule)
    engine.leave_on_tier("a")
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    context, keys = engine.announced("a")
    assert look(engine, context, keys) == [found] * 8
    engine.close()


@pytest.fixture
def asking(tmp_path):
    """An engine over a store that has six chunks, and is slow to say so."""
    made = Measured(str(tmp_path / "arena"), tier=SlowToAnswer())
    made.leave_on_tier("a", 6)
    made.tier.has_answered = False
    made.tier.told.clear()
    yield made
    made.close()


def test_nothing_is_chosen_before_a_store_has_answered(asking):
    asking.tier_takes(TOKENS * PER_TOKEN / 2)
    context, keys = asking.announced("a", 6)
    assert look(asking, context, keys) == [LookupResult.RETRY] * 6
    asking.run(TOKENS * PER_TOKEN)
    assert look(asking, context, keys) == [LookupResult.RETRY] * 6
    asking.tier.has_answered = True
    asking.run(TOKENS * PER_TOKEN)
    assert look(asking, context, keys) == [LookupResult.HIT_PENDING] * 6
    assert len(asking.tier.told) == 2, "once in each step"


def test_an_answer_is_waited_for_for_half_of_what_computing_takes(asking):
    """There may be nothing."""
    context, keys = asking.announced("a", 6)
    assert look(asking, context, keys) == [LookupResult.RETRY] * 6
    asking.run(6 * TOKENS * PER_TOKEN / 2)
    assert look(asking, context, keys) == [LookupResult.MISS] * 6


def test_a_slow_store_is_not_read(asking):
    asking.tier.has_answered = True
    asking.tier_takes(TOKENS * PER_TOKEN * 2)
    context, keys = asking.announced("a", 6)
    assert look(asking, context, keys) == [LookupResult.MISS] * 6


def test_a_store_is_not_asked_for_what_is_in_memory(asking):
    context, keys = asking.announced("b", 2)
    asking.store(context, keys)
    asking.tier.told.clear()
    context, keys = asking.announced("b", 2)
    assert look(asking, context, keys) == [LookupResult.HIT] * 2
    assert not asking.tier.told


def test_a_probe_takes_no_room_of_what_is_loaded(engine):
    del engine.manager._choosing._choices.chooser.chunks_to_probe
    engine.leave_on_tier("a", in_memory=3)
    engine.store(*engine.request("b", 5))
    engine.settle()
    engine.tier_takes(TOKENS * PER_TOKEN * 2)
    assert look(engine, *engine.announced("a")) == [LookupResult.HIT] * 3 + [LookupResult.MISS] * 5
    assert engine.manager.manager.status().chunks_being_promoted > 0
