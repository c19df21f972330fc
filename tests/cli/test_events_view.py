"""Lines of `octavo events tail`."""

import json

import pytest

from octavo.cli.commands.events.view import lines
from octavo.events import Heard, Silence


@pytest.mark.parametrize(
    ("item", "line", "of_json"),
    [
        (
            Silence(silent_s=30.04, topic="kv", endpoint="tcp://a:1"),
            "SILENCE of kv: nothing for 30 s; it has ended, hangs, or cannot be reached",
            {"type": "Silence", "topic": "kv", "silent_s": 30.0},
        ),
        (
            Heard(endpoint="tcp://a:1"),
            "HEARD tcp://a:1 again; it has nothing new to tell",
            {"type": "Heard", "topic": ""},
        ),
    ],
)
def test_silence_and_its_end_are_shown(item, line, of_json):
    assert list(lines(item, group=None, as_json=False)) == [line]
    assert [json.loads(told) for told in lines(item, group=0, as_json=True)] == [of_json]
