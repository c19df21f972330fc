"""The choice between loading and computing: what was measured decides, and what others compute hides a load."""

import pytest

from octavo.offload.load_choice import LEAST_BYTES, LoadChooser, LoadRule, MovingLine, Outlook, Way

MB = 1 << 20


@pytest.fixture
def chooser():
    """Computes 1,000 tokens a second, and copies 100 MB a second to the device; some loads were refused before."""
    chooser = LoadChooser()
    for amount in (100, 1000, 4000):
        chooser.prefill.note(amount, amount / 1000)
        chooser.from_memory.note(amount * MB, amount / 100)
    refused = [number for number in range(1, 65) if choose(chooser, way(10, 500)) is Outlook.COMPUTE]
    assert refused == [number for number in range(1, 65) if number not in {1, 2, 4, 8, 16, 32, 64}]
    return chooser


def way(tokens_left, megabytes, reading_s=None):
    return Way(
        tokens_left=tokens_left,
        bytes_to_device=megabytes * MB,
        reading_s=reading_s or 0.0,
        is_in_memory=reading_s is None,
    )


def choose(chooser, whole, part=None, *, alone=1000, ahead=0):
    return chooser.choose(whole, part, tokens_alone=alone, tokens_ahead=ahead)


def probes(chooser, sizes, seconds):
    """How many chunks are read for the measurement's sake, after each of 640 reads that were refused."""
    reads = [(1, size) for size in sizes]
    return [chooser.chunks_to_probe(reads, number, lambda _: seconds) for number in range(1, 641)]


def test_the_quickest_way_is_taken(chooser):
    assert choose(chooser, way(10, 50)) is Outlook.LOAD
    assert choose(chooser, way(10, 150)) is Outlook.COMPUTE
    assert choose(chooser, way(10, 50, reading_s=0.1), way(500, 20)) is Outlook.LOAD
    assert choose(chooser, way(10, 50, reading_s=0.4), way(500, 20)) is Outlook.LOAD_PART, "0.91 s or 0.7 s"
    assert choose(chooser, way(10, 50, reading_s=0.6), way(900, 20)) is Outlook.COMPUTE, "1.11 s, 1.1 s or 1 s"


def test_a_load_is_free_while_others_compute(chooser):
    assert choose(chooser, way(10, 150), ahead=1000) is Outlook.LOAD
    assert choose(chooser, way(10, 350), ahead=1000) is Outlook.COMPUTE


def test_computing_costs_those_too_who_have_loaded_before_it_ends(chooser):
    """It takes 1 s, and loading 1.11 s: who needs the device after half of that waits for the rest."""
    whole = way(10, 50, reading_s=0.6)

    def choice(*loads_end_in, ahead=0):
        return chooser.choose(whole, None, tokens_alone=1000, tokens_ahead=ahead, loads_end_in=loads_end_in)

    assert choice() is Outlook.COMPUTE
    assert choice(0.5) is Outlook.LOAD
    assert choice(0.99, 1.5, 3.0) is Outlook.COMPUTE, "they come when it has ended"


def test_what_is_unknown_is_tried():
    chooser = LoadChooser()
    assert choose(chooser, way(10, 1 << 20)) is Outlook.LOAD
    chooser.prefill.note(1000, 0.001)
    assert choose(chooser, way(10, 1 << 20)) is Outlook.LOAD


