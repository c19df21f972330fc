"""What requests hint of their resume points, through the scheduler."""

import pytest

from octavo.chunks import NO_TENANT, Hint, HintKind, HintOutcome
from octavo.hashing import RequestIdentity
from rigs.naive_tier import NaiveTier
from rigs.served import BOUNDARY, MODELS, PROMPT, Served

SYSTEM = list(range(500, 516))
"""In blocks of 4: four."""


def retain(seconds=1000.0, end=None):
    return Hint(kind=HintKind.RETAIN, lifetime_s=seconds, end_tokens=end)


class Hinted(Served):
    """Serves requests with hints, and prompts that nobody asks for again."""

    def __init__(self, model, **options):
        super().__init__(model, **{"policy": "resume_points", "chunks_in_memory": 60, "retain_share": 1.0, **options})

    def serve_hinted(self, tokens, *hints, salt=None):
        request = self.begin(tokens, RequestIdentity(cache_salt=salt))
        self.offload.hint(request.blocks.request_id, hints)
        self.wait(request)
        resumed = self.prefill(request)
        self.free(request)
        self.settle()
        return resumed

    def scan(self, count=24, *, uses=1):
        for number in range(count):
            for _ in range(uses):
                self.serve_hinted(self.scanned(number))
        self.forget()

    def scanned(self, number):
        return [2000 + 50 * number + index for index in range(30)]

    def outcome(self, kind, outcome):
        return self.stats.hints.get((kind, outcome), 0)


