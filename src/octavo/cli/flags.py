"""Reads the texts of flags."""

from collections.abc import Iterator
from contextlib import contextmanager

from octavo.errors import InputError
from octavo.units import parse_bytes


def bytes_of(flag: str, text: str, *, may_be_zero: bool = False) -> int:
    with naming(flag):
        return parse_bytes(text, may_be_zero=may_be_zero)


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Puts the flag before the complaint about its value."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{flag}: {error}") from error
