"""A router makes the choice between loading and computing that the engine makes, and what is loaded has a price."""

from random import Random

import pytest
from hypothesis import assume, given, strategies as st

from octavo.events import SHARED_MEDIA
from octavo.http import Load
from octavo.offload import LoadChooser, LoadSpeed, Outlook, Way
from octavo.router import Decisions, Placement, Prompt
from octavo.stores import RemoteSpec
from octavo.tiers import TIERS

TOKEN_S = 0.001
SECONDS = st.floats(0, 10)
POINTS = st.lists(st.integers(0, 5000), min_size=4, max_size=4).map(sorted).map(tuple)


def placed(engines, *, speeds=None, waiting=0):
    """A placement whose engines compute a thousand tokens a second."""
    placement = Placement(Random(0))
    for name in engines:
        placement.add(name)
    for _ in range(400):
        request = Prompt(num_tokens=10_000, resumes={})
        sent = placement.send(placement.choose(request, engines, 0.0), request, now=0.0)
        placement.first_token(sent, now=10_000 * TOKEN_S)
        placement.end(sent)
    told = {medium: LoadSpeed(*speed) for medium, speed in (speeds or {}).items()}
    for name in engines:
        placement.hear(name, Load(load_speeds=told, prefill_tokens=waiting))
    return placement


def price(loading_s, num_left, waiting):
    return max(loading_s, waiting * TOKEN_S) + num_left * TOKEN_S


@given(
    points=POINTS,
    left=st.integers(1, 1000),
    waiting=st.integers(0, 3000),
    speeds=st.lists(st.tuples(SECONDS, st.floats(0, 0.01)), min_size=3, max_size=3),
)
def test_the_choice_is_the_engines(points, left, waiting, speeds):
    assume(points[0] < points[-1])
    placement = placed(["a"], speeds=dict(zip(["memory", "disk", "redis"], speeds, strict=True)), waiting=waiting)
    num_tokens = points[-1] + left
    asked = Prompt(num_tokens=num_tokens, resumes={"a": points[-1]}, loads={"a": points})
    choice = placement.choose(asked, ["a"], 0.0)

    chooser = LoadChooser()
    chooser.prefill.note(1000, 1000 * TOKEN_S)
    parts = zip([LoadSpeed(*speed) for speed in speeds], points[:-1], points[1:], strict=True)
    loads = [speed.seconds_for(far - near) for speed, near, far in parts]
    whole, part = (
        Way(tokens_left=num_tokens - point, bytes_to_device=0, reading_s=reading_s, is_in_memory=False)
        for point, reading_s in ((points[3], sum(loads)), (points[1], loads[0]))
    )
    outlook = chooser.choose(
        whole,
        part if points[1] > points[0] else None,
        tokens_alone=num_tokens - points[0],
        tokens_ahead=waiting,
    )
    engines = {
        Outlook.LOAD: price(sum(loads), num_tokens - points[3], waiting),
        Outlook.LOAD_PART: price(loads[0], num_tokens - points[1], waiting),
        Outlook.COMPUTE: price(0.0, num_tokens - points[0], waiting),
    }[outlook]
    assert choice.resumed_tokens in points
    assert price(choice.loading_s, num_tokens - choice.resumed_tokens, waiting) == pytest.approx(engines, rel=0.01)
    assert choice.expected_s == pytest.approx(engines, rel=0.01)


@given(points=POINTS, left=st.integers(1, 1000), speeds=st.none() | st.tuples(SECONDS, st.floats(0, 0.01)))
def test_what_must_be_loaded_is_never_better_than_what_is_there(points, left, speeds):
    """Nor worse than nothing."""
    media = dict.fromkeys(["memory", "disk", "redis"], speeds) if speeds else {}
    placement = placed(["a", "b", "c"], speeds=media)
    num_tokens = points[-1] + left
    asked = Prompt(
        num_tokens=num_tokens,
        resumes=dict.fromkeys("ab", points[-1]),
        loads={"a": points} if points[0] < points[-1] else {},
    )
    loading, there, nothing = (placement.way(asked, name).first_token_s for name in "abc")
    assert there <= loading * 1.0001
    assert loading <= nothing * 1.0001


