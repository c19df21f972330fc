"""`Drawing`: tables and texts for people, drawn into one text before any of it is written."""

import sys
from io import StringIO

from rich.console import Console


class Drawing(Console):
    """A console that keeps what is printed on it. It is in colour where the output is a terminal."""

    def __init__(self, *, width: int | None = None) -> None:
        """By default it is as wide as the terminal."""
        self._kept = StringIO()
        in_colour = True if sys.stdout is not None and sys.stdout.isatty() else None
        super().__init__(file=self._kept, width=width, force_terminal=in_colour, highlight=False)

    @property
    def text(self) -> str:
        """What was printed, without spaces at the ends of lines."""
        return "".join(f"{line.rstrip()}\n" for line in self._kept.getvalue().splitlines())
