"""What is computed in which step, and that it is the same whatever the pool, the budget and the neighbours are."""

import pytest
from hash_runner import HashEngine

from octavo.blocks import KVCacheManager
from octavo.engine.outputs import FinishReason
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import Scheduler, SchedulerLimits
from octavo.errors import EngineBusyError, InputError, RequestTooLargeError
from octavo.testing import full, small_model, state, window

FULL = small_model(full())
WINDOW = small_model(window(9), full())
STATE = small_model(state(), full(), checkpoint_interval_tokens=24)
HYBRIDS = pytest.mark.parametrize("model", [FULL, WINDOW, STATE], ids=["full", "window", "state"])


def prompt(seed, length):
    return [(seed * 7 + i * i) % 61 for i in range(length)]


@HYBRIDS
def test_a_long_prompt_is_computed_in_chunks_beside_decodes(model):
    engine = HashEngine(model, max_step_tokens=8)
    engine.add("short", prompt(1, 3), 12)
    engine.run_step()
    engine.add("long", prompt(2, 40), 3)
    engine.run_all()
    steps = engine.hash_runner.steps
    assert all(sum(count for _, count in step) <= 8 for step in steps)
    assert steps[1][0][1] == 1, "the decode comes first"
    assert sum(count for _, count in steps[1]) > 4, "and leaves the rest of the budget to the prompt"
    assert engine.tokens("short") == engine.model.greedy(prompt(1, 3), 12)
    assert engine.tokens("long") == engine.model.greedy(prompt(2, 40), 3)


@HYBRIDS
def test_a_prefix_that_was_computed_is_resumed(model):
    engine = HashEngine(model)
    engine.add("first", prompt(1, 40))
    engine.run_all()
    engine.add("second", prompt(1, 40))
    engine.run_all()
    assert engine.last("first").cached_tokens == {}
    assert engine.last("second").cached_tokens == {"device": 36}
    assert engine.tokens("second") == engine.tokens("first")


@HYBRIDS
def test_equal_prompts_that_arrive_together_are_computed_once(model):
    engine = HashEngine(model, max_step_tokens=64)
    for i in range(4):
        engine.add(f"r{i}", [*prompt(1, 40), i])
    engine.run_all()
    computed = sum(count for step in engine.hash_runner.steps for _, count in step if count > 1)
    assert computed <= 41 + 3 * 5
    for i in range(4):
        assert engine.tokens(f"r{i}") == engine.model.greedy([*prompt(1, 40), i], 4)


def test_who_shares_too_little_is_not_held_back():
    engine = HashEngine(STATE, max_step_tokens=64)
    engine.add("first", prompt(1, 40))
    engine.add("second", [*prompt(1, 20), *prompt(2, 20)])  # the first keeps no state before token 24
    engine.run_step()
    assert len(engine.hash_runner.steps[0]) == 2


def test_a_follower_goes_on_when_its_leader_is_gone():
    engine = HashEngine(FULL, max_step_tokens=8)
    engine.add("leader", prompt(1, 40))
    engine.add("follower", prompt(1, 40))
    engine.run_step()
    assert engine.scheduler.running.keys().isdisjoint(engine.scheduler.waiting)
    assert len(engine.scheduler.waiting) == 1
    engine.drop("leader")
    engine.run_all()
    assert engine.last("leader").finish_reason is FinishReason.ABORT
    assert engine.tokens("follower") == engine.model.greedy(prompt(1, 40), 4)
    assert engine.last("follower").cached_tokens == {"device": 8}


def test_nobody_follows_who_publishes_nothing_any_more():
    engine = HashEngine(FULL, max_step_tokens=24)
    engine.add("leader", prompt(1, 40))
    engine.run_step()
    engine.reset_prefix_cache()
    engine.add("other", prompt(1, 40))
    engine.run_step()
    assert engine.hash_runner.steps[1] == [(24, 16), (0, 8)]


def test_a_follower_does_not_hold_up_those_behind_it():
    engine = HashEngine(FULL, max_step_tokens=48)
    engine.add("leader", prompt(1, 30))
    engine.add("follower", prompt(1, 30))
    engine.add("other", prompt(2, 5))
    engine.run_step()
    assert engine.hash_runner.steps[0] == [(0, 30), (0, 5)]


def test_requests_start_in_the_order_of_their_arrival():
    engine = HashEngine(FULL, max_num_seqs=2, max_step_tokens=96)
    for i in range(5):
        engine.add(f"r{i}", prompt(i, 20), 2 + i)
    engine.run_all()
    assert list(engine.outputs) == [(f"r{i}", 0) for i in range(5)]


