"""Which requests may load before they run, beside a device that is as naive as can be."""

import random
from dataclasses import dataclass

import pytest

from octavo.specs import ceil_div
from octavo.vllm_plugin.loads_ahead import LoadsAhead
from octavo.vllm_plugin.ranks import DeviceGroup, DeviceReport

PAGE = 16
WHOLE = DeviceGroup(tokens_per_page=PAGE, most_pages=16)
WINDOW = DeviceGroup(tokens_per_page=PAGE, most_pages=5)
DEVICE = DeviceReport(num_pages=21, groups=(WHOLE, WINDOW))
"""Room for the longest request."""


def test_all_that_load_ahead_fit_together():
    ahead = LoadsAhead(DEVICE)
    assert ahead.may_load("a", 8 * PAGE)
    ahead.begins("a", 8 * PAGE)  # 8 and 5 pages
    assert not ahead.may_load("b", 5 * PAGE), "5 and 5 more"
    ahead.end_step({"a"}.__contains__)
    assert ahead.may_load("b", 4 * PAGE), "4 and 4"


def test_one_may_always_load():
    """vLLM may know better what fits."""
    assert LoadsAhead(DeviceReport(num_pages=20, groups=(WHOLE, WINDOW))).may_load("a", 16 * PAGE)


def test_who_runs_makes_room():
    ahead = LoadsAhead(DEVICE)
    ahead.begins("a", 16 * PAGE)
    assert not ahead.may_load("b", PAGE)
    ahead.end_step(set().__contains__)
    assert ahead.may_load("b", PAGE)


def test_nobody_is_let_past_the_one_who_finds_no_room():
    ahead = LoadsAhead(DEVICE)
    ahead.begins("a", 7 * PAGE)
    assert not ahead.may_load("b", 5 * PAGE)
    assert not ahead.may_load("c", PAGE)
    ahead.end_step({"a"}.__contains__)
    assert ahead.may_load("c", PAGE), "in a step in which it is asked first"


def test_a_request_is_not_held_up_by_itself():
    """Its load has failed, and it asks again."""
    ahead = LoadsAhead(DEVICE)
    ahead.begins("a", 16 * PAGE)
    assert ahead.may_load("a", 16 * PAGE)


def test_tokens_that_are_guessed_ahead_have_pages():
    ahead = LoadsAhead(DeviceReport(num_pages=21, groups=(WHOLE, WINDOW), tokens_ahead=3))
    ahead.begins("a", 7 * PAGE)
    assert not ahead.may_load("b", 4 * PAGE)


def test_where_the_device_is_not_known_all_may_load():
    ahead = LoadsAhead(None)
    ahead.begins("a", 1000 * PAGE)
    assert ahead.may_load("b", 1000 * PAGE)


@dataclass(eq=False)
class Request:
    """It loads the first pages of each group, and needs all that it ever holds to run."""

    pages: int
    loaded: int
    waits_with_pages: bool = False


@pytest.mark.parametrize("seed", range(30))
def test_on_a_device_that_is_too_small_every_request_runs(seed):
    source = random.Random(seed)
    ahead, waiting, num_run = LoadsAhead(DEVICE), [], 0
    for _ in range(40):
        tokens = source.randint(1, 16) * PAGE
        pages = sum(min(ceil_div(tokens, PAGE), group.most_pages) for group in DEVICE.groups)
        waiting.append((Request(pages, source.randint(1, pages)), tokens))
    for _ in range(200):
        free = DEVICE.num_pages - sum(r.loaded for r, _ in waiting if r.waits_with_pages)
        for request, tokens in list(waiting):
            if request.waits_with_pages:
                if request.pages - request.loaded <= free and source.random() < 0.7:  # else it still loads
                    request.waits_with_pages = False
                    waiting.remove((request, tokens))
                    free -= request.pages - request.loaded
                    num_run += 1
            elif request.loaded <= free and ahead.may_load(request, tokens):
                ahead.begins(request, tokens)
                request.waits_with_pages = True
                free -= request.loaded
        ahead.end_step(lambda request: request.waits_with_pages)
    assert num_run == 40