def test_the_engine_that_has_it_on_its_device_gets_the_request():
    placement = placed(["disk", "device"])
    asked = Prompt(num_tokens=4100, resumes={"disk": 4096, "device": 4096}, loads={"disk": (0, 0, 4096, 4096)})
    assert {placement.choose(asked, ["disk", "device"], 0.0).engine for _ in range(20)} == {"device"}


def test_loads_that_were_sent_there_queue():
    placement = placed(["a", "b"], speeds={"disk": (0.0, TOKEN_S / 2)})
    asked = Prompt(num_tokens=4100, resumes=dict.fromkeys("ab", 4096), loads=dict.fromkeys("ab", (0, 0, 4096, 4096)))
    first = placement.choose(asked, ["a"], 0.0)
    sent = placement.send(first, asked, now=0.0)
    assert first.loading_s == pytest.approx(2.048)
    assert placement.way(asked, "a").first_token_s == pytest.approx(2 * 2.048, rel=0.01)
    assert placement.choose(asked, ["a", "b"], 0.0).engine == "b"
    placement.first_token(sent, now=2.1)
    placement.end(sent)
    assert placement.loads["a"].loading_s == pytest.approx(0.0)
    assert placement.way(asked, "a") == placement.way(asked, "b")


def test_a_decision_tells_what_is_resumed_and_not_what_is_too_slow_to_load():
    placement = placed(["a", "b"], speeds={"disk": (0.0, 2 * TOKEN_S)})
    asked = Prompt(num_tokens=4200, resumes={"a": 4000, "b": 4000}, loads={"a": (1000, 1000, 4000, 4000)})
    decisions = Decisions()
    decisions.add("/", asked, placement.choose(asked, ["a"], 0.0))
    assert decisions.last[0].resumes == {"a": 1000, "b": 4000}
    assert decisions.num_expected_tokens == 1000


def test_an_engine_that_loads_seems_no_slower():
    placement = placed(["a"], speeds={"disk": (0.0, TOKEN_S / 2)})
    asked = Prompt(num_tokens=4200, resumes={"a": 4000}, loads={"a": (0, 0, 4000, 4000)})
    for _ in range(100):
        sent = placement.send(placement.choose(asked, ["a"], 0.0), asked, now=0.0)
        placement.first_token(sent, now=2.2)
        placement.end(sent)
    assert placement.loads["a"].rate == pytest.approx(1 / TOKEN_S, rel=0.01)


def test_an_engine_whose_loads_queue_seems_no_slower():
    placement = placed(["a"], speeds={"disk": (0.0, TOKEN_S / 2)})
    asked = Prompt(num_tokens=4200, resumes={"a": 4000}, loads={"a": (0, 0, 4000, 4000)})
    for _ in range(100):
        both = [placement.send(placement.choose(asked, ["a"], 0.0), asked, now=0.0) for _ in range(2)]
        for sent, now in zip(both, (2.2, 4.2), strict=True):
            placement.first_token(sent, now=now)
            placement.end(sent)
    assert placement.loads["a"].rate == pytest.approx(1 / TOKEN_S, rel=0.01)


def test_of_media_that_are_equally_far_the_slowest_counts():
    slow, quick = (0.0, TOKEN_S / 2), (0.0, TOKEN_S / 100)
    asked = Prompt(num_tokens=4100, resumes={"a": 4096}, loads={"a": (0, 0, 0, 4096)})
    for speeds in ({"redis": slow, "objects": quick}, {"objects": quick, "redis": slow}):
        assert placed(["a"], speeds=speeds).choose(asked, ["a"], 0.0).loading_s == pytest.approx(2.048)


def test_stores_are_known_by_the_names_of_their_tiers():
    assert {name for name in TIERS.names() if issubclass(TIERS.find(name), RemoteSpec)} == SHARED_MEDIA
