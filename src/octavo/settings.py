"""Values of a person's configuration: each is taken out and checked; what is left then is a mistake."""

from collections.abc import Collection, Mapping
from typing import Any

from octavo.errors import InputError
from octavo.units import parse_bytes


def take_bytes(values: dict[str, Any], key: str, default: int | None = None) -> int:
    """A size: 8GiB, or a number of bytes."""
    value = values.pop(key, default)
    if isinstance(value, str):
        return parse_bytes(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{key} must be a size such as 8GiB, not {value!r}")
    return value


def take_whole(values: dict[str, Any], key: str, default: int, *, most: int) -> int:
    value = values.pop(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError(f"{key} must be a whole number from 1 to {most}, not {value!r}")
    return value


def take_seconds(values: dict[str, Any], key: str, default: float) -> float:
    value = values.pop(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise InputError(f"{key} must be a number of seconds above 0, not {value!r}")
    return float(value)


def take_name(values: dict[str, Any], key: str) -> str | None:
    value = values.pop(key, None)
    if value is not None and not (isinstance(value, str) and value):
        raise InputError(f"{key} must be a name, not {value!r}")
    return value


def take_choice(values: dict[str, Any], key: str, choices: Collection[str], default: str) -> str:
    value = values.pop(key, default)
    if value not in choices:
        raise InputError(f"{key} = {value!r} is not known; choose one of: {', '.join(sorted(choices))}")
    return str(value)


def take_mapping(values: dict[str, Any], key: str) -> Mapping[str, Any]:
    value = values.pop(key, None)
    if not isinstance(value, Mapping):
        raise InputError(f"{key} must be a mapping of settings, not {value!r}")
    return value


def take_nothing_else(values: Mapping[str, Any], what: str, known: Collection[str]) -> None:
    """The caller has taken all it knows."""
    if values:
        unknown = ", ".join(repr(key) for key in values)
        raise InputError(f"{what}: unknown setting {unknown}; there are: {', '.join(known)}")
