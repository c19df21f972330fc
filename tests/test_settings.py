"""One sentence for each mistake in a configuration: the key, the value and the remedy."""

import math
import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from octavo.errors import InputError
from octavo.settings import Seconds, Secret, Settings, Size, explain


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(Settings, frozen=True, kw_only=True):
    what = "lamp"
    watts: Annotated[int, Meta(ge=1, le=100)] = 40


class House(Settings, frozen=True, kw_only=True):
    what = "house"
    path: Path
    size_bytes: Size = msgspec.field(name="size", default=1)
    wait_s: Seconds = 1.0
    floors: Annotated[int, Meta(ge=1)] = 1
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    colour: Colour = Colour.RED
    is_open: bool = False
    lamps: tuple[Inner, ...] = ()
    rooms: dict[str, Annotated[int, Meta(ge=1, le=9)]] | Annotated[int, Meta(ge=1, le=9)] = 1
    name: str | None = None
    guests: tuple[str, ...] = ()
    porch: Inner | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name == "" and self.is_open:
            raise InputError("an open house needs a name")


GOOD = {"path": "/a"}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "house: path is missing; give a path"),
        ({"path": 3}, "house: path: 3 is not a path"),
        ({"path": ""}, "house: path: '' is not a path"),
        (
            {"path": "~no.such.user/a"},
            "house: path: '~no.such.user/a': that home directory is not known; write the whole",
        ),
        ({"path": "/a\0b"}, "house: path holds what is not UTF-8, or a NUL; write plain text"),
        (GOOD | {"name": "\udcff"}, "house: name holds what is not UTF-8, or a NUL; write plain text"),
        (GOOD | {"guests": "\ud800"}, "house: a value holds what is not UTF-8, or a NUL; write plain text"),
        (GOOD | {"name": "a\0"}, "house: name holds what is not UTF-8, or a NUL; write plain text"),
        (GOOD | {"guests": ["a", "\ud800"]}, "house: guests holds what is not UTF-8, or a NUL; write plain text"),
        (GOOD | {"size": "8 apples"}, "house: size: '8 apples' is not a size; write it like 40GiB, 512MiB or 80GB"),
        (GOOD | {"size": 0}, "house: size: 0 is not a size; write it like 40GiB, 512MiB or 80GB"),
        (GOOD | {"size": True}, "house: size: true is not a size; write it like 40GiB, 512MiB or 80GB"),
        (GOOD | {"sise": 1}, "house: unknown setting 'sise'; did you mean 'size'? there are: path, size, "),
        (GOOD | {"zzz": 1}, "house: unknown setting 'zzz'; there are: path, size, wait_s, floors, "),
        (GOOD | {"wait_s": 0}, "house: wait_s must be a number of seconds above 0, at most 1000000000, not 0"),
        (GOOD | {"wait_s": math.inf}, "house: wait_s must be a number of seconds above 0, at most 1000000000, not inf"),
        (GOOD | {"wait_s": math.nan}, "house: wait_s must be a number of seconds above 0, at most 1000000000, not nan"),
        (GOOD | {"wait_s": "1"}, "house: wait_s must be a number of seconds above 0, at most 1000000000, not '1'"),
        (GOOD | {"floors": 0}, "house: floors must be a whole number of 1 or more, not 0"),
        (GOOD | {"floors": True}, "house: floors must be a whole number of 1 or more, not true"),
        (GOOD | {"floors": None}, "house: floors must be a whole number of 1 or more, not null"),
        (GOOD | {"rooms": 10**5000}, "house: rooms must be a mapping or a whole number from 1 to 9, not a number of"),
        (GOOD | {"share": 2}, "house: share must be a number from 0 to 1, not 2"),
        (GOOD | {"colour": "green"}, "house: colour must be one of: red, blue, not 'green'"),
        (GOOD | {"is_open": "yes"}, "house: is_open must be true or false, not 'yes'"),
        (GOOD | {"name": 3}, "house: name must be text, not 3; put it in quotes"),
        (GOOD | {"name": [3]}, "house: name must be text, not [3]"),
        (GOOD | {"lamps": {}}, "house: lamps must be a list, not {}"),
        (GOOD | {"lamps": [3]}, "house: lamps[0] must be a mapping, not 3"),
        (GOOD | {"lamps": [{}, {"watts": 101}]}, "house: lamps[1].watts must be a whole number from 1 to 100, not 101"),
        (GOOD | {"porch": {"wats": 1}}, "house: porch: unknown setting 'wats'; did you mean 'watts'?"),
        (GOOD | {"lamps": [{"wats": 1}]}, "house: lamps[0]: unknown setting 'wats'; did you mean 'watts'?"),
        (GOOD | {"rooms": {"a": 1, "b": 10}}, "house: rooms.b must be a whole number from 1 to 9, not 10"),
        (GOOD | {"rooms": "all"}, "house: rooms must be a mapping or a whole number from 1 to 9, not 'all'"),
        (GOOD | {"rooms": {3: 1}}, "house: the keys of rooms must be text"),
        (GOOD | {"name": "", "is_open": True}, "house: an open house needs a name"),
        ([1], "house: this must be a mapping, not [1]"),
        (GOOD | {"colour": "g" * 1000}, "house: colour must be one of: red, blue, not 'gggg"),
    ],
)
def test_mistakes(config, sentence):
    with pytest.raises(InputError) as refused:
        House.from_mapping(config)
    assert str(refused.value).startswith(sentence)
    assert len(str(refused.value)) < 300


def test_a_path_is_bytes_as_the_file_system_has_them():
    assert House(path=Path("/a\udcff")).path == Path("/a\udcff")


def test_good_values_are_converted():
    house = House.from_mapping({"path": "~/a", "size": "2KiB", "wait_s": 3, "lamps": [{"watts": 5}], "colour": "blue"})
    assert (house.path, house.size_bytes, house.wait_s) == (Path("~/a").expanduser(), 2048, 3.0)
    assert (house.lamps, house.colour) == ((Inner(watts=5),), Colour.BLUE)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"floors": 0}, "floors must be a whole number of 1 or more, not 0"),
        ({"size_bytes": "many"}, "size: 'many' is not a size"),
        ({"lamps": [{"watts": 0}]}, "lamps[0].watts must be a whole number from 1 to 100, not 0"),
        ({"name": "", "is_open": True}, "an open house needs a name"),
    ],
)
def test_values_given_in_python_are_checked_too(values, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        House(path=Path("/a"), **values)
    size = House(path=Path("/a"), size_bytes="1MiB").size_bytes
    assert (size, type(size)) == (1 << 20, int)  # msgspec encodes no subclass


def test_a_secret_stands_in_no_complaint():
    class Door(Settings, frozen=True, kw_only=True):
        key: Secret | None = None

    with pytest.raises(InputError, match=r"^key must be text, not what was given; put it in quotes$"):
        Door.from_mapping({"key": 12345})


def test_a_body_is_explained_as_a_configuration_is():
    kind = dict[str, list[str | list[int]]]
    body = b'{"prompt": ["a", [1, "b"]]}'

    class Body(msgspec.Struct):
        prompt: str | list[str | list[int]]

    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=Body)
    complaint = explain(refused.value, msgspec.json.decode(body), Body)
    assert (complaint.key, complaint.sentence) == ("prompt[1][1]", "prompt[1][1] must be a whole number, not 'b'")
    assert msgspec.json.decode(b"{}", type=kind) == {}
