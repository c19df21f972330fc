"""`FlagsOnceCommand`: a command that refuses a flag with a value that is given twice. Elsewhere the last one wins, and
nobody is told: of `--sweep memory=... --sweep disk=...`, one sweep would be run."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from octavo.cli.flags.complaints import CommandLineError
from octavo.cli.flags.paths import read_paths
from octavo.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


class FlagsOnceCommand(TyperCommand):
    """One command. Flags that are lists, and switches such as `--log-json`, may still be given several times."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises InputError for a flag that is given twice, and for a path that is none. Errors
        know the command."""
        texts: Mapping[str, Any] = {}
        if not ctx.resilient_parsing:  # not while a shell completes a word
            try:
                texts, _, given = self.make_parser(ctx).parse_args(args=list(args))
            except CommandLineError as error:
                error.ctx = ctx  # type: ignore[attr-defined]  # not known where a flag lacks its value
                raise
            for parameter, times in Counter(given).items():
                takes_one = not (getattr(parameter, "multiple", True) or getattr(parameter, "is_flag", True))
                if times > 1 and takes_one:
                    flag = max(parameter.opts, key=len)
                    raise InputError(f"{flag} takes one value, and is given {times} times: leave the others out")
        rest: list[str] = super().parse_args(ctx, args)
        read_paths(self, ctx, texts)
        return rest


class CommandGroup(typer.Typer):
    """Commands of one group, such as those of `octavo cache`."""

    def command(  # type: ignore[override]  # of Typer's options only what is used here
        self, name: str | None = None, *, cls: type[TyperCommand] = FlagsOnceCommand
    ) -> Callable[[F], F]:
        """Adds a command."""
        return super().command(name, cls=cls)
