"""What clients hint in `kv_transfer_params`."""

import pytest

from octavo.chunks import Hint, HintKind
from octavo.errors import InputError
from octavo.vllm_plugin.hints import read_hints

RETAIN = Hint(kind=HintKind.RETAIN, lifetime_s=7200.0)


@pytest.mark.parametrize("params", [None, {}, {"max_load_tokens": 5}, {"octavo": None}, {"octavo": {}}])
def test_nothing_is_hinted(params):
    assert read_hints(params) == ()


def test_hints_in_the_order_in_which_they_are_heeded():
    assert read_hints({"octavo": {"retain": "2h"}}) == (RETAIN,)
    everything = {"octavo": {"demote": True, "retain": "2h", "release": True}}
    assert read_hints(everything) == (Hint(kind=HintKind.RELEASE), RETAIN, Hint(kind=HintKind.DEMOTE))
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
