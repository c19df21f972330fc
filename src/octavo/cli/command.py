"""The `octavo` command: its options, and the handling of all commands' errors."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO, TextIOWrapper, UnsupportedOperation
from pathlib import Path
from typing import Annotated

import typer

from octavo import __version__
from octavo.cli.commands import Commands
from octavo.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED
from octavo.cli.flags import CommandLineError, sentence_of
from octavo.cli.needed_packages import why_import_failed
from octavo.cli.output import discard_output, print_error, write_output
from octavo.errors import EngineDiedError, OctavoError

app = typer.Typer(
    cls=Commands,
    help="Octavo: the KV-cache system for hybrid language models.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        write_output(f"octavo {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _octavo(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        write_output(context.get_help() + "\n")


def run_command(arguments: Sequence[str] | None) -> int:
    """The exit code of a command line. Bad input ends in one line on stderr and code 2."""
    _prepare_streams()
    if os.environ.get("COLUMNS") == "0":  # a terminal of unknown size, as in a container; Rich would print nothing
        del os.environ["COLUMNS"]
    command = typer.main.get_command(app)
    try:
        return command.main(arguments, prog_name="octavo", standalone_mode=False) or 0
    except EngineDiedError as error:
        print_error(str(error))
        return FAILED
    except OSError as error:  # such as Typer's, where a page of help cannot be written
        discard_output()
        print_error(_why_no_file(error))
        return BAD_INPUT
    except (OctavoError, ImportError, MemoryError, UnicodeEncodeError) as error:
        print_error(_complaint(error, sys.argv[1:] if arguments is None else arguments))
        return BAD_INPUT
    except typer.Abort:
        return INTERRUPTED
    except CommandLineError as error:
        message = sentence_of(error)
        print_error(f"{message}{' Try' if message.endswith('?') else '; try'} '{_path_of(error)} --help'")
        return BAD_INPUT


def _why_no_file(error: OSError) -> str:
    if _is_nowhere():
        return "the current folder is gone: change to one that is there"
    if str(error.strerror).startswith("No usable temporary directory"):  # tempfile's, which has tried to write in each
        return f"{error.strerror}: free some of their file systems, or name a folder that can be written in TMPDIR"
    return str(error)


def _is_nowhere() -> bool:
    """Whether somebody has deleted the folder in which the command runs. Libraries ask for it where none is named."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _prepare_streams() -> None:
    """A terminal without block characters shows question marks; what is typed or piped in may be any bytes, and may be
    closed by the process that started the command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stdin, TextIOWrapper):
        with suppress(UnsupportedOperation):  # it was read from before
            sys.stdin.reconfigure(errors="surrogateescape")
    elif sys.stdin is None:
        sys.stdin = StringIO()


def _complaint(error: Exception, arguments: Sequence[str]) -> str:
    """A file's name may be any bytes; what is sent or looked up may not. All else is our bug."""
    if isinstance(error, MemoryError):
        return "this machine has too little memory for that: ask for smaller sizes"
    if isinstance(error, OctavoError):
        return str(error)
    if isinstance(error, ImportError):
        return why_import_failed(error)
    for argument in arguments:
        if argument != argument.encode(errors="replace").decode():
            return f"the argument {argument!r} is not UTF-8; write plain text"
    raise error


def _path_of(error: Exception) -> str:
    """The command that could not read its arguments, such as `octavo serve`."""
    context = getattr(error, "ctx", None)
    return "octavo" if context is None else str(context.command_path)
