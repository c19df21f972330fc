"""A small text file that a person names, read whole or refused in one line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from octavo.errors import InputError
from octavo.settings.words import shown

MAX_FILE_BYTES = 16 * 2**20
"""Configs of the largest models have some tens of kilobytes."""


def read_text_file(path: Path, error: type[InputError]) -> str:
    """The file's text; `error` makes the error that says why it cannot be read."""
    try:
        if not path.exists():
            raise error(f"{path}: no such file")
        if not path.is_file():
            raise error(f"{path}: not a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as cause:  # ValueError: a null byte in the path
        raise error(f"{str(path)!r} cannot be read: {getattr(cause, 'strerror', None) or cause}") from cause
    if len(content) > MAX_FILE_BYTES:
        raise error(f"{path}: larger than {MAX_FILE_BYTES} bytes, so hardly what it should be")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise error(f"{path}: not UTF-8 text ({cause})") from cause


def read_yaml_file(path: Path, *, holds: str, as_written: bool = False) -> Mapping[object, object]:
    """The keys and values of a file that a person wrote; `holds` names its content. With `as_written` each value that
    is neither text nor null is a `Written`."""
    text = read_text_file(path, InputError)
    try:
        document: object = yaml.load(text, _WrittenReader) if as_written else load_yaml(text)  # noqa: S506 - a safe one
    except RecursionError:
        raise InputError(f"{path}: nested too deeply to be {holds}") from None
    except (yaml.YAMLError, ValueError) as cause:  # ValueError: a number that is too long, or no !!int
        problem = " ".join(str(cause).replace('in "<unicode string>", ', "at ").split())
        raise InputError(f"{path}: not valid YAML: {problem}") from cause
    if document is None:
        raise InputError(f"{path}: is empty; it must hold keys and values with {holds}")
    if not isinstance(document, dict):
        raise InputError(f"{path}: must hold keys and values with {holds}, not {shown(without_texts(document))}")
    return document


def load_yaml(text: str | bytes) -> object:
    """What a person wrote. Raises yaml.YAMLError, ValueError (a number that is too long), or RecursionError."""
    return yaml.load(text, _YamlReader)  # noqa: S506 - a safe one


@dataclass(frozen=True, slots=True)
class Written:
    """A value of a YAML file with its text there, such as 12 of `012`: who wants text wants this one."""

    value: object
    text: str


def without_texts(value: object) -> Any:
    """The value of what was read `as_written`."""
    match value:
        case Written():
            return value.value
        case dict():
            return {key: without_texts(one) for key, one in value.items()}
        case list():
            return [without_texts(one) for one in value]
        case _:
            return value


class KeyStandsTwiceError(yaml.constructor.ConstructorError):
    """A mapping has a key twice."""


_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))
_INT_TEXT = re.compile(r"[-+]?(?:[0-9]+|0x[0-9a-fA-F]+)$")
_FLOAT_TEXT = re.compile(
    r"(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_NUMBERS = {_INT: _INT_TEXT, _FLOAT: _FLOAT_TEXT}


class _YamlReader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, where YAML's readers silently take the last value. Numbers are
    decimal, or hexadecimal after 0x. To YAML 1.1, 010 is 8, 1:30 is 90, and 0b11 is 3: here the first is 10, and the
    others are text. So is a date, which nothing here takes."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Decimal whatever zeros it begins with."""
        text = self.construct_scalar(node)
        return int(text, 16 if "x" in text else 10)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if (key.tag, key.value) in seen:
                raise KeyStandsTwiceError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


_YamlReader.add_constructor(_INT, _YamlReader.construct_yaml_int)
_YamlReader.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers if tag != _DATE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _WrittenReader(_YamlReader):
    """Keeps the text of each value that is no text, and no null."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        value = super().construct_object(node, deep=deep)
        is_other = isinstance(node, yaml.ScalarNode) and not isinstance(value, str | None)
        return Written(value, node.value) if is_other else value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        return {without_texts(key): value for key, value in super().construct_mapping(node, deep=deep).items()}
