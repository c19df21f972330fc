"""How foreign values and names stand in a message."""

import re
import reprlib
from difflib import get_close_matches

_PASSWORD = re.compile(r"(?<=://)\S*(?=@)|(?<=password=)[^&\s]+")
_LONGEST_URL = 4096
_WORDS = {True: "true", False: "false", None: "null"}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def shown(value: object) -> str:
    """A foreign value for a message: short, on one line, printable, and without the password of a URL. True, false and
    null are as JSON and YAML have them."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, str) and len(value) <= _LONGEST_URL:
        value = _PASSWORD.sub("***", value)
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print a number of more than 4300 digits
        return "a number of thousands of digits"


def unknown_name(noun: str, name: object, known: list[str]) -> str:
    """The sentence for a name that is none of the known ones."""
    near = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"unknown {noun} {shown(name)}{hint} there are: {', '.join(known)}"
