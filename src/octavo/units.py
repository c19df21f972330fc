"""Sizes and numbers as people write and read them: 40GiB, 128k, 12."""

import re

from octavo.errors import InputError

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LEAST_BARE_BYTES = 1 << 20
MOST_BYTES = (1 << 63) - 1
"""No system counts further."""
_NUMBER = r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*"


def parse_bytes(text: str, *, may_be_zero: bool = False) -> int:
    """40GiB, 40G and 40g are binary, 40GB is decimal, a bare number of 1 MiB or more is bytes. InputError asks about a
    smaller one, since 16 may mean 16GiB."""
    match = re.fullmatch(_NUMBER + r"([kmgt]?)(i?b?)", text.lower(), re.ASCII)
    if match is None:
        raise InputError(f"{text!r} is not a size; write it like 40GiB, 512MiB or 80GB")
    number, prefix, suffix = match.groups()
    if not prefix and not suffix and 1 <= float(number) < _LEAST_BARE_BYTES:
        raise InputError(f"{text!r} has no unit: write {number}GiB, {number}MiB, or {number}B if bytes are meant")
    if may_be_zero and float(number) == 0:
        return 0
    units = _DECIMAL if suffix == "b" else _BINARY
    size = _whole(text, float(number) * units[prefix] if "." in number else int(number) * units[prefix])
    if size > MOST_BYTES:
        raise InputError(f"{text!r} is too large; it must be below 8 EiB")
    return size


def parse_tokens(text: str) -> int:
    """128k is 131072 tokens, as model cards count; a bare number is a whole number of tokens."""
    match = re.fullmatch(_NUMBER + r"([km]?)", text.lower(), re.ASCII)
    if match is None:
        raise InputError(f"{text!r} is not a number of tokens; write it like 131072, 128k or 1m")
    number, prefix = match.groups()
    if not prefix and not float(number).is_integer():
        raise InputError(f"{text!r} is not a whole number of tokens; write it like 131072, 128k or 1m")
    return _whole(text, float(number) * _BINARY[prefix] if "." in number else int(number) * _BINARY[prefix])


def find_count(text: str) -> int | None:
    """A whole number in at most 18 plain digits. None for all else, such as -1 or 1_000."""
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def parse_seconds(text: str) -> float:
    """60s, 2m, 1.5h, 7d; a bare number is seconds."""
    match = re.fullmatch(_NUMBER + r"([smhd]?)", text.lower(), re.ASCII)
    if match is None:
        raise InputError(f"{text!r} is not a time; write it like 60s, 2m, 1h or 7d")
    number, unit = match.groups()
    return float(number) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit]


def _whole(text: str, number: float) -> int:
    if number < 1:
        raise InputError(f"{text!r} is too small; it must be 1 or more")
    return int(number)


def counted(number: int, noun: str) -> str:
    """1 segment, 2,000 segments."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_age(seconds: int) -> str:
    """The largest unit that is whole: 59 s, 5 min, 3 h, 2 d."""
    for unit_s, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {name}"
    return f"{max(0, seconds)} s"


def format_least(num_bytes: int) -> str:
    """A size that is enough, in whole MiB, or in whole KiB where it is small: what a person may type."""
    unit, name = (1 << 20, "MiB") if num_bytes >= 16 << 20 else (1 << 10, "KiB")
    return f"{-(-num_bytes // unit)} {name}"


def format_bytes(num_bytes: float) -> str:
    """Three significant digits and a binary unit; exact where that is short."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(num_bytes) >= unit:
            value = num_bytes / unit
            return f"{value:.0f} {name}" if value == int(value) or value >= 100 else f"{value:.3g} {name}"
    return f"{num_bytes:.0f} B"
