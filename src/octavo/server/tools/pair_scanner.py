r"""`PairScanner`: one call whose arguments are pairs of tags, as it arrives in pieces; its arguments become JSON.

get_weather\n<arg_key>place</arg_key>\n<arg_value>Kiel</arg_value>\n</tool_call>
name         key                       value: text as it is, anything else as JSON

A tool's schema says which arguments are text. Of the others, what is no JSON is text too.
"""

import json
import re
from collections.abc import Mapping

import msgspec

from octavo.server.tools.markers import held_back
from octavo.server.tools.text_arguments import Schema, find_property, is_text

KEY_TAGS = ("<arg_key>", "</arg_key>")
VALUE_TAGS = ("<arg_value>", "</arg_value>")
_NAME = re.compile(r"\s*([a-zA-Z0-9_.:/-]+)\s*")
_UNTIL_VALUE = re.compile(rf"{KEY_TAGS[0]}(.*?){KEY_TAGS[1]}\s*{VALUE_TAGS[0]}", re.DOTALL)


class PairScanner:
    """Begins behind the opening, and ends before what closes the call."""

    def __init__(self, closing: str, schemas: Mapping[str, Schema]) -> None:
        self.text = ""
        self.is_whole = False
        self.name: str | None = None
        self.arguments = ""
        """As far as they have come; empty until it is known to be a call."""
        self._closing = closing
        self._schemas = schemas
        self._buffer = ""
        """What is not understood yet."""
        self._is_in_text = False
        """Within a value that is text: it is told as it comes."""

    def push(self, text: str) -> str:
        """Takes what belongs to the call, and returns the rest."""
        self.text += text
        self._buffer += text
        while self._step():
            pass
        if not self.is_whole:
            return ""
        self.text = self.text[: len(self.text) - len(self._buffer)]
        return self._buffer

    def _step(self) -> bool:
        """False: more text is needed, or none."""
        if self._is_in_text:
            return self._read_text()
        return self._read_name() if self.name is None else self._read_pair()

    def _read_name(self) -> bool:
        found = _NAME.match(self._buffer)
        rest = self._buffer[found.end() :] if found else self._buffer.lstrip()
        markers = (KEY_TAGS[0], self._closing)
        if found is None or not rest.startswith(markers):
            self.is_whole = bool(rest) and (found is None or not any(marker.startswith(rest) for marker in markers))
            return False
        self.name, self.arguments, self._buffer = found[1], "{", rest
        return True

    def _read_pair(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer.startswith(KEY_TAGS[0]):
            markers = (KEY_TAGS[0], self._closing)
            if not any(marker != self._buffer and marker.startswith(self._buffer) for marker in markers):
                self.is_whole = True
                self.arguments += "}"
            return False
        found = _UNTIL_VALUE.match(self._buffer)
        if found is None:
            return False
        key, rest = found[1], self._buffer[found.end() :]
        opening = ("" if self.arguments == "{" else ", ") + json.dumps(key, ensure_ascii=False) + ": "
        if is_text(find_property(self._schemas.get(self.name or ""), key)):
            self.arguments += opening + '"'
            self._is_in_text, self._buffer = True, rest
            return True
        value, end, rest = rest.partition(VALUE_TAGS[1])
        if end:
            self.arguments += opening + _as_json(value)
            self._buffer = rest
        return bool(end)

    def _read_text(self) -> bool:
        value, end, rest = self._buffer.partition(VALUE_TAGS[1])
        keep = 0 if end else held_back(value, VALUE_TAGS[1])
        self.arguments += json.dumps(value[: len(value) - keep], ensure_ascii=False)[1:-1] + ('"' if end else "")
        self._buffer = rest if end else value[len(value) - keep :]
        self._is_in_text = not end
        return bool(end)


def _as_json(value: str) -> str:
    bare = value.strip()
    try:
        msgspec.json.decode(bare)
    except (msgspec.DecodeError, RecursionError):
        return json.dumps(value, ensure_ascii=False)
    return bare
