"""What clients hint in `kv_transfer_params`, and routers in vLLM's envelope."""

from types import SimpleNamespace
from typing import Any

import pytest

from octavo.chunks import Hint, HintKind
from octavo.errors import InputError
from octavo.vllm_plugin.hints import read_hints

RELEASE, DEMOTE = Hint(kind=HintKind.RELEASE), Hint(kind=HintKind.DEMOTE)
RETAIN = Hint(kind=HintKind.RETAIN, lifetime_s=7200.0)


@pytest.mark.parametrize("params", [None, {}, {"max_load_tokens": 5}, {"octavo": None}, {"octavo": {}}])
def test_nothing_is_hinted(params):
    assert read_hints(params) == ()


def test_hints_in_the_order_in_which_they_are_heeded():
    assert read_hints({"octavo": {"retain": "2h"}}) == (RETAIN,)
    everything = {"octavo": {"demote": True, "retain": "2h", "release": True}}
    assert read_hints(everything) == (RELEASE, RETAIN, DEMOTE)
    assert read_hints({"octavo": {"demote": False}}) == ()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"retain": "2 weeks"}, "retain must be a time up to 168h such as 300s, 10m or 2h, not '2 weeks'"),
        ({"retain": "169h"}, "up to 168h"),
        ({"retain": "0s"}, "up to 168h"),
        ({"retain": 7200}, "retain"),
        ({"retian": "2h"}, "retian"),
        ({"demote": "yes"}, "demote"),
        ("2h", "octavo"),
        (["retain"], "octavo"),
    ],
)
def test_a_wrong_hint_is_named(asked, message):
    with pytest.raises(InputError, match=r'kv_transfer_params\["octavo"\]') as error:
        read_hints({"octavo": asked})
    assert message in str(error.value)
    assert len(str(error.value)) < 300


def envelope(*payloads: Any, action_type: str = "octavo", version: str = "1.0") -> SimpleNamespace:
    actions = [SimpleNamespace(action_type=action_type, action_version=version, payload=each) for each in payloads]
    return SimpleNamespace(actions=actions)


def test_an_envelope_says_the_same():
    assert read_hints(None, envelope({"demote": True}, {"retain": "2h"})) == (RETAIN, DEMOTE)
    assert read_hints({"octavo": {"retain": "2h"}}, envelope({"release": True})) == (RELEASE, RETAIN)
    assert read_hints(None, envelope({"retain": "2h"}, version="1")) == (RETAIN,)


@pytest.mark.parametrize("said", [None, envelope(), envelope({}), envelope({"keys": [1]}, action_type="kv.fetch")])
def test_nothing_is_hinted_in_an_envelope(said):
    assert read_hints(None, said) == ()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (envelope({"retain": "for ever"}), "retain must be a time up to 168h such as 300s, 10m or 2h, not 'for ever'"),
        (envelope({"retian": "2h"}), "retian"),
        (envelope({"retain": "2h"}, version="2.0"), "has version '2.0': send version 1"),
    ],
)
def test_a_wrong_action_is_named(said, message):
    with pytest.raises(InputError, match='kv_hints: action "octavo"') as error:
        read_hints({"octavo": {"retain": "2h"}}, said)
    assert message in str(error.value)