def ask_for(tenant, engine, *names, n=1, max_tokens=1):
    for name in names:
        engine.add(name, prompt(int.from_bytes(name.encode(), "big"), 5), max_tokens, n=n, tenant=tenant)


def started(engine):
    """The requests in the order in which they started."""
    return list(dict.fromkeys(name for name, _ in engine.outputs))


def test_tenants_start_in_turns():
    engine = HashEngine(FULL, max_num_seqs=1)
    ask_for("a", engine, "a1", "a2", "a3", "a4")
    ask_for("b", engine, "b1")
    engine.run_step()
    ask_for("b", engine, "b2")
    ask_for(None, engine, "own")
    engine.run_all()
    assert started(engine) == ["a1", "b1", "own", "a2", "b2", "a3", "a4"]


def test_of_those_that_start_in_one_step_each_tenant_has_as_many():
    engine = HashEngine(FULL, max_num_seqs=4)
    ask_for("a", engine, "a1", "a2", "a3", "a4", max_tokens=40)
    ask_for("b", engine, "b1", "b2", "b3", max_tokens=40)
    engine.run_step()
    assert [choice.request.request_id for choice in engine.scheduler.running] == ["a1", "b1", "a2", "b2"]


def test_a_tenant_with_fewer_seats_comes_first():
    engine = HashEngine(FULL, max_num_seqs=3, max_step_tokens=24)
    ask_for("a", engine, "a1", "a2", "a3", max_tokens=40)
    engine.run_step()
    assert len(engine.scheduler.running) == 3
    ask_for("a", engine, "a4")
    ask_for("b", engine, "b1", "b2", "b3")
    engine.drop("a1")
    engine.run_all()
    assert [name for name in started(engine) if name not in ("a1", "a2", "a3")] == ["b1", "b2", "b3", "a4"]


def test_choices_are_counted_as_seats():
    engine = HashEngine(FULL, max_num_seqs=4, max_step_tokens=24)
    ask_for("a", engine, "a123", n=3, max_tokens=40)
    ask_for("a", engine, "a4")
    ask_for("b", engine, "b1", "b2", "b3")
    engine.run_all()
    assert started(engine) == ["a123", "b1", "b2", "b3", "a4"]


def test_a_tenant_who_never_stops_asking_starves_no_other():
    engine = HashEngine(FULL, max_num_seqs=1)
    ask_for("a", engine, "a1", "a2", "a3")
    for i in range(1, 20, 2):
        ask_for("b", engine, f"b{i}", f"b{i + 1}")
        engine.run_step()
    assert started(engine)[:6] == ["a1", "b1", "a2", "b2", "a3", "b3"]


@HYBRIDS
def test_under_pressure_the_newest_gives_way_and_loses_no_token(model):
    engine = HashEngine(model, spare=0.5, is_caching=False)
    for i in range(4):
        engine.add(f"r{i}", prompt(i, 10), 60)
    engine.run_all()
    assert engine.counters.preemptions > 0
    for i in range(4):
        assert engine.tokens(f"r{i}") == engine.model.greedy(prompt(i, 10), 60)
    finished = [name for (name, _), outputs in engine.outputs.items() if outputs[-1].is_finished]
    assert finished == ["r0", "r1", "r2", "r3"]


def test_the_oldest_is_never_preempted():
    engine = HashEngine(FULL, spare=0, max_step_tokens=96)
    engine.add("oldest", prompt(0, 8), 80)
    engine.add("newer", prompt(1, 80), 8)
    engine.run_all()
    assert engine.counters.preemptions > 0
    computed = [chunk for step in engine.hash_runner.steps for chunk in step]
    assert computed.count((0, 8)) == 1
    assert computed.count((0, 80)) == 1
    assert any(start > 0 and count > 1 for start, count in computed), "the newer one was taken up again"
    assert engine.tokens("oldest") == engine.model.greedy(prompt(0, 8), 80)
    assert engine.tokens("newer") == engine.model.greedy(prompt(1, 80), 8)


def test_the_oldest_goes_on_alone_and_the_others_after_it():
    engine = HashEngine(FULL)
    for i in range(3):
        engine.add(f"r{i}", prompt(i, 10), 8)
    engine.run_step()
    engine.scheduler.let_oldest_go_on_alone(0.0)
    assert [choice.request.request_id for choice in engine.scheduler.running] == ["r0"]
    assert engine.counters.preemptions == 2
    while not engine.last("r0").is_finished:
        engine.run_step()
        assert len(engine.hash_runner.steps[-1]) == 1
    engine.run_all()
    for i in range(3):
        assert engine.tokens(f"r{i}") == engine.model.greedy(prompt(i, 10), 8)


