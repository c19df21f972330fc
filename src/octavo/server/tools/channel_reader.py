"""`ChannelReader`: one choice's text as it comes, where every message has a header that says for whom it is.

header    <|channel|>analysis<|message|>                                          a thought
          <|channel|>final<|message|>                                             said
          <|channel|>commentary<|message|>                                        said, between calls
          <|channel|>commentary to=functions.f <|constrain|>json<|message|>       a call, its arguments follow
          to=functions.f<|channel|>commentary json<|message|>                     the same
end       <|end|> <|call|> <|return|>, or <|start|>, which begins the next header with a role

An answer that begins without a header is said as it is: a grammar of the client's own may have it so.
"""

import json
import re

from octavo.errors import MALFORMED
from octavo.server.tools.answer_reader import CallPiece, End, ReadText, new_call_id
from octavo.server.tools.markers import held_back

_MESSAGE = "<|message|>"
_ENDS = ("<|start|>", "<|end|>", "<|call|>", "<|return|>")
_BEGINNINGS = ("<|channel|>", "<|start|>", _MESSAGE, "to=")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."


class ChannelReader:
    """Reads one choice. What is said to nobody that is known here counts as thought."""

    def __init__(self, *, most_calls: int | None = None, waits: bool = False) -> None:
        """Calls beyond the most are left out. `waits`: for whole calls."""
        self.num_calls = 0
        self.ends_within_call = False
        self._waits = waits
        self._most_calls = most_calls
        self._buffer = ""
        self._is_fresh = True
        """Whether nothing has been understood yet."""
        self._is_header = True
        self._is_thought = False
        self._name: str | None = None
        """Of the call whose arguments come."""
        self._arguments = ""
        """Those that have come."""

    def push(self, text: str) -> ReadText:
        """The new content that is certain."""
        read = ReadText()
        self._buffer += text
        while self._buffer and (self._read_header(read) if self._is_header else self._read_message(read)):
            pass
        return read

    def flush(self, end: End = End.OWN) -> ReadText:
        """The rest, as nothing more will come. A header that is cut off says nothing."""
        read = ReadText()
        if self._is_fresh or not self._is_header:
            self._take(read, self._buffer)
            self._end_message(read, end)
        self._buffer = ""
        return read

    def _read_header(self, read: ReadText) -> bool:
        """False: more text is needed."""
        if self._is_fresh:
            begun = self._buffer.lstrip()
            if not any(begun.startswith(marker) for marker in _BEGINNINGS):
                if any(marker.startswith(begun) for marker in _BEGINNINGS):
                    return False
                self._is_fresh = self._is_header = False
                return True
            self._is_fresh = False
        header, end, rest = self._buffer.partition(_MESSAGE)
        if not end:
            return False
        self._is_header, self._buffer = False, rest
        self._begin_message(read, header)
        return True

    def _begin_message(self, read: ReadText, header: str) -> None:
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        is_call = recipient is not None and recipient[1].startswith(_FUNCTIONS)
        self._is_thought = is_call or recipient is not None or (channel is not None and channel[1] == "analysis")
        self._name, self._arguments = None, ""
        if recipient is None or not is_call or self.num_calls == self._most_calls:
            return
        self._name = recipient[1].removeprefix(_FUNCTIONS)
        if not self._waits:
            self._begin_call(read, self._name)

    def _read_message(self, read: ReadText) -> bool:
        found = _END.search(self._buffer)
        if found is None:
            keep = held_back(self._buffer, *_ENDS)
            self._take(read, self._buffer[: len(self._buffer) - keep])
            self._buffer = self._buffer[len(self._buffer) - keep :]
            return False
        self._take(read, self._buffer[: found.start()])
        self._buffer = self._buffer[found.end() :]
        self._end_message(read)
        self._is_header = True
        return True

    def _take(self, read: ReadText, text: str) -> None:
        if self._name is None:
            read.add(text, is_thought=self._is_thought)
            return
        self._arguments += text
        if text and not self._waits:
            read.parts.append(CallPiece(index=self.num_calls - 1, arguments=text))

    def _end_message(self, read: ReadText, end: End | None = None) -> None:
        """At a marker, or at the end of the answer."""
        if self._name is not None:
            is_whole = end is None or self._has_whole_arguments(end)
            self.ends_within_call = not is_whole
            if self._waits:
                self._tell_at_once(read, self._name, is_call=is_whole or end is End.CUT)
            if is_whole and not self._arguments.strip():
                read.parts.append(CallPiece(index=self.num_calls - 1, arguments="{}"))
        self._name = None

    def _tell_at_once(self, read: ReadText, name: str, *, is_call: bool) -> None:
        if is_call:
            self._begin_call(read, name, self._arguments)
        else:
            read.add(self._arguments)

    def _begin_call(self, read: ReadText, name: str, arguments: str = "") -> None:
        read.parts.append(CallPiece(index=self.num_calls, call_id=new_call_id(), name=name, arguments=arguments))
        self.num_calls += 1

    def _has_whole_arguments(self, end: End) -> bool:
        """Whether a call is whole that no marker ends, as the model's own end token is none here."""
        if not self._arguments.strip():
            return end is End.OWN
        try:
            return isinstance(json.loads(self._arguments, strict=False), dict)
        except MALFORMED:
            return False
