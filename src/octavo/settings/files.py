"""A small text file that a person names, read whole or refused in one line."""

from collections.abc import Mapping
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
        raise error(f"{str(path)!r} cannot be read: {cause}") from cause
    if len(content) > MAX_FILE_BYTES:
        raise error(f"{path}: larger than {MAX_FILE_BYTES} bytes, so hardly what it should be")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise error(f"{path}: not UTF-8 text ({cause})") from cause


def read_yaml_file(path: Path, *, holds: str) -> Mapping[object, object]:
    """The keys and values of a file that a person wrote; `holds` names its content."""
    text = read_text_file(path, InputError)
    try:
        document: object = load_yaml(text)
    except RecursionError:
        raise InputError(f"{path}: nested too deeply to be {holds}") from None
    except (yaml.YAMLError, ValueError) as cause:  # ValueError: an impossible date, a number that is too long
        raise InputError(f"{path}: not valid YAML: {' '.join(str(cause).split())}") from cause
    if document is None:
        raise InputError(f"{path}: is empty; it must hold keys and values with {holds}")
    if not isinstance(document, dict):
        raise InputError(f"{path}: must hold keys and values with {holds}, not {shown(document)}")
    return document


def load_yaml(text: str | bytes) -> object:
    """What a person wrote. Raises yaml.YAMLError, ValueError (an impossible date), or RecursionError."""
    return yaml.load(text, _YamlReader)  # noqa: S506 - a safe one


class KeyStandsTwiceError(yaml.constructor.ConstructorError):
    """A mapping has a key twice."""


class _YamlReader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, where YAML's readers silently take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if (key.tag, key.value) in seen:
                raise KeyStandsTwiceError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)
