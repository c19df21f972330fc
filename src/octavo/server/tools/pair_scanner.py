r"""`PairScanner`: one call whose arguments are pairs of tags, as it arrives in pieces; its arguments become JSON.

get_weather\n<arg_key>place</arg_key>\n<arg_value>Kiel</arg_value>\n</tool_call>
name         key                       value: text as it is, anything else as JSON

The tags say which arguments are text, or else the tool's schema. Of the others, what is no JSON is text too.
"""

import json
import re
from collections.abc import Mapping
from functools import cache

import msgspec

from octavo.errors import MALFORMED
from octavo.server.tools.formats import PairTags, ToolFormat
from octavo.server.tools.markers import held_back
from octavo.server.tools.text_arguments import Schema, find_property, is_text

_NAME = re.compile(r"\s*([a-zA-Z0-9_.:/-]+)\s*")
_PYTHONS = {"True": "true", "False": "false", "None": "null"}
"""Some templates write values as Python does, and so do their models."""


class PairScanner:
    """Begins with the name, and ends before what closes the call."""

    def __init__(self, form: ToolFormat, tags: PairTags, schemas: Mapping[str, Schema]) -> None:
        self.text = ""
        self.is_whole = False
        self.name: str | None = None
        self.arguments = ""
        """The arguments so far; empty until the text is known to be a call."""
        self._name_end = form.name_end.strip()
        self._tags = tags
        self._until_value = _until_value(tags)
        self._next = (tags.key, form.call_closing or form.closing)
        """The texts that may stand behind the name or behind a value."""
        self._schemas = schemas
        self._buffer = ""
        """The text that is not understood yet."""
        self._is_in_text = False
        """Whether a value that is text is being read: it is told as it comes."""
        self._has_margin = False
        """Whether a margin may come, before such a value."""

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

    def end(self) -> None:
        """Nothing more will come. Behind a value, what would close the call may be left out."""
        if self.name is not None and not self._is_in_text and not self._buffer.strip():
            self.is_whole, self._buffer = True, ""
            self.arguments += "}"

    def _step(self) -> bool:
        """False: more text is needed, or none."""
        if self._is_in_text:
            return self._read_text()
        return self._read_name() if self.name is None else self._read_pair()

    def _read_name(self) -> bool:
        found = _NAME.match(self._buffer)
        rest = self._buffer[found.end() :] if found else self._buffer.lstrip()
        markers = (self._name_end,) if self._name_end else self._next
        if found is None or not rest.startswith(markers):
            self.is_whole = bool(rest) and (found is None or not any(marker.startswith(rest) for marker in markers))
            return False
        self.name, self.arguments, self._buffer = found[1], "{", rest.removeprefix(self._name_end)
        return True

    def _read_pair(self) -> bool:
        self._buffer = self._buffer.lstrip()
        tags = self._tags
        if not self._buffer.startswith(tags.key):
            if not any(marker != self._buffer and marker.startswith(self._buffer) for marker in self._next):
                self.is_whole = True
                self.arguments += "}"
            return False
        found = self._until_value.match(self._buffer)
        if found is None:
            return False
        key, rest = found[1], self._buffer[found.end() :]
        opening = ("" if self.arguments == "{" else ", ") + json.dumps(key, ensure_ascii=False) + ": "
        about = find_property(self._schemas.get(self.name or ""), key)
        if found["text"] is not None if tags.json else is_text(about):
            self.arguments += opening + '"'
            self._is_in_text, self._has_margin, self._buffer = True, bool(tags.margin), rest
            return True
        value, end, rest = rest.partition(tags.end)
        if end:
            value = value.removeprefix(tags.margin).removesuffix(tags.margin)
            self.arguments += opening + _as_json(_PYTHONS.get(value, value) if about else value)
            self._buffer = rest
        return bool(end)

    def _read_text(self) -> bool:
        tags = self._tags
        if self._has_margin:
            if not self._buffer:
                return False
            self._buffer, self._has_margin = self._buffer.removeprefix(tags.margin), False
        value, end, rest = self._buffer.partition(tags.end)
        if end:
            value = value.removesuffix(tags.margin)
        keep = 0 if end else held_back(value, tags.end, tags.margin + tags.end)
        self.arguments += json.dumps(value[: len(value) - keep], ensure_ascii=False)[1:-1] + ('"' if end else "")
        self._buffer = rest if end else value[len(value) - keep :]
        self._is_in_text = not end
        return bool(end)


@cache
def _until_value(tags: PairTags) -> re.Pattern[str]:
    text, json_value = (r"\s*".join(map(re.escape, between.split("\n"))) for between in (tags.text, tags.json))
    other = f"|(?:{json_value})" if tags.json else ""
    return re.compile(f"{re.escape(tags.key)}(.*?)(?:(?P<text>{text}){other})", re.DOTALL)


def _as_json(value: str) -> str:
    bare = value.strip()
    try:
        msgspec.json.decode(bare)
    except MALFORMED:
        return json.dumps(value, ensure_ascii=False)
    return bare