def test_who_gave_way_is_the_next_to_come_in():
    engine = HashEngine(FULL, spare=0, max_num_seqs=2, max_step_tokens=96)
    engine.add("oldest", prompt(0, 8), 80)
    engine.add("newer", prompt(1, 60), 30)
    engine.add("queued", prompt(2, 8), 4)
    while engine.has_unfinished and not engine.counters.preemptions:
        engine.run_step()
    assert [choice.request.request_id for choice in engine.scheduler.waiting] == ["newer", "queued"]
    engine.run_all()
    assert engine.tokens("newer") == engine.model.greedy(prompt(1, 60), 30)


def test_a_prompt_in_chunks_is_let_in_when_all_of_it_fits():
    engine = HashEngine(FULL, spare=0, max_step_tokens=24)
    engine.add("first", prompt(0, 40), 4)
    engine.add("long", prompt(1, 80), 4)
    engine.run_all()
    assert engine.counters.preemptions == 0
    ends_of_first = [i for i, step in enumerate(engine.hash_runner.steps) if (42, 1) in step]
    assert engine.hash_runner.steps[ends_of_first[0] + 1] == [(0, 24)], "it begins when the first has gone"


def test_a_full_queue_refuses():
    engine = HashEngine(FULL, max_waiting=2)
    engine.add("a", [1])
    engine.add("b", [2])
    with pytest.raises(EngineBusyError, match="2 requests may wait"):
        engine.add("c", [3])
    engine.run_all()
    engine.add("c", [3])
    engine.run_all()
    assert engine.tokens("c") == engine.model.greedy([3], 4)


def test_what_can_never_run_is_refused_at_once():
    engine = HashEngine(FULL)
    with pytest.raises(RequestTooLargeError, match="96 tokens"):
        engine.add("a", prompt(1, 96))
    with pytest.raises(InputError, match="n = 9"):
        engine.add("a", [1], n=9)
    with pytest.raises(InputError, match="0 to 60"):
        engine.add("a", [61])
    with pytest.raises(InputError, match="0 to 60"):
        engine.add("a", [3, -1])
    with pytest.raises(InputError, match="at least one token"):
        engine.add("a", [])
    with pytest.raises(InputError, match="list of token ids"):
        engine.add("a", ["x"])
    with pytest.raises(InputError, match="tokenizer"):
        engine.add("a", [1], stop=("x",))
    with pytest.raises(InputError, match="stop_token_ids"):
        engine.add("a", [1], stop_token_ids=(61,))
    assert not engine.has_unfinished
    engine.add("a", [1])
    with pytest.raises(InputError, match="there already"):
        engine.add("a", [1])
    engine.run_all()


@HYBRIDS
def test_the_longest_context_ends_a_request(model):
    engine = HashEngine(model)
    engine.add("a", prompt(1, 95), 50)
    engine.add("b", prompt(2, 90), None)
    engine.run_all()
    assert engine.tokens("a") == engine.model.greedy(prompt(1, 95), 1)
    assert engine.tokens("b") == engine.model.greedy(prompt(2, 90), 6)
    assert {engine.last(name).finish_reason for name in "ab"} == {FinishReason.LENGTH}


@HYBRIDS
def test_choices_share_the_prompt(model):
    engine = HashEngine(model, max_step_tokens=64)
    engine.add("a", prompt(1, 30), 20, n=3)
    engine.run_all()
    assert sum(count for step in engine.hash_runner.steps for _, count in step if count > 1) == 30
    for index in range(3):
        assert engine.tokens("a", index) == engine.model.greedy(prompt(1, 30), 20)
        assert engine.last("a", index).finish_reason is FinishReason.LENGTH


@HYBRIDS
def test_choices_part_and_are_preempted_one_by_one(model):
    engine = HashEngine(model, spare=0.3, max_step_tokens=64)
    engine.add_request("a", prompt(1, 30), SamplingParams(n=4, seed=5, max_tokens=50))
    engine.run_all()
    alone = HashEngine(model, spare=8, max_step_tokens=64)
    alone.add_request("a", prompt(1, 30), SamplingParams(n=4, seed=5, max_tokens=50))
    alone.run_all()
    assert engine.counters.preemptions > 0
    assert alone.counters.preemptions == 0
    assert [engine.tokens("a", i) for i in range(4)] == [alone.tokens("a", i) for i in range(4)]
    assert len({tuple(engine.tokens("a", i)) for i in range(4)}) == 4


def test_choices_need_seats():
    engine = HashEngine(FULL, max_num_seqs=4, max_step_tokens=64)
    engine.add("a", prompt(1, 5), 9, n=3)
    engine.add("b", prompt(2, 5), 9, n=2)
    most = 0
    while engine.has_unfinished:
        engine.run_step()
        most = max(most, len(engine.scheduler.running))
    assert most == 3
    assert engine.tokens("b", 1) == engine.model.greedy(prompt(2, 5), 9)


