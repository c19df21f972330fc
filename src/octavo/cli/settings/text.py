"""Reads text from a command line, a variable or a file as a setting's value: `2m` for seconds, `32k` for tokens."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, get_args, get_origin

import msgspec
import yaml
from msgspec import inspect

from octavo.errors import InputError
from octavo.settings import KeyStandsTwiceError, load_yaml, shown
from octavo.units import parse_bytes, parse_seconds, parse_tokens

_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_READERS: Mapping[str, Callable[[str], float]] = MappingProxyType(
    {
        "_bytes": parse_bytes,
        "_seconds": parse_seconds,
        "_s": parse_seconds,
        "_tokens": parse_tokens,
        "_len": parse_tokens,
    }
)
"""The reader for each unit with which a field's name can end."""
_PARSED = (inspect.IntType, inspect.FloatType, inspect.DictType, inspect.ListType, inspect.VarTupleType)


def read_text(field: msgspec.structs.FieldInfo, text: str) -> Any:
    """The value of the text, which still has to be checked. InputError says how to write it."""
    if field.type is bool:
        if text.lower() not in _SWITCH:
            raise InputError(f"{shown(text)} is neither true nor false")
        return _SWITCH[text.lower()]
    if text.endswith("%"):
        return text
    for unit, read in _READERS.items():
        if field.name.endswith(unit):
            number = read(text)
            return int(number) if float(number).is_integer() else number  # a whole number will do for both kinds
    kind = field.type
    if is_list_of_text(kind):
        return [part.strip() for part in text.split(",") if part.strip()]
    is_parsed = any(isinstance(one, _PARSED) for one in kinds_of(kind))
    return _parsed(text) if is_parsed else text  # text, paths, sizes and choices


def is_list_of_text(kind: Any) -> bool:
    """Whether it is a list, whose members commas separate in text."""
    return get_origin(kind) is tuple and get_args(kind)[0] is str


def kinds_of(kind: Any) -> Iterator[inspect.Type]:
    """A type and its members, each with and without its annotations."""
    yield from _with_members(inspect.type_info(kind))


def _with_members(info: inspect.Type) -> Iterator[inspect.Type]:
    yield info
    match info:
        case inspect.Metadata(type=inner):
            yield from _with_members(inner)
        case inspect.UnionType(types=members):
            for member in members:
                yield from _with_members(member)


def _parsed(text: str) -> Any:
    """Numbers, lists and maps are written as in a file."""
    try:
        return load_yaml(text) if text.strip() else text
    except KeyStandsTwiceError as error:
        raise InputError(f"{shown(text)}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
