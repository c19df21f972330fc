"""What a router says of an engine that it cannot reach, or whose blocks it does not see."""

import logging

import pytest

from octavo.router.address import EngineAddress
from octavo.router.member import Member


@pytest.fixture
def member(caplog):
    caplog.set_level(logging.INFO)
    return Member(address=EngineAddress.parse("http://10.0.0.5:8000"), lost="")


def test_what_it_does_not_see_outlasts_a_loss(member):
    member.go_blind("it publishes no events")
    member.lose("GET /health: no answer")
    assert (member.is_reachable, member.problem) == (False, "GET /health: no answer")
    member.lost = ""
    assert (member.is_reachable, member.problem) == (True, "it publishes no events")


def test_each_problem_is_logged_when_it_begins(member, caplog):
    for _ in range(3):
        member.lose("GET /health: no answer")
        member.go_blind("it publishes no events")
    assert [record.getMessage() for record in caplog.records] == [
        "engine 10.0.0.5:8000 is lost: GET /health: no answer",
        "engine 10.0.0.5:8000: it publishes no events",
    ]
    member.lost = member.blind = ""
    member.lose("GET /health: no answer")
    assert len(caplog.records) == 3


def test_an_engine_that_is_gone_is_told_once_whatever_it_was_asked(member, caplog):
    for question in ("GET /health: ", "GET /engine: ", "", "GET /health: "):
        member.lose(f"{question}All connection attempts failed")
    assert member.problem == "GET /health: All connection attempts failed"
    member.lose("GET /engine: it answers 401 Unauthorized")
    assert [record.getMessage() for record in caplog.records] == [
        "engine 10.0.0.5:8000 is lost: GET /health: All connection attempts failed",
        "engine 10.0.0.5:8000 is lost: GET /engine: it answers 401 Unauthorized",
    ]
