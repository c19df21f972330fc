"""The kinds of values that a person writes: how each is read, described and checked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from octavo.errors import InputError
from octavo.settings.words import shown
from octavo.units import MOST_BYTES, parse_bytes

Seconds = Annotated[float, Meta(gt=0, le=1e9, description="a number of seconds above 0, at most 1000000000")]
SecondsFromZero = Annotated[float, Meta(ge=0, le=1e9, description="a number of seconds from 0 to 1000000000")]
"""Seconds that may be 0, which is not to wait at all."""
Count = Annotated[int, Meta(ge=1)]
Host = Annotated[str, Meta(min_length=1, description="an address such as 127.0.0.1, or 0.0.0.0 for all")]
"""To listen on. To a socket, empty text stands for all addresses, but a person left something out."""
Secret = Annotated[str, Meta(extra={"is_secret": True})]
"""Text that no command shows."""


class ParsedSize(int):
    """A number of bytes, which a person may also write as 8GiB. It tells msgspec to ask `_read_size`; the value of a
    field is a plain int."""


if TYPE_CHECKING:
    Size = int
else:
    Size = ParsedSize


def with_home(path: Path) -> Path | None:
    """The path with its `~` written out; None where the home is not known, as of a container's user without a name."""
    try:
        return path.expanduser()
    except RuntimeError:
        return None


def is_text(value: object) -> bool:
    """False for text that no file name, answer or network takes: command lines bring any bytes, and YAML any escape.
    A path may hold any byte but NUL."""
    match value:
        case str():
            return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
        case Path():
            return "\0" not in str(value)
        case _:
            return True


def _read_size(value: object) -> ParsedSize:
    if isinstance(value, str):
        return ParsedSize(parse_bytes(value))
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{shown(value)} is not a size; write it like 40GiB, 512MiB or 80GB")
    if value > MOST_BYTES:
        raise InputError(f"{shown(value)} is too large; it must be below 8 EiB")
    return ParsedSize(value)


def read_path(value: object) -> Path:
    """The path that a person wrote, with a `~` at its beginning written out. `./~` is a file of that name."""
    if not (isinstance(value, str) and value):
        raise InputError(f"{shown(value)} is not a path")
    path = with_home(Path(value)) if value.startswith("~") else Path(value)
    if path is None:
        raise InputError(f"{shown(value)}: that home directory is not known; write the whole path")
    return path


READERS: Mapping[type, Callable[[object], Any]] = {ParsedSize: _read_size, Path: read_path}
DESCRIPTIONS = {ParsedSize: "a size such as 8GiB", Path: "a path"}
