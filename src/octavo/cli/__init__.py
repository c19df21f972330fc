"""The `octavo` command: views over what the packages below compute."""

import sys

import typer

from octavo.cli.plan import plan
from octavo.errors import OctavoError

app = typer.Typer(
    help="Octavo: the KV-cache system for hybrid language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(plan)


@app.callback()
def _octavo() -> None:
    """Keeps `plan` a subcommand while it is the only one."""


def main() -> None:
    """The console script: bad input ends in one line on stderr and exit code 2."""
    try:
        app()
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
