"""The calls that offloading gets, in the order of a request's life."""

import pytest
from hash_runner import HashEngine

from octavo.engine.offload_hooks import Readiness
from octavo.engine.outputs import FinishReason
from octavo.engine.scheduler import PATIENCE_S
from octavo.testing import full, small_model

MODEL = small_model(full())
PROMPT = [(i * i) % 61 for i in range(40)]
OTHER = [(i * 3) % 61 for i in range(40)]


class RecordingOffload:
    """Does nothing but write down what it is told, and let requests wait as a test says."""

    def __init__(self, manager):
        self.manager = manager
        self.calls = []
        self.stores = {}
        self.answers = {}
        """By request: how often it is still to wait."""
        self.answer = Readiness.WAIT
        self.starting = set()
        """Requests that were asked for to start now."""
        self.is_pending = False
        self.num_waits = 0
        self.resumed = {}

    def arrived(self, request, now):
        pass

    def prepare(self, request, now, *, may_borrow, may_start):
        self.calls.append(("prepare", request.request_id))
        if may_start:
            self.starting.add(request.request_id)
        assert not request.is_started
        if self.answers.get(request.request_id, 0):
            self.answers[request.request_id] -= 1
            return self.answer
        return Readiness.READY

    def started(self, request):
        self.calls.append(("started", request.request_id))

    def call_in(self, request):
        self.calls.append(("call_in", request.request_id))
        return False

    def holds_pages(self):
        return self.is_pending

    def computed(self, request, now):
        self.calls.append(("computed", request.request_id, request.num_computed_tokens))

    def finished(self, request, now):
        assert request.request_id not in self.manager.requests
        self.calls.append(("finished", request.request_id))

    def preempted(self, request, now):
        assert request.is_started  # what it has computed is still known
        self.calls.append(("preempted", request.request_id))

    def aborted(self, request):
        assert request.request_id not in self.manager.requests
        self.calls.append(("aborted", request.request_id))

    def poll(self, now):
        pass

    def has_pending_work(self):
        return self.is_pending

    def wait(self, timeout_s):
        self.num_waits += 1

    def note_prefill(self, tokens, seconds):
        self.calls.append(("note_prefill", tokens))

    def resumed_from(self, request):
        return self.resumed

    def reset(self, *, tiers=True):
        self.calls.append(("reset",))

    def flush(self, timeout_s, clock):
        self.calls.append(("flush",))
        return True

    def close(self):
        self.calls.append(("close",))

    def of(self, request_id):
        return [call for call in self.calls if call[1:2] == (request_id,)]


def make(**options):
    engine = HashEngine(MODEL, make_offload=RecordingOffload, **options)
    return engine, engine._offload


def test_the_life_of_a_request():
    engine, offload = make(max_step_tokens=24)
    engine.add("a", PROMPT, 8)
    engine.run_all()
    assert offload.of("r1") == [
        ("prepare", "r1"),
        ("started", "r1"),
        ("computed", "r1", 24),
        ("computed", "r1", 40),
        ("computed", "r1", 44),
        ("computed", "r1", 47),
        ("finished", "r1"),
    ]
    assert [call for call in offload.calls if call[0] == "note_prefill"] == [("note_prefill", 24), ("note_prefill", 16)]


def test_who_waits_for_a_load_does_not_hold_up_others():
    engine, offload = make()
    offload.answers["r1"] = 3
    engine.add("a", PROMPT, 8)
    engine.add("b", OTHER, 2)
    engine.run_all()
    assert list(engine.outputs) == [("b", 0), ("a", 0)]
    assert engine.tokens("a") == engine.model.greedy(PROMPT, 8)


def test_the_head_of_the_queue_is_prepared_while_others_run():
    engine, offload = make(max_num_seqs=1)
    for i in range(20):
        engine.add(str(i), [i], 2)
    engine.run_step()
    assert [request for call, request, *_ in offload.calls if call == "prepare"] == [f"r{i}" for i in range(1, 17)]
    assert offload.starting == {"r1"}, "who has no seat is not looked at again"


