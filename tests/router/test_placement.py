"""The choice of an engine: the soonest first token wins, and no engine is buried under requests."""

from random import Random

import pytest

from octavo.http import Load
from octavo.router import Placement, Prompt

ENGINES = ["a", "b", "c"]


@pytest.fixture
def placement():
    made = Placement(Random(0))
    for name in ENGINES:
        made.add(name)
    return made


def prompt(num_tokens=2000, resumes=None, branches=None):
    return Prompt(num_tokens=num_tokens, resumes=resumes or {}, branches=branches or {})


def test_the_engine_that_resumes_most_gets_the_request(placement):
    choice = placement.choose(prompt(resumes={"b": 1600, "c": 800}), ENGINES, 0.0)
    assert (choice.engine, choice.resumed_tokens, len(choice.weighed)) == ("b", 1600, 3)


def test_of_engines_that_all_have_too_much_to_do_one_is_chosen(placement):
    """Costs so large that no float is a little larger."""
    assert placement.choose(prompt(num_tokens=10**20), ENGINES, 0.0).engine in ENGINES


def test_an_engine_that_is_busy_with_prefills_loses_to_an_idle_one(placement):
    busy = prompt(num_tokens=50_000, resumes={"b": 40_000})
    placement.send(placement.choose(busy, ["b"], 0.0), busy, now=0.0)
    assert placement.choose(prompt(resumes={"b": 1600}), ENGINES, 0.0).engine != "b"


def test_requests_that_share_a_new_prefix_follow_the_first(placement):
    leader = prompt(num_tokens=2000)
    engine = placement.choose(leader, ENGINES, 0.0).engine
    placement.send(placement.choose(leader, [engine], 0.0), leader, now=0.0)
    assert placement.choose(prompt(num_tokens=2100, resumes={engine: 1984}), ENGINES, 0.0).engine == engine


def test_a_prefill_that_is_done_is_no_load_any_more(placement):
    busy = prompt(num_tokens=50_000)
    sent = placement.send(placement.choose(busy, ["b"], 0.0), busy, now=0.0)
    placement.first_token(sent, now=1.0)
    assert placement.loads["b"].prefill_tokens == 0
    assert placement.choose(prompt(resumes={"b": 1600}), ENGINES, 0.0).engine == "b"
    placement.end(sent)
    assert placement.loads["b"].num_requests == 0


def test_of_equal_engines_the_one_with_the_longest_attention_wins(placement):
    choices = {placement.choose(prompt(branches={"c": 512}), ENGINES, 0.0).engine for _ in range(20)}
    assert choices == {"c"}


def serve_short_ones(placement, gap_s, *, count=40, start=0.0):
    """Short requests come and are answered, so far apart. Returns the time after the last."""
    for number in range(count):
        now = start + number * gap_s
        sent = placement.send(placement.choose(prompt(300), ENGINES, now), prompt(300), now)
        placement.first_token(sent, now + 0.15)
        placement.end(sent)
    return start + count * gap_s


@pytest.mark.parametrize(("gap_s", "num_others", "waits"), [(0.1, 0, True), (30.0, 0, False), (3.0, 200, True)])
def test_a_checkpoint_for_those_who_come_later_is_worth_a_short_wait_in_a_busy_fleet(
    placement, gap_s, num_others, waits
):
    """Whoever keeps it busy: also those that other routers have sent there."""
    for name in ENGINES:
        placement.hear(name, Load(requests=num_others))
    now = serve_short_ones(placement, gap_s)
    placement.send(placement.choose(prompt(50), ["c"], now), prompt(50), now)
    assert (placement.choose(prompt(branches={"c": 512}), ENGINES, now).engine == "c") is waits
    placement.send(placement.choose(prompt(4000), ["c"], now), prompt(4000), now)
    assert placement.choose(prompt(branches={"c": 512}), ENGINES, now).engine != "c"


def test_a_night_without_requests_says_little_of_the_morning(placement):
    evening = serve_short_ones(placement, 0.1)
    morning = serve_short_ones(placement, 0.1, count=300, start=evening + 8 * 3600)
    placement.send(placement.choose(prompt(50), ["c"], morning), prompt(50), morning)
    assert placement.choose(prompt(branches={"c": 512}), ENGINES, morning).engine == "c"


def test_in_a_quiet_fleet_a_part_of_a_prompt_is_worth_no_more_wait_than_it_spares(placement):
    now = serve_short_ones(placement, 30.0)
    placement.send(placement.choose(prompt(400), ["b"], now), prompt(400), now)
    assert placement.choose(prompt(resumes={"b": 500}), ENGINES, now).engine == "b"
    placement.send(placement.choose(prompt(400), ["b"], now), prompt(400), now)
    assert placement.choose(prompt(resumes={"b": 500}), ENGINES, now).engine != "b"


