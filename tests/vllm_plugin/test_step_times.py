"""How long steps take in which prompts are computed, with one or two of them in flight."""

from octavo.vllm_plugin.step_times import StepTimes, count_prompt_tokens


def noted(*calls):
    """What is noted of `(name, arguments)` in this order."""
    seen = []
    steps = StepTimes(lambda tokens, seconds: seen.append((tokens, seconds)))
    for name, *arguments in calls:
        getattr(steps, name)(*arguments)
    return seen


def test_a_step_takes_from_its_schedule_to_its_output():
    assert noted(
        ("scheduled", 500, 1.0),
        ("ended", 1.5),
        ("scheduled", 0, 1.5),  # it decodes only
        ("ended", 2.0),
        ("scheduled", 300, 10.0),  # the engine was idle
        ("ended", 10.25),
    ) == [(500, 0.5), (300, 0.25)]


def test_a_step_that_is_scheduled_early_begins_when_the_one_before_has_ended():
    assert noted(
        ("scheduled", 500, 1.0),
        ("scheduled", 200, 1.125),
        ("ended", 1.5),
        ("scheduled", 100, 1.5),
        ("ended", 1.75),
        ("ended", 2.0),
    ) == [(500, 0.5), (200, 0.25), (100, 0.25)]


def test_an_end_without_a_step_is_none():
    assert noted(("ended", 1.0), ("scheduled", 10, 2.0), ("ended", 3.0)) == [(10, 1.0)]


def test_tokens_of_prompts_and_not_those_that_decoding_takes():
    assert count_prompt_tokens({"a": 1, "b": 1}, {}) == 0
    assert count_prompt_tokens({"a": 1, "b": 512, "c": 90}, {}) == 602
    assert count_prompt_tokens({"a": 4, "b": 3}, {"a": [7, 8, 9], "b": [7, 8]}) == 0
    assert count_prompt_tokens({"a": 4, "b": 512}, {"a": [7, 8, 9]}) == 512
