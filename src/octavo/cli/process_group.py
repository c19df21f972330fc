"""`run_in_group`: runs a program that starts others, none of which outlives this process when it is asked to end.
`own_interpreter`: Python for such a program."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from types import FrameType

from octavo.http import taking_signals

_PATIENCE_S = 10.0
"""The time for all of them to end by themselves. A second signal ends it."""
_LOOK_EVERY_S = 0.05


def own_interpreter() -> list[str]:
    """Python, for a program of our own. It takes modules from the current folder, where a file may be called
    `types.py`, only if this process does, as in `python -m octavo`."""
    return [sys.executable] if {"", str(Path.cwd())} & set(sys.path) else [sys.executable, "-P"]


def run_in_group(command: Sequence[str]) -> tuple[str, str]:
    """What the program wrote to stdout and to stderr. SystemExit if a signal asks for an end: then the program and all
    that it has started are ended."""
    with (
        taking_signals(end_with_code),
        Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True, process_group=0) as program,  # noqa: S603 - ours
    ):
        try:
            return program.communicate()
        except BaseException:
            _end_group(program)
            raise


def end_with_code(number: int, _: FrameType | None) -> None:
    """For `taking_signals`: what is open is closed, and the exit code is the signal's."""
    raise SystemExit(128 + number)


def _end_group(program: Popen[str]) -> None:
    """Ctrl-C for all of them: in a group of their own they do not get that of the terminal."""
    give_up_at = time.monotonic() + _PATIENCE_S
    with suppress(ProcessLookupError):
        try:
            os.killpg(program.pid, signal.SIGINT)
            while time.monotonic() < give_up_at:
                time.sleep(_LOOK_EVERY_S)
                program.poll()  # one that has ended is there until somebody asks
                os.killpg(program.pid, 0)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