def test_an_engine_whose_next_answer_is_overdue_keeps_others_waiting_as_long(placement):
    """It has more to compute than was thought, or stands still."""
    known = prompt(resumes={"b": 1984})
    answer(placement, "c", 16, 0.008)
    sent = placement.send(placement.choose(known, ENGINES, 0.0), known, 0.0)
    assert placement.choose(known, ENGINES, 0.5).engine == "b"
    late = placement.choose(known, ENGINES, 5.0)
    assert late.engine != "b"
    assert late.weighed["b"] == pytest.approx(5.0, abs=0.1)
    placement.end(sent)
    assert placement.choose(known, ENGINES, 5.0).engine == "b"


def test_nothing_is_overdue_where_nobody_tells_of_first_tokens(placement):
    """As a Gateway need not."""
    known = prompt(resumes={"b": 1984})
    placement.end(placement.send(placement.choose(known, ENGINES, 0.0), known, 0.0))
    placement.send(placement.choose(known, ENGINES, 0.0), known, 0.0)
    assert placement.choose(known, ENGINES, 5.0).engine == "b"


def test_one_request_that_never_begins_takes_its_engine_from_nobody_for_good(placement):
    """The engine is tried again, each time after twice as long."""
    known = prompt(resumes={"b": 1984})
    answer(placement, "c", 16, 0.008)
    placement.send(placement.choose(known, ["b"], 0.0), known, 0.0)
    tried = []
    for now in range(3, 200):
        if placement.choose(known, ENGINES, now).engine == "b":
            tried.append(now)
            last = placement.send(placement.choose(known, ["b"], now), known, now)
    assert tried == [21, 42, 84, 168]
    placement.first_token(last, 200.0)
    assert placement.choose(known, ENGINES, 201.0).engine == "b"


def test_what_a_later_request_has_overtaken_is_not_overdue(placement):
    """It may be less urgent."""
    known = prompt(resumes={"b": 1984})
    answer(placement, "c", 16, 0.008)
    placement.send(placement.choose(known, ["b"], 0.0), known, 0.0)
    later = placement.send(placement.choose(known, ["b"], 1.0), known, 1.0)
    placement.first_token(later, 1.1)
    assert placement.choose(known, ENGINES, 5.0).engine == "b"


def test_a_first_token_that_nobody_tells_comes_when_it_is_due(placement):
    long, known = prompt(num_tokens=50_000), prompt(resumes={"b": 1984})
    sent = placement.send(placement.choose(long, ["b"], 0.0), long, 0.0, is_told=False)
    assert placement.choose(known, ENGINES, 10.0).engine != "b"
    assert placement.choose(known, ENGINES, 26.0).engine == "b"
    placement.end(sent)
    assert (placement.loads["b"].num_requests, placement.loads["b"].prefill_tokens) == (0, 0)


def test_what_is_resumed_needs_no_checkpoint_for_those_who_come_later(placement):
    now = serve_short_ones(placement, 0.1)
    placement.send(placement.choose(prompt(900), ["a"], now), prompt(900), now)
    asked = prompt(num_tokens=1000, resumes={"a": 600}, branches={"a": 600})
    assert placement.choose(asked, ENGINES, now).engine != "a"


def test_equal_engines_share_the_requests(placement):
    assert {placement.choose(prompt(), ENGINES, 0.0).engine for _ in range(50)} == set(ENGINES)


def test_a_hot_prefix_is_spread(placement):
    hot = prompt(num_tokens=2000, resumes={"a": 1984})
    for _ in range(60):
        placement.first_token(placement.send(placement.choose(hot, ENGINES, 0.0), hot, now=0.0), now=0.1)
    loads = [placement.loads[name].num_requests for name in ENGINES]
    assert sum(loads) == 60
    assert max(loads) <= 1.5 * 20 + 6


def test_a_few_requests_of_a_hot_prefix_stay_together(placement):
    hot = prompt(num_tokens=2000, resumes={"a": 1984})
    for _ in range(6):
        assert placement.choose(hot, ENGINES, 0.0).engine == "a"
        placement.first_token(placement.send(placement.choose(hot, ENGINES, 0.0), hot, now=0.0), now=0.1)


def test_the_rate_follows_the_answers(placement):
    for _ in range(40):
        sent = placement.send(placement.choose(prompt(1000), ["a"], 0.0), prompt(1000), now=0.0)
        placement.first_token(sent, now=2.0)
        placement.end(sent)
    assert placement.loads["a"].rate == pytest.approx(500, rel=0.01)


def answer(placement, engine, num_tokens, seconds):
    sent = placement.send(placement.choose(prompt(num_tokens), [engine], 0.0), prompt(num_tokens), now=0.0)
    placement.first_token(sent, now=seconds)
    placement.end(sent)


