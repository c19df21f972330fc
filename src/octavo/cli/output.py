"""Where a command's text goes: a report to stdout, one line of complaint to stderr."""

import os
import sys
from contextlib import suppress
from io import UnsupportedOperation

import typer

from octavo.errors import InputError


def write_output(text: str) -> bool:
    """Writes text whole. A reader that stops reading, such as `head`, is no error: False says that he did."""
    if sys.stdout is None:  # closed by whoever started the command
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


def print_error(message: str) -> None:
    """One printable line, whatever file names or values the message quotes."""
    line = " ".join(message.split())
    typer.echo("octavo: " + "".join(c if c.isprintable() else "?" for c in line), err=True)


def discard_output() -> None:
    """What is still buffered must not fail again when the interpreter exits."""
    if sys.stdout is None:
        return
    with suppress(UnsupportedOperation):  # nothing that a file descriptor stands behind
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
