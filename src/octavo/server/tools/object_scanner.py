"""`ObjectScanner`: one JSON object as it arrives in pieces; where it ends, and a call's name and arguments within it.

{"name": "find", "arguments": {"text": "a}"}} and more
                              |arguments   ||rest
"""

import json
from typing import Any

from octavo.errors import MALFORMED

_ARGUMENTS = ("arguments", "parameters")


class ObjectScanner:
    """Begins at the object's first brace. It trusts nothing: what is no JSON has no name, and of two names or two
    arguments the first counts, which has been told already."""

    def __init__(self, name: str | None = None) -> None:
        """With a name, the object is its arguments; without, it holds name and arguments."""
        self.text = ""
        self.is_whole = False
        self.name = name
        self._is_arguments = name is not None
        self._arguments_at: int | None = 0 if self._is_arguments else None
        self._arguments_end: int | None = None
        self._depth = 0
        self._string_at: int | None = None
        """Where the string began that is being read; None outside strings."""
        self._is_escaped = False
        self._key: str | None = None
        """The key of the outermost object whose value comes."""
        self._is_value = False

    @property
    def arguments(self) -> str:
        """The text of the arguments, as far as it has come; empty until it is known to be an object."""
        return "" if self._arguments_at is None else self.text[self._arguments_at : self._arguments_end]

    def push(self, text: str) -> str:
        """Takes what belongs to the object, and returns the rest."""
        come, self.text = len(self.text), self.text + text
        for index, char in enumerate(text, start=come):
            self._take(char, index)
            if self._string_at is None and self._depth == 0:
                rest, self.text = self.text[index + 1 :], self.text[: index + 1]
                self._finish()
                return rest
        return ""

    def end(self) -> None:
        """Nothing more will come: an object without its last brace is none."""

    def _take(self, char: str, index: int) -> None:
        if self._string_at is not None:
            self._take_in_string(char, index)
        elif char == '"':
            self._string_at = index
        elif char in "{[":
            is_first = self._depth == 1 and self._arguments_at is None
            if is_first and self._is_value and self._key in _ARGUMENTS and char == "{":
                self._arguments_at = index
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            is_at_end = self._depth == 1 and not self._is_arguments
            if is_at_end and self._arguments_at is not None and self._arguments_end is None:
                self._arguments_end = index + 1
        elif self._depth == 1:
            if char == ":":
                self._is_value = True
            elif char == ",":
                self._key, self._is_value = None, False

    def _take_in_string(self, char: str, index: int) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            at, self._string_at = self._string_at, None
            if self._depth == 1 and not self._is_arguments:
                value = _parse(self.text[at:index] + '"')
                if not self._is_value:
                    self._key = value
                elif self._key == "name" and self.name is None and isinstance(value, str):
                    self.name = value

    def _finish(self) -> None:
        self.is_whole = True
        call = _parse(self.text)
        if self._is_arguments or self.arguments:
            return
        if isinstance(call, dict) and isinstance(call.get("name"), str):
            arguments: Any = next((call[key] for key in _ARGUMENTS if key in call), {})
            self.text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            self.name, self._arguments_at, self._arguments_end = call["name"], 0, None
        else:
            self.name = None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except MALFORMED:
        return None