@HYBRIDS
@pytest.mark.parametrize("num_steps", range(8))
def test_a_request_can_be_aborted_at_any_point(model, num_steps):
    engine = HashEngine(model, max_step_tokens=16)
    engine.add("a", prompt(1, 40), 9, n=2)
    engine.add("b", prompt(2, 40), 4)
    for _ in range(num_steps):
        engine.run_step()
    engine.drop("a")
    assert {engine.last("a", index).finish_reason for index in range(2)} == {FinishReason.ABORT}
    engine.drop("a")
    engine.run_all()
    assert engine.tokens("b") == engine.model.greedy(prompt(2, 40), 4)
    engine.add("a", prompt(1, 40), 9)
    engine.run_all()


def test_max_tokens_zero_computes_the_prompt_only():
    engine = HashEngine(FULL)
    engine.add("a", prompt(1, 30), 0, n=2)
    engine.run_all()
    for index in range(2):
        assert engine.tokens("a", index) == []
        assert engine.last("a", index).finish_reason is FinishReason.LENGTH


@HYBRIDS
def test_prompt_logprobs_read_nothing_from_the_cache(model):
    engine = HashEngine(model, max_step_tokens=16)
    engine.add("warm", prompt(1, 40))
    engine.run_all()
    engine.add("a", prompt(1, 40), 2, prompt_logprobs=3, logprobs=1)
    engine.run_all()
    first = engine.outputs["a", 0][0]
    assert first.cached_tokens == {}
    assert len(first.prompt_logprobs) == 40
    assert first.prompt_logprobs[0] is None
    for position in range(1, 40):
        of_token = first.prompt_logprobs[position]
        logits = engine.model.logits(prompt(1, 40)[:position])
        assert of_token.token_id == prompt(1, 40)[position]
        assert of_token.rank == 1 + (logits > logits[of_token.token_id]).sum()
        assert [token for token, _ in of_token.top] == list((-logits).argsort()[:3])
    assert engine.outputs["a", 0][1].prompt_logprobs is None


def test_prompt_logprobs_survive_a_preemption():
    engine = HashEngine(FULL, spare=0, max_step_tokens=12)
    engine.add("old", prompt(0, 20), 60)
    engine.add("a", prompt(1, 70), 2, prompt_logprobs=0)
    engine.run_all()
    assert engine.counters.preemptions > 0
    found = engine.outputs["a", 0][0].prompt_logprobs
    assert [each.token_id for each in found[1:]] == prompt(1, 70)[1:]


def test_without_caching_nothing_is_resumed():
    engine = HashEngine(FULL, is_caching=False, max_step_tokens=96)
    for name in "ab":
        engine.add(name, prompt(1, 40))
    engine.run_step()
    assert engine.hash_runner.steps[0] == [(0, 40), (0, 40)]
    engine.run_all()
    assert engine.tokens("a") == engine.tokens("b") == engine.model.greedy(prompt(1, 40), 4)


def test_salts_keep_tenants_apart():
    engine = HashEngine(FULL)
    for salt in ("x", "y", "x"):
        engine.add_request(salt, prompt(1, 40), SamplingParams(max_tokens=1, temperature=0), cache_salt=salt)
        engine.run_all()
    assert engine.outputs["y", 0][0].cached_tokens == {}
    assert engine.outputs["x", 0][-1].cached_tokens == {"device": 36}


def test_a_reset_forgets_and_running_requests_go_on():
    engine = HashEngine(FULL)
    engine.add("warm", prompt(1, 40))
    engine.run_all()
    engine.add("running", prompt(2, 40), 30)
    engine.run_step()
    engine.reset_prefix_cache()
    engine.run_all()
    assert engine.tokens("running") == engine.model.greedy(prompt(2, 40), 30)
    for seed in (1, 2):
        engine.add(f"again {seed}", prompt(seed, 40), 30)
        engine.run_all()
        assert engine.last(f"again {seed}").cached_tokens == {}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_step_tokens": 25}, r"max_step_tokens = 25 is more than the 24 .* RequestLimits\(max_step_tokens=25\)"),
        ({"max_num_seqs": 25}, "max_num_seqs = 25 must be from 1 to max_step_tokens = 24"),
        ({"max_num_seqs": 0}, "max_num_seqs = 0 must be"),
    ],
)
def test_steps_that_the_plan_has_no_room_for_are_refused(limits, told):
    asked = SchedulerLimits(**{"max_step_tokens": 24, "max_num_seqs": 8, "max_waiting": 1} | limits)
    with pytest.raises(InputError, match=told):
        Scheduler(KVCacheManager(FULL.plan(0)), asked, execute=lambda _: None)