def test_what_was_slow_is_tried_now_and_then(chooser):
    chosen = [choose(chooser, way(10, 500)) for _ in range(640)]
    assert chosen.count(Outlook.LOAD) == 10
    reads = [choose(chooser, way(10, 50, reading_s=9.0)) for _ in range(640)]
    assert set(reads) == {Outlook.COMPUTE}, "nobody waits for a tier that is known to be slow"
    assert [count for count in probes(chooser, [LEAST_BYTES] * 9, seconds=0.1) if count] == [4, 1] * 20
    assert [count for count in probes(chooser, [LEAST_BYTES // 4] * 99, seconds=0.1) if count] == [16, 4] * 20
    assert [count for count in probes(chooser, [9 * LEAST_BYTES] * 9, seconds=9.0) if count] == [1, 1] * 20, "not more"


def test_a_slow_first_load_is_made_up_for_by_the_next():
    chooser = LoadChooser()
    chooser.prefill.note(1000, 1.0)
    for seconds in (10.0, 0.1):
        assert choose(chooser, way(10, 500)) is Outlook.LOAD
        chooser.from_memory.note(500 * MB, seconds)
    assert {choose(chooser, way(10, 500)) for _ in range(100)} == {Outlook.LOAD}


@pytest.mark.parametrize(("rule", "outlook"), [(LoadRule.ALWAYS, Outlook.LOAD), (LoadRule.NEVER, Outlook.COMPUTE)])
def test_rules_for_comparison(rule, outlook):
    assert choose(LoadChooser(rule), way(10, 500, reading_s=9.0)) is outlook


def test_a_line_has_a_latency_and_a_rate():
    line = MovingLine()
    assert line.seconds_for(100) == 0.0
    line.note(100, 1.0)
    assert line.seconds_for(200) == pytest.approx(2.0), "one measurement tells no latency"
    for amount in (100, 200, 1000) * 20:
        line.note(amount, 0.05 + amount / 500)
    assert line.seconds_for(600) == pytest.approx(1.25, rel=1e-3)
    for _ in range(100):
        line.note(100, 10.0)
        line.note(900, 10.0)
    assert line.seconds_for(600) == pytest.approx(10.0, rel=0.01)
    assert line.seconds_for(0) == 0.0


def test_amounts_that_are_near_to_one_another_tell_no_latency():
    """Chunks of 2,000 tokens, a little more or less: what took a little longer was noise, and no latency of 1.8 s."""
    line = MovingLine()
    for amount, seconds in ((1900, 1.99), (2100, 2.01)) * 10:
        line.note(amount, seconds)
    assert line.seconds_for(100) == pytest.approx(0.1, rel=0.01)
    for amount in (500, 2000) * 30:
        line.note(amount, 0.5 + amount / 1000)
    assert line.seconds_for(100) == pytest.approx(0.6, rel=0.01), "amounts far apart do"


def test_a_tier_that_has_become_quick_is_found_out_by_what_nobody_waits_for(chooser):
    """It was measured when it was slow. Probes are large enough to be noted, and tell its latency too."""
    line = MovingLine(least=LEAST_BYTES)
    line.note(100 * MB, 100.0)
    assert choose(chooser, way(10, 64, reading_s=line.seconds_for(64 * MB))) is Outlook.COMPUTE
    for count in probes(chooser, [LEAST_BYTES] * 9, seconds=0.1):
        line.note(count * LEAST_BYTES, 0.05 + count * LEAST_BYTES / (1000 * MB))
    assert line.seconds_for(64 * MB) == pytest.approx(0.114, rel=0.1)
    assert choose(chooser, way(10, 64, reading_s=line.seconds_for(64 * MB))) is Outlook.LOAD


def test_amounts_alike_leave_a_latency_as_it_was_known():
    """Probes of one chunk: the latency that larger reads have told is not taken for a low rate."""
    line = MovingLine()
    for amount in (100, 1000) * 10:
        line.note(amount, 0.05 + amount / 10_000)
    for _ in range(200):
        line.note(100, 0.06)
    assert line.seconds_for(1000) == pytest.approx(0.15, rel=0.01)
    for _ in range(200):
        line.note(100, 0.01)
    assert line.seconds_for(100) == pytest.approx(0.01), "unless it has become quicker than that"


def test_more_that_took_less_gives_no_negative_times():
    line = MovingLine()
    line.note(100, 2.0)
    line.note(1000, 1.0)
    assert line.seconds_for(10_000) > 0


@pytest.mark.parametrize("seconds", [1e-300, 1e-160, 1e160, 1e300, float("inf"), float("nan"), -1.0])
def test_a_time_that_no_clock_measures_is_no_measurement(seconds):
    line = MovingLine()
    line.note(100, seconds)
    assert not line.is_known
    line.note(100, 2.0)
    line.note(200, seconds)
    assert line.seconds_for(100) == pytest.approx(2.0)
