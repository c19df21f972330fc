"""A client that invents names without end fills neither the log nor memory."""

import msgspec

from octavo.server.ignored_fields import IgnoredFields


class Body(msgspec.Struct):
    prompt: str


def test_the_log_is_bounded(caplog):
    fields = IgnoredFields()
    for number in range(100):
        names = fields.find(msgspec.json.encode({"prompt": "a", f"x{number}": 1}), Body("a"))
        assert names == [f"x{number}"]
        fields.log(names)
    assert len(caplog.messages) == 65
    assert caplog.messages[-1] == "more ignored fields are told to the clients only"
