"""What is wrong with a command line, in the words that Octavo has for settings: `--turns must be a whole number of 1 or
more, not '0'`. Typer's own words are those of its libraries, and change with its version."""

from typing import Any

import typer

CommandLineError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
"""Typer exports only some of its children."""
_FOREIGN_WORDS = "Value error, "
_OF_LIBRARIES = ("Input should be ", "Unable to parse ")


def sentence_of(error: Any) -> str:
    """The sentence for an error of a command line, without a full stop."""
    message = str(error.message if isinstance(error, typer.BadParameter) else error.format_message()).rstrip(".")
    parameter = getattr(error, "param", None)
    if not isinstance(error, typer.BadParameter) or parameter is None or not message:
        return str(error.format_message()).rstrip(".")
    name = max(parameter.opts, key=len)
    message = message.removeprefix(_FOREIGN_WORDS)
    if not message.startswith(_OF_LIBRARIES):
        return f"{name}: {message}"
    from octavo.settings import shown  # msgspec, which most commands do without

    (first, *_) = error.__cause__.errors()  # type: ignore[union-attr]  # pydantic's
    if first["type"] == "string_unicode":
        return f"{name} holds what is not UTF-8; write plain text"
    value = shown(first["input"])
    if "_than_" in first["type"]:  # a number beyond the bounds
        value = value.strip("' ")
    return f"{name} must be {_kind(parameter, first['type'])}, not {value}"


def _kind(parameter: Any, problem: str) -> str:
    """What the value must be."""
    least, most = parameter.min, parameter.max
    kind = "a number" if problem.startswith("float") else "a whole number"
    if least is not None and most is not None:
        return f"{kind} from {least} to {most}"
    return kind if least is None else f"{kind} of {least} or more"