def test_when_nothing_can_run_it_waits_for_transfers():
    engine, offload = make()
    offload.answers["r1"] = 3
    engine.add("a", PROMPT, 2)
    engine.run_all()
    assert offload.num_waits == 3
    assert engine.hash_runner.steps[0][0][0] == 0


def test_a_request_for_which_there_was_no_room_a_moment_ago_is_not_given_up():
    """Nothing runs any more, and nothing is on its way: its answer is as old as its last look."""
    engine, offload = make()
    offload.answers["r1"], offload.answer = 3, Readiness.NO_ROOM
    engine.add("a", PROMPT, 2)
    engine.run_all()
    assert engine.tokens("a") == engine.model.greedy(PROMPT, 2)


def test_the_end_of_a_prompt_is_told_though_no_block_is_full_there():
    engine, offload = make(max_step_tokens=40)
    engine.add("a", [*PROMPT, 1], 2)
    engine.run_all()
    assert [call for call in offload.of("r1") if call[0] == "computed"][:2] == [
        ("computed", "r1", 40),
        ("computed", "r1", 41),
    ]


def test_preemptions_and_aborts_are_told():
    engine, offload = make(spare=0, max_step_tokens=96)
    engine.add("a", [1] * 8, 80)
    engine.add("b", [2] * 50, 40)
    engine.add("c", [3] * 70, 8)
    engine.run_step()
    engine.drop("c")
    assert offload.of("r3")[-1] == ("aborted", "r3")
    while engine.has_unfinished and engine.counters.preemptions == 0:
        engine.run_step()
    assert offload.of("r2")[-2:] == [("preempted", "r2"), ("prepare", "r2")]
    engine.run_all()
    assert [call[0] for call in offload.of("r2") if call[0] in ("started", "finished")][-2:] == ["started", "finished"]
    assert engine.tokens("b") == engine.model.greedy([2] * 50, 40)


class SlowStores(RecordingOffload):
    """Holds on to as many pages as a preempted request gave up, until the second poll after it."""

    def __init__(self, manager):
        super().__init__(manager)
        self.held = []
        self.num_polls = 0

    def preempted(self, request, now):
        super().preempted(request, now)
        free = self.manager.pool.classes[0].num_obtainable
        self.held += self.manager.pool.take([free])[0]
        self.is_pending, self.num_polls = True, 0

    def poll(self, now):
        self.num_polls += 1
        if self.held and self.num_polls == 2:
            self.manager.pool.let_go(0, self.held)
            self.held, self.is_pending = [], False


def test_pages_on_their_way_back_do_not_cost_every_request_its_own():
    """While stores hold what was given up, one preemption is enough."""
    engine = HashEngine(MODEL, make_offload=SlowStores, spare=0, max_step_tokens=96, is_caching=False)
    prompts = {name: [number] * 20 for number, name in enumerate("abcd")}
    for name, prompt in prompts.items():
        engine.add(name, prompt, 50)
    before = 0
    while engine.has_unfinished:
        engine.take(engine.step())
        assert engine.counters.preemptions - before <= 1
        before = engine.counters.preemptions
    assert before > 0
    for name, prompt in prompts.items():
        assert engine.tokens(name) == engine.model.greedy(prompt, 50)


class HoldsPages(RecordingOffload):
    """Holds all free pages, or all but some, until a test says otherwise."""

    def __init__(self, manager):
        super().__init__(manager)
        self.held = []
        self.lent = {}
        """By request: the pages on loan to it."""

    def take_free(self, *, but=0):
        num_blocks = self.manager.config.page_classes[0].num_blocks
        return self.manager.pool.take([num_blocks - self.manager.usage()[0].held_pages - but])[0]

    def hold(self):
        self.held, self.is_pending = self.take_free(), True

    def let_go(self):
        self.manager.pool.let_go(0, self.held)
        self.held, self.is_pending = [], False

    def call_in(self, request):
        super().call_in(request)
        rows = self.lent.pop(request.request_id, [])
        self.manager.pool.let_go(0, rows)
        return bool(rows)


def make_holding(**options):
    engine = HashEngine(MODEL, make_offload=HoldsPages, is_caching=False, **options)
    return engine, engine._offload


