"""`StopStrings`: finds the end of a text that arrives in pieces, and holds back what may be its beginning.

text so far   [ emitted ............ ][ held back ]
a new piece                           [ held back ][ piece ]     searched for stop strings
no match      [ emitted ...................... ][ held back ]    the longest end that begins a stop string
"""

from collections.abc import Sequence


class StopStrings:
    """The stop strings of one choice, and the text that waits to be told from one."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._held = ""
        self.found: str | None = None
        """The string that ended the text."""

    def push(self, piece: str) -> str:
        """The text that may be emitted now that `piece` has arrived. After a match there is nothing more."""
        if self.found is not None:
            return ""
        text = self._held + piece
        matches = [(at, string) for string in self._strings if (at := text.find(string)) >= 0]
        if matches:
            at, self.found = min(matches, key=lambda match: (match[0] + len(match[1]), match[0]))
            self._held = ""
            return text[:at]
        keep = self._longest_beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, as nothing more will come."""
        text, self._held = self._held, ""
        return text

    def _longest_beginning(self, text: str) -> int:
        """How many of the last characters begin some stop string."""
        longest = max((len(string) for string in self._strings), default=1) - 1
        for count in range(min(longest, len(text)), 0, -1):
            if any(string.startswith(text[-count:]) for string in self._strings):
                return count
        return 0
