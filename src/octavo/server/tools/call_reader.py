"""`CallReader`: one choice's text as it comes, parted into what is said and what is called.

    text     [ said ................ ][ held back ]      it may be the beginning of an opening
    gap      [ said ][ opening, "[", "," ]               calls may follow, or a closing
    name     [ said ][ opening ][ name ]                 formats with a bare name; some begin each call anew
    object   [ said ][ opening ][ {"name": ...  ]        arguments are told as they come, once the name is known

What looks like a call and turns out to be none is said after all. `StopStrings` holds back the same way, but ends. A
reader that waits holds back each call until it is whole.
"""

from collections.abc import Mapping

from octavo.server.tools.answer_reader import CallPiece, End, ReadText, new_call_id
from octavo.server.tools.formats import ToolFormat
from octavo.server.tools.markers import held_back, split_markers
from octavo.server.tools.object_scanner import ObjectScanner
from octavo.server.tools.pair_scanner import PairScanner
from octavo.server.tools.text_arguments import Schema

_BETWEEN_CALLS = " \t\r\n[],;"
_CALL_ID = "[CALL_ID]"
"""Some of Mistral's models write one behind the name."""


class CallReader:
    """Reads one choice."""

    def __init__(
        self,
        form: ToolFormat,
        *,
        most_calls: int | None = None,
        schemas: Mapping[str, Schema] | None = None,
        waits: bool = False,
    ) -> None:
        """Per tool, its schemas say which arguments are text, for formats without quotes. `waits`: for whole calls."""
        self._form = form
        self._waits = waits
        self._schemas = schemas or {}
        ends = [form.call_closing] if form.pairs is not None else split_markers(form.call_closing)
        self._between = (form.closing, form.opening, *map(str.strip, ends))
        """May stand between calls, or behind the last one."""
        self._most_calls = most_calls
        self.num_calls = 0
        """The calls that have been told."""
        self.ends_within_call = False
        self._buffer = ""
        """The text that is not understood yet."""
        self._raw = ""
        """The text since the opening, in case it turns out to be no call."""
        self._is_inside = False
        """Between an opening and what ends it."""
        self._is_fresh = True
        """Whether nothing but space has come yet."""
        self._object: ObjectScanner | PairScanner | None = None
        self._num_told = 0
        """Characters of the arguments that have been told; the name has been with the first of them."""
        self._has_begun = False

    def push(self, text: str) -> ReadText:
        """The new content that is certain."""
        read = ReadText()
        self._buffer += text
        while self._step(read):
            pass
        return read

    def flush(self, end: End = End.OWN) -> ReadText:
        """The rest, as nothing more will come."""
        read = ReadText()
        if self._object is not None:
            self._end_call(read, self._object, end)
        elif self._is_inside:
            if not self.num_calls:
                self._say(read, self._raw + self._buffer)
        else:
            self._say(read, self._buffer.rstrip() if self.num_calls else self._buffer)
        self._buffer, self._raw, self._object, self._is_inside = "", "", None, False
        return read

    def _step(self, read: ReadText) -> bool:
        """False: more text is needed."""
        if not self._buffer:
            return False
        if self._object is not None:
            return self._read_object(read, self._object)
        return self._read_gap(read) if self._is_inside else self._read_said(read)

    def _read_said(self, read: ReadText) -> bool:
        bare = self._buffer.lstrip()
        if self._form.is_bare and self._is_fresh:
            if not bare:
                return False
            if bare.startswith("{"):
                self._is_inside, self._raw = True, self._buffer[: len(self._buffer) - len(bare)]
                self._buffer = bare
                return True
        said, opening, rest = self._buffer.partition(self._form.opening)
        if opening:
            words = said.rstrip() if self.num_calls or (self._is_fresh and said.isspace()) else said
            self._say(read, words)
            self._is_inside, self._raw, self._buffer = True, said[len(words) :] + opening, rest
            return True
        keep = _held_back(said, self._form.opening)
        self._say(read, said[: len(said) - keep])
        self._buffer = said[len(said) - keep :]
        return False

    def _read_gap(self, read: ReadText) -> bool:
        """Reads the text before a call, or after one."""
        text = self._buffer.lstrip(_BETWEEN_CALLS)
        self._raw += self._buffer[: len(self._buffer) - len(text)]
        self._buffer = text
        if not text:
            return False
        form = self._form
        if form.pairs is not None:
            if text.startswith(form.call_opening) if form.call_opening else form.opening in self._raw:
                rest = text.removeprefix(form.call_opening)
                return self._begin(PairScanner(form, form.pairs, self._schemas), rest, form.call_opening)
        elif form.name_end and (not form.call_opening or text.startswith(form.call_opening)):
            name, end, rest = text.removeprefix(form.call_opening).partition(form.name_end.strip())
            scanner = ObjectScanner(name.partition(_CALL_ID)[0].strip())
            return bool(end) and self._begin(scanner, rest, text[: len(text) - len(rest)])
        if not form.name_end and text.startswith("{"):
            return self._begin(ObjectScanner(), text)
        return self._read_between(read, text)

    def _read_between(self, read: ReadText, text: str) -> bool:
        form = self._form
        for marker in filter(None, self._between):
            if text.startswith(marker):
                self._raw, self._buffer = self._raw + marker, text[len(marker) :]
                if marker == form.closing:
                    self._end_calls(read)
                return True
        if any(marker.startswith(text) for marker in (*self._between, form.call_opening)):
            return False
        self._end_calls(read)
        return True

    def _end_calls(self, read: ReadText) -> None:
        if not self.num_calls:
            self._say(read, self._raw)  # no call after all
        self._is_inside, self._raw = False, ""

    def _begin(self, scanner: ObjectScanner | PairScanner, rest: str, taken: str = "") -> bool:
        self._raw += taken
        self._object, self._num_told, self._has_begun, self._buffer = scanner, 0, False, rest
        return True

    def _read_object(self, read: ReadText, scanner: ObjectScanner | PairScanner) -> bool:
        if not scanner.text and isinstance(scanner, ObjectScanner):
            rest = self._buffer.lstrip()
            self._raw, self._buffer = self._raw + self._buffer[: len(self._buffer) - len(rest)], rest
            if not rest:
                return False
        if scanner.text or self._buffer.startswith("{") or isinstance(scanner, PairScanner):
            self._buffer = scanner.push(self._buffer)
            if self._is_known(scanner) and (scanner.is_whole or not self._waits):
                self._tell(read, scanner)
            if not scanner.is_whole:
                return False
        if not self._has_begun:
            self._say(read, self._raw + scanner.text)
        self._is_inside = self._has_begun and bool(self._form.closing or not self._form.name_end)
        self._object, self._raw = None, ""
        return True

    def _end_call(self, read: ReadText, scanner: ObjectScanner | PairScanner, end: End) -> None:
        """The answer has ended within a call."""
        if end is End.OWN:
            scanner.end()
        if self._is_known(scanner) and (scanner.is_whole or end is End.CUT):
            self._tell(read, scanner)
        if self._most_calls is not None and self.num_calls + (not self._has_begun) > self._most_calls:
            return  # it would not be told if it were whole
        if not self._has_begun:
            self._say(read, self._raw + scanner.text + self._buffer)
        self.ends_within_call = not scanner.is_whole

    @staticmethod
    def _is_known(scanner: ObjectScanner | PairScanner) -> bool:
        return scanner.name is not None and bool(scanner.arguments)

    def _tell(self, read: ReadText, scanner: ObjectScanner | PairScanner) -> None:
        new, self._num_told = scanner.arguments[self._num_told :], len(scanner.arguments)
        is_first, self._has_begun = not self._has_begun, True
        if is_first:
            self.num_calls += 1
        if self._most_calls is not None and self.num_calls > self._most_calls:
            return
        index = self.num_calls - 1
        if is_first:
            read.parts.append(CallPiece(index=index, call_id=new_call_id(), name=scanner.name, arguments=new))
        elif new:
            read.parts.append(CallPiece(index=index, arguments=new))

    def _say(self, read: ReadText, text: str) -> None:
        read.add(text)
        self._is_fresh &= not text or text.isspace()


def _held_back(text: str, marker: str) -> int:
    """How many of the last characters may belong to a marker: its beginning, and the space before it."""
    kept = held_back(text, marker)
    before = text[: len(text) - kept]
    return kept + len(before) - len(before.rstrip())
