"""`ManyFlagsCommand`: a command with a dozen flags or more. Its help lists them by section, each whole name on its own
line: in a terminal of 80 columns, a table leaves little room beside long names.

    Engine:
      --dtype auto|bfloat16|float32
            The number format of weights and cache; ...
"""

from typing import Any

from octavo.cli.flags.once import FlagsOnceCommand

_INDENT = 4
"""The indent of the text below a flag."""


class ManyFlagsCommand(FlagsOnceCommand):
    """One command; Typer shows its parameters."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help without tables."""
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """All parameters, by section, in the order of their declaration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                title = getattr(parameter, "rich_help_panel", None)
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections.setdefault(title or kind, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=_INDENT)
