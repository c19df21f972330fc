"""`StopStrings`: ends a text that arrives in pieces at a stop string, and holds back what may be the beginning of one.

text so far   [ emitted ............ ][ held back ]
a new piece                           [ held back ][ piece ]     searched for stop strings
no match      [ emitted ...................... ][ held back ]    the longest end that begins a stop string
"""

from collections.abc import Sequence


class StopStrings:
    """The stop strings of one choice, and the text that is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text, or None."""

    def push(self, piece: str) -> str:
        """Adds `piece`, and returns the text that may be emitted now: none after a match."""
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
        """The text that was held back, as no more will come."""
        text, self._held = self._held, ""
        return text

    def _longest_beginning(self, text: str) -> int:
        """The number of last characters that begin some stop string."""
        longest = max((len(string) for string in self._strings), default=1) - 1
        for count in range(min(longest, len(text)), 0, -1):
            if any(string.startswith(text[-count:]) for string in self._strings):
                return count
        return 0
