"""A command's output: a report on stdout, a complaint of one line on stderr."""

import gc
import os
import sys
import unicodedata
from contextlib import suppress
from io import UnsupportedOperation

import typer

from octavo.errors import InputError

_JOINER = "\u200d"
"""The zero-width joiner, a format character that emoji need. Others, which reorder the text, are hidden."""


def write_output(text: str) -> bool:
    """Writes the whole text. False if the reader stopped reading, as `head` does: that is no error."""
    if sys.stdout is None:  # closed by the process that started the command
        raise InputError("there is no standard output to write to")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return False
    except OSError as cause:
        discard_output()
        raise InputError(f"cannot write to standard output: {cause.strerror}") from cause
    return True


def write_ready(text: str) -> None:
    """Says where a server is. What it has loaded stays, and the garbage collector follows it no more: a full collection
    would stop all requests for most of a second."""
    gc.freeze()
    write_output(text)


def print_error(message: str) -> None:
    """One printable line, whatever file names or values the message quotes."""
    typer.echo(f"octavo: {printable_line(' '.join(message.split()))}", err=True)


def printable_line(text: str) -> str:
    """The text with "?" for each control character: a file's name, or a publisher, must not command the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def printable(text: str) -> str:
    """The text as a terminal may show it: a model's control characters could move the cursor, or do worse."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") or c == _JOINER)


def confirm(question: str) -> None:
    """Asks for a yes; ends the command otherwise."""
    if sys.stdout is None or sys.stderr is None:  # closed by the process that started the command: Python asks on both
        raise InputError("there is no terminal to ask on: give --yes, or leave the outputs open")
    typer.confirm(question, abort=True)


def discard_output() -> None:
    """Discards buffered text, so that writing it does not fail again when the interpreter exits."""
    if sys.stdout is None:
        return
    with suppress(UnsupportedOperation):  # an output without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