def test_one_quick_answer_leads_nobody_away_from_what_is_cached(placement):
    for _ in range(20):
        answer(placement, "a", 1000, 1.0)
    answer(placement, "b", 1000, 0.5)
    assert placement.choose(prompt(1000, resumes={"a": 200}), ["a", "b"], 0.0).engine == "a"


def test_an_engine_that_stays_slower_gets_less(placement):
    for _ in range(60):
        answer(placement, "a", 1000, 1.0)
        answer(placement, "b", 1000, 2.0)
    assert placement.choose(prompt(1000, resumes={"b": 200}), ["a", "b"], 0.0).engine == "a"


def test_an_engine_without_answers_has_the_fleets_rate(placement):
    for _ in range(20):
        answer(placement, "a", 1000, 4.0)
    assert placement.loads["b"].rate == pytest.approx(250, rel=0.01)


def test_short_prefills_teach_nothing(placement):
    sent = placement.send(
        placement.choose(prompt(1000, resumes={"a": 992}), ["a"], 0.0), prompt(1000, {"a": 992}), now=0.0
    )
    before = placement.loads["a"].rate
    placement.first_token(sent, now=9.0)
    assert placement.loads["a"].rate == before


def test_a_request_that_ends_after_its_engine_has_left_changes_nothing(placement):
    sent = placement.send(placement.choose(prompt(), ["a"], 0.0), prompt(), now=0.0)
    placement.remove("a")
    placement.add("a")
    placement.end(sent)
    assert placement.loads["a"].num_requests == 0


def test_without_engines_there_is_no_choice(placement):
    assert placement.choose(prompt(), [], 0.0) is None


def test_a_session_stays_where_engines_are_equal(placement):
    asked = Prompt(num_tokens=0, resumes={}, session="chat")
    first = placement.choose(asked, ENGINES, 0.0)
    for _ in range(10):
        placement.end(placement.send(placement.choose(asked, ENGINES, 0.0), asked, now=0.0))
    last = placement.choose(asked, ENGINES, 0.0).engine
    assert {placement.choose(asked, ENGINES, 0.0).engine for _ in range(20)} == {last}
    assert placement.choose(asked, [name for name in ENGINES if name != last], 0.0).engine != last
    better = Prompt(num_tokens=2000, resumes={"a": 1600, "b": 1600, "c": 1600} | {last: 0}, session="chat")
    assert placement.choose(better, ENGINES, 0.0).engine != last
    assert len(first.weighed) == 3


def test_of_many_sessions_those_that_came_last_are_known(placement):
    def asked(session):
        return Prompt(num_tokens=0, resumes={}, session=session)

    def engines_of(session):
        return {placement.choose(asked(session), ENGINES, 0.0).engine for _ in range(20)}

    choice = placement.choose(asked("old"), ["b"], 0.0)
    for session in ["old", "used", *map(str, range(2**16 - 2)), "used", "new", "newest"]:
        placement.end(placement.send(choice, asked(session), now=0.0))
    assert engines_of("old") == set(ENGINES)
    assert engines_of("used") == engines_of("newest") == {"b"}


def test_an_engine_takes_a_bounded_number_of_requests():
    placement = Placement(Random(0), most_per_engine=2)
    placement.add("a")
    placement.add("b")
    sent = [placement.send(placement.choose(prompt(), ["a", "b"], 0.0), prompt(), now=0.0) for _ in range(4)]
    assert placement.choose(prompt(), ["a", "b"], 0.0) is None
    placement.end(sent[0])
    assert placement.choose(prompt(), ["a", "b"], 0.0) is not None


def test_what_others_have_sent_counts_like_ones_own(placement):
    placement.hear("b", Load(requests=1, prefill_tokens=5000))
    own = prompt(num_tokens=2000)
    assert placement.choose(prompt(resumes={"b": 1600}), ENGINES, 0.0).engine != "b"
    sent = placement.send(placement.choose(own, ["b"], 0.0), own, now=0.0)
    placement.hear("b", Load(requests=3, prefill_tokens=100))
    assert (placement.loads["b"].num_requests, placement.loads["b"].prefill_tokens) == (4, 2100)
    placement.end(sent)
    placement.hear("b", Load())
    assert (placement.loads["b"].num_requests, placement.loads["b"].prefill_tokens) == (0, 0)
    placement.hear("gone", Load(requests=1))


def test_an_engine_is_not_slow_because_of_what_others_have_sent(placement):
    for _ in range(40):
        placement.hear("a", Load(requests=1, prefill_tokens=3000))
        sent = placement.send(placement.choose(prompt(1000), ["a"], 0.0), prompt(1000), now=0.0)
        placement.hear("a", Load())
        placement.first_token(sent, now=2.0)
        placement.end(sent)
    assert placement.loads["a"].rate == pytest.approx(2000, rel=0.01)
