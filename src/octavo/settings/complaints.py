"""One sentence, with key, value and remedy, for each of msgspec's errors: of configurations and of requests' bodies."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from octavo.settings.values import DESCRIPTIONS
from octavo.settings.words import shown, unknown_name

_UNQUOTED = (int, float)
"""What YAML and JSON make of a text without quotes: true is an int, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What is wrong with one value of a configuration, or of a request."""

    key: str
    """Where it stands: `tiers[0].size`. Empty for the whole."""
    sentence: str


def explain(
    error: msgspec.ValidationError, config: object, kind: Any, *, key: str = "", whole: str = "this"
) -> Complaint:
    """The sentence for one of msgspec's errors: `config` was read as `kind`, and stands at `key`; all of it is called
    `whole`."""
    message = str(error)
    place = _find_place(message, config, kind, key)
    if isinstance(error.__cause__, ValueError):  # a reader's own words
        return Complaint(key=place.key, sentence=_at(place.key, str(error.__cause__)))
    if unknown := re.match(r"Object contains unknown field `(.*?)`", message):
        return Complaint(key=place.key, sentence=_at(place.key, _unknown(unknown[1], place.kind)))
    if missing := re.match(r"Object missing required field `(.*?)`", message):
        place = place.at_field(missing[1])
        return Complaint(key=place.key, sentence=f"{place.key} is missing; give {describe(place.kind)}")
    if "at `key` in" in message:
        return Complaint(key=place.key, sentence=f"the keys of {place.key} must be text")
    value = "what was given" if _is_secret(inspect.type_info(place.kind)) else shown(place.value)
    kind = describe(place.kind)
    remedy = "; put it in quotes" if kind == "text" and isinstance(place.value, _UNQUOTED) else ""
    return Complaint(key=place.key, sentence=f"{place.key or whole} must be {kind}, not {value}{remedy}")


def describe(kind: Any) -> str:
    """A type as a person knows it: `a whole number from 1 to 64`."""
    return _describe(inspect.type_info(kind))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: goes step by step into a configuration and its type."""

    kind: Any
    value: Any
    key: str

    def at_field(self, name: str) -> "_Place":
        field = next(field for field in _fields(self.kind) if field.encode_name == name)
        value = self.value.get(name) if isinstance(self.value, Mapping) else None
        return _Place(field.type, value, f"{self.key}.{name}" if self.key else name)

    def at_item(self, index: int) -> "_Place":
        kind = next((kind for kind in _alternatives(self.kind) if get_origin(kind) in (list, tuple)), None)
        if kind is None:  # a named tuple, which is described whole
            return self
        return _Place(get_args(kind)[0], self.value[index], f"{self.key}[{index}]")

    def at_wrong_value(self) -> "_Place":
        """msgspec does not say which value of a mapping it refused: the first that it refuses again."""
        kind = next(kind for kind in _alternatives(self.kind) if get_origin(kind) is dict)
        of_value = get_args(kind)[1]
        name, value = next((name, value) for name, value in self.value.items() if not _fits(value, of_value))
        return _Place(of_value, value, f"{self.key}.{name}")


def _find_place(message: str, config: object, kind: Any, key: str) -> _Place:
    place = _Place(kind, config, key)
    path = re.search(r"`\$(?P<path>[^`]*)`$", message)
    for field, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path["path"] if path else ""):
        if field:
            place = place.at_field(field)
        else:
            place = place.at_wrong_value() if index == "..." else place.at_item(int(index))
    return place


def _alternatives(kind: Any) -> Iterator[Any]:
    """The types of a union, without their constraints."""
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _alternatives(member)
    else:
        yield kind


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _unknown(name: str, kind: Any) -> str:
    return unknown_name("setting", name, [field.encode_name for field in _fields(kind)])


def _fields(kind: Any) -> Iterator[msgspec.structs.FieldInfo]:
    """The fields of a struct type, which may be optional."""
    for one in _alternatives(kind):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            yield from msgspec.structs.fields(one)


def _at(key: str, sentence: str) -> str:
    return f"{key}: {sentence}" if key else sentence


def _describe(kind: inspect.Type) -> str:  # noqa: C901, PLR0911 - one answer for each kind
    match kind:
        case inspect.Metadata(extra_json_schema={"description": str(text)}):
            return text
        case inspect.Metadata(type=inner):
            return _describe(inner)
        case inspect.IntType(ge=least, le=most):
            return "a whole number" + _bounds(least, most)
        case inspect.FloatType(ge=least, le=most):
            return "a number" + _bounds(least, most)
        case inspect.BoolType():
            return "true or false"
        case inspect.EnumType(cls=names):
            return f"one of: {', '.join(str(member.value) for member in names)}"
        case inspect.LiteralType(values=names):
            return f"one of: {', '.join(map(str, names))}"
        case inspect.UnionType(types=types):
            return " or ".join(_describe(one) for one in types if not isinstance(one, inspect.NoneType))
        case inspect.ListType() | inspect.VarTupleType():
            return "a list"
        case inspect.DictType() | inspect.StructType():
            return "a mapping"
        case inspect.CustomType(cls=cls):
            return DESCRIPTIONS.get(cls, f"what makes {cls.__name__}")
        case _:
            return "text"


def _is_secret(kind: inspect.Type) -> bool:
    """Whether values of the type are shown nowhere."""
    match kind:
        case inspect.Metadata(extra=extra, type=inner):
            return bool((extra or {}).get("is_secret")) or _is_secret(inner)
        case inspect.UnionType(types=types):
            return any(map(_is_secret, types))
        case _:
            return False


def _bounds(least: float | None, most: float | None) -> str:
    match least, most:
        case None, None:
            return ""
        case _, None:
            return f" of {least:.15g} or more"
        case None, _:
            return f" of {most:.15g} or less"
        case _:
            return f" from {least:.15g} to {most:.15g}"