@pytest.mark.parametrize("gives_way", [False, True])
def test_whenever_pages_run_short_those_of_transfers_are_waited_for(gives_way):
    """As long as the first time, though the request has waited before; and also if it gave way since."""
    now = [0.0]
    engine, offload = make_holding(clock=lambda: now[0])
    counters = engine.counters

    def run_short(seconds):
        for _ in range(8):  # in fewer steps all need a page
            now[0] += seconds / 8
            engine.take(engine.step())

    for number, name in enumerate("abc"):
        engine.add(name, [number] * 8, 30 if name == "a" else 60)
    engine.run_step()
    offload.hold()
    run_short(0.9 * PATIENCE_S)
    assert counters.preemptions == 0
    offload.let_go()
    if gives_way:
        engine.scheduler.let_oldest_go_on_alone(now[0])
        while not engine.last("a").is_finished:
            engine.run_step()
    engine.run_step()
    before = counters.preemptions
    now[0] += 10 * PATIENCE_S
    offload.hold()
    run_short(0.9 * PATIENCE_S)
    assert counters.preemptions == before
    run_short(PATIENCE_S)
    assert counters.preemptions > before


def test_of_the_loans_that_of_the_last_to_start_is_called_in_first():
    engine, offload = make_holding(max_num_seqs=1)
    for number, name in enumerate("abc"):
        engine.add(name, [number] * 8, 40)
    engine.run_step()
    rows = offload.take_free()
    offload.lent = {"r2": rows[1:], "r3": rows[:1]}
    for _ in range(5):  # in which the first request needs a page
        engine.take(engine.step())
    assert offload.lent == {"r2": rows[1:]}


def test_where_nothing_runs_a_request_gives_back_its_own_loan_rather_than_not_start():
    engine, offload = make_holding()
    engine.add("a", PROMPT, 2)
    offload.lent["r1"] = offload.take_free(but=2)
    engine.run_all()
    assert engine.tokens("a") == engine.model.greedy(PROMPT, 2)


def test_while_others_run_a_request_keeps_its_own_loan():
    engine, offload = make_holding()
    engine.add("a", [1] * 8, 8)
    engine.run_step()
    engine.add("b", PROMPT, 2)
    offload.lent["r2"] = offload.take_free(but=2)
    for _ in range(4):
        engine.take(engine.step())
    assert len(engine.scheduler.running) == 1
    assert ("call_in", "r2") not in offload.calls
    while engine.has_unfinished:
        engine.take(engine.step())
    assert engine.tokens("b") == engine.model.greedy(PROMPT, 2)


def test_a_request_that_reads_no_cache_is_not_prepared():
    engine, offload = make()
    engine.add("a", PROMPT, 1, prompt_logprobs=1)
    engine.run_all()
    assert {call[0] for call in offload.of("r1")} == {"computed", "finished"}


def test_cached_tokens_are_told_by_medium():
    engine, offload = make()
    engine.add("a", PROMPT, 1)
    engine.run_all()
    offload.resumed = {"memory": 8, "disk": 4}
    engine.add("b", PROMPT, 1)
    engine.run_all()
    assert engine.last("b").cached_tokens == {"device": 24, "memory": 8, "disk": 4}
    assert engine.snapshot().counters.tokens_resumed == {"device": 24, "memory": 8, "disk": 4}


def test_resetting_and_closing_reach_it():
    engine, offload = make()
    engine.add("a", PROMPT, 1)
    engine.reset_prefix_cache()
    engine.close()
    assert [call[0] for call in offload.calls] == ["reset", "aborted", "flush", "close"]
    assert not engine.has_unfinished


def test_a_request_that_nothing_can_help_is_given_up():
    """A pool whose pages somebody else holds for ever: the request ends, and the engine does not spin."""
    engine = HashEngine(MODEL, spare=0)
    pool = engine.manager.pool
    pool.take([pool.config.page_classes[0].num_blocks - 2])
    engine.add("a", PROMPT, 2)
    engine.take(engine.step())
    assert engine.last("a").finish_reason is FinishReason.ERROR
    assert not engine.has_unfinished
