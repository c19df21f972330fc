"""The beginning and the end of the `octavo` command."""

import os
import sys

from octavo.cli.exit_codes import INTERRUPTED


def run(arguments: list[str] | None = None) -> int:
    """The exit code of a command line. Bad input ends in one line on stderr and code 2,
    a dead engine in code 1, Ctrl-C in code 130."""
    try:
        from octavo.cli.command import run_command  # Ctrl-C during this import is caught here too

        return run_command(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11, where a class is made during an import
            return INTERRUPTED
        raise


def main() -> None:
    """The console script. Once its code is known, Ctrl-C ends the process without a word."""
    _fill_standard_streams()
    code = run()
    import signal  # not before: it takes some milliseconds

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _fill_standard_streams() -> None:
    """Opens the null device in place of each standard stream that the starting process has closed. The next file or
    connection would get its number, and with it all that libraries and child processes write to stderr."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free is this one
