"""How the texts of flags are read, and complaints about them."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from octavo.errors import InputError
from octavo.units import parse_bytes


def bytes_of(flag: str, text: str, *, may_be_zero: bool = False) -> int:
    with naming(flag):
        return parse_bytes(text, may_be_zero=may_be_zero)


def is_hex(text: str) -> bool:
    """Whether it can be the beginning of a digest, as Octavo shows one; the empty text is the beginning of all."""
    return set(text) <= set("0123456789abcdef")


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Puts the flag before the complaint about its value."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{flag}: {error}") from error


def not_empty(context: typer.Context, parameter: typer.CallbackParam, text: str) -> str:
    """The text of a flag that chooses, and that chooses all where it is left out. Raises InputError if it is given
    and empty, as where a script has an unset variable: `--namespace "$NAMESPACE"` would choose all."""
    source = context.get_parameter_source(str(parameter.name))
    if not text and source is not None and source.name != "DEFAULT":
        raise InputError(f"--{parameter.name}: '' chooses nothing: name something, or leave the flag out")
    return text