@pytest.mark.parametrize("is_retained", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_a_retained_system_prompt_survives_a_scan(model, is_retained):
    """Over a tier that holds a few prompts, the device emptied meanwhile."""
    engine = Hinted(model)
    hints = [retain(end=len(SYSTEM) + 1)] if is_retained else []
    engine.serve_hinted([*SYSTEM, *range(10)], *hints)
    engine.scan()
    assert engine.serve_hinted([*SYSTEM, *range(900, 910)]) == (len(SYSTEM) if is_retained else 0)
    assert engine.outcome(HintKind.RETAIN, HintOutcome.TAKEN) == is_retained


@pytest.mark.parametrize("model", MODELS)
def test_a_prompts_end_is_retained_where_no_part_is_named(model):
    engine = Hinted(model)
    engine.serve_hinted(PROMPT, retain())
    engine.scan()
    assert engine.serve_hinted(PROMPT) == BOUNDARY


@pytest.mark.parametrize("model", MODELS)
def test_it_goes_when_its_time_is_over(model):
    engine = Hinted(model)
    engine.serve_hinted(PROMPT, retain(60.0))
    engine.scan()
    engine.poll(61.0)
    engine.scan()
    assert engine.serve_hinted(PROMPT) < BOUNDARY


@pytest.mark.parametrize("model", MODELS)
def test_it_goes_when_it_is_released(model):
    """As others do that were asked for twice: one that came right after it stays or goes with it."""
    engine = Hinted(model)
    engine.serve_hinted(PROMPT, retain())
    engine.serve_hinted(PROMPT, Hint(kind=HintKind.RELEASE))
    assert engine.outcome(HintKind.RELEASE, HintOutcome.TAKEN) == 1
    engine.scan(uses=2)
    is_kept = engine.serve_hinted(PROMPT) == BOUNDARY
    assert is_kept == (engine.serve_hinted(engine.scanned(0)) == BOUNDARY)
    assert not is_kept or model == "state + full", "only there an old point may outlive a young one of its kind"


@pytest.mark.parametrize("model", MODELS)
def test_where_everything_is_retained_what_is_new_is_stored(model):
    engine = Hinted(model)
    for number in range(20):
        prompt = [3000 + 50 * number + index for index in range(30)]
        engine.serve_hinted(prompt, retain())
        engine.forget()
        assert engine.serve_hinted(prompt) == BOUNDARY


def test_a_share_that_is_used_up_refuses_and_changes_nothing_else():
    sizes = Hinted("full")
    needed = (BOUNDARY // 4) * sizes.config.groups[0].page_bytes
    engine = Hinted("full", retain_share=1.5 * needed / (sizes.arena.num_slots * sizes.arena.slot_bytes))
    engine.serve_hinted(PROMPT, retain(), salt="one")
    other = [*range(700, 730)]
    engine.serve_hinted(other, retain(), salt="one")
    engine.forget()
    assert engine.outcome(HintKind.RETAIN, HintOutcome.TAKEN) == 1
    assert engine.outcome(HintKind.RETAIN, HintOutcome.QUOTA) == 1
    assert engine.serve_hinted(other, salt="one") == BOUNDARY, "it is stored like any other"
    engine.serve_hinted(PROMPT, retain(), salt="two")
    assert engine.outcome(HintKind.RETAIN, HintOutcome.TAKEN) == 2, "each tenant has its own"


def test_a_part_shorter_than_a_block_is_no_point():
    engine = Hinted("full")
    engine.serve_hinted(PROMPT, retain(end=3))
    assert engine.stats.hints == {(HintKind.RETAIN, HintOutcome.NO_POINT): 1}


@pytest.mark.parametrize("model", MODELS)
def test_a_demoted_prompt_goes_first(model):
    engine = Hinted(model)
    prompts = [[3000 + 50 * number + index for index in range(30)] for number in range(3)]
    for number, prompt in enumerate(prompts):
        engine.serve_hinted(prompt, *([Hint(kind=HintKind.DEMOTE)] if number == 2 else []))
    assert engine.outcome(HintKind.DEMOTE, HintOutcome.TAKEN) >= 1
    number = 0
    while not engine.offload.status().counters["evicted"]:
        engine.serve_hinted([5000 + 50 * number + index for index in range(30)])
        number += 1
    engine.forget()
    assert engine.serve_hinted(prompts[2]) < BOUNDARY
    assert engine.serve_hinted(prompts[1]) == BOUNDARY


def test_a_reset_of_memory_ends_what_was_retained():
    engine = Hinted("full", tiers=[NaiveTier(1 << 20)])
    engine.serve_hinted(PROMPT, retain())
    retentions = engine.offloading_manager.retentions
    assert len(retentions) == 1
    engine.offload.reset(tiers=False)
    assert len(retentions) == retentions.retained_bytes(NO_TENANT) == 0


def test_who_is_preempted_keeps_its_hints():
    engine = Hinted("full")
    request = engine.begin(PROMPT)
    engine.offload.hint(request.blocks.request_id, [retain()])
    engine.wait(request)
    engine.preempt(request)
    engine.settle()
    engine.wait(request)
    engine.prefill(request)
    engine.free(request)
    engine.settle()
    assert engine.outcome(HintKind.RETAIN, HintOutcome.TAKEN) == 1


def test_who_is_preempted_gives_its_hints_once():
    """Somebody else has retained the prompt since it asked for the release."""
    engine = Hinted("full")
    engine.serve_hinted(PROMPT, retain())
    request = engine.begin(PROMPT)
    engine.offload.hint(request.blocks.request_id, [Hint(kind=HintKind.RELEASE)])
    engine.wait(request)
    engine.preempt(request)
    engine.settle()
    engine.serve_hinted(PROMPT, retain())
    engine.wait(request)
    engine.prefill(request)
    engine.free(request)
    engine.scan(uses=2)
    assert engine.serve_hinted(PROMPT) == BOUNDARY
    assert engine.stats.hints == {(HintKind.RETAIN, HintOutcome.TAKEN): 2, (HintKind.RELEASE, HintOutcome.TAKEN): 1}


def test_prefetch_reads_what_lies_below_memory():
    engine = Hinted("full", tiers=[NaiveTier(1 << 20)])
    engine.serve_hinted(PROMPT)
    engine.lose_memory()
    request = engine.begin(PROMPT)
    engine.offload.hint(request.blocks.request_id, [Hint(kind=HintKind.PREFETCH)])
    assert not engine.is_ready(request)
    assert engine.offload.status().chunks_being_promoted
    assert engine.outcome(HintKind.PREFETCH, HintOutcome.TAKEN) == 1
    engine.wait(request)
    assert engine.prefill(request) == BOUNDARY


def test_a_cancelled_request_leaves_nothing():
    engine = Hinted("full")
    request = engine.begin(PROMPT)
    engine.offload.hint(request.blocks.request_id, [retain()])
    engine.offload.aborted(request.blocks)
    engine.wait(request)
    engine.prefill(request)
    engine.free(request)
    engine.settle()
    assert not engine.stats.hints
