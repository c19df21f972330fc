"""The records of a trace's file: JSON objects, one a line or in one list, each with the place where it stands."""

import bz2
import gzip
import io
import json
import logging
import lzma
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from octavo.errors import MALFORMED, InputError, why_not_read
from octavo.settings import shown

_logger = logging.getLogger(__name__)

_OPENERS: Mapping[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
"""By the first bytes of what they make: the programs whose files are read as they are."""
_COMPRESSED = {b"\x28\xb5\x2f\xfd": "unzstd", b"PK\x03\x04": "unzip"}
_UTF16 = (BOM_UTF16_BE, BOM_UTF16_LE, b"\0{", b"{\0", b"\0[", b"[\0")
"""How JSON begins in UTF-16, with a mark of the encoding or without one."""
_SUFFIXES = tuple(f"{form}{pressed}" for form in (".json", ".jsonl") for pressed in ("", ".gz", ".bz2", ".xz"))
_PARQUET = b"PAR1"
_TAR_AT = 257
_BETWEEN_CELLS = re.compile(rb"[,;\t]")
_LFS_POINTER = b"version https://git-lfs"
_LONGEST_LINE_BYTES = 64 << 20
"""Of one record. A device such as /dev/zero is one line without end."""
_MOST_TOKENS = 1 << 30
"""The most tokens of one request. More cannot be a language model's."""
_LATEST = 1e13
"""The latest time of a request, in whatever unit: the year 2286 in milliseconds since 1970. A float tells times of that
many seconds to 2 ms, and later ones worse. Microseconds or nanoseconds since 1970 are not taken for milliseconds."""
_SECONDS = (1e9, 1e11)
"""Seconds from 2001 on. As milliseconds they would be 11 days or more after a trace's beginning."""
_WAITS = "wait_for"
"""What traces tell of a request that waits for several others."""


class BadRecordError(Exception):
    """A record is no request. Its text begins with the record's place."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record, which gives its values checked."""

    place: str
    """`line 7`, or `record 7` of a list."""
    fields: Mapping[str, Any]

    def number(self, key: str) -> float:
        value = self.fields.get(key)
        if not _is_time(value):
            raise self._must_be(key, f"a number from 0 to {_LATEST:g}")
        return float(value)

    def time_s(self, key: str, units_per_s: float) -> float:
        """A time in seconds: a number of units, or a date and time in ISO 8601 (UTC, unless it says otherwise)."""
        value = self.fields.get(key)
        if isinstance(value, str):
            with suppress(ValueError, OverflowError):
                moment = datetime.fromisoformat(value)
                since_1970 = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
                if since_1970 >= 0:
                    return since_1970
        elif _is_time(value):
            return float(value) / units_per_s
        if not self.has(key) and self.has(_WAITS):
            raise self.wrong(
                f"{key} is missing. It tells which others it waits for, whose ends depend on the engine: give each "
                f"request the {key} at which it came"
            )
        raise self._must_be(key, f"a number from 0 to {_LATEST:g}, or a date and time such as 2026-11-30T09:05:00Z")

    def time_units_per_s(self, key: str) -> float:
        """The units of the record's time, if it is the first one of its trace: milliseconds, unless these would be
        weeks after the trace's beginning, as are seconds since 1970."""
        value = self.fields.get(key)
        return 1.0 if _is_time(value) and _SECONDS[0] <= value < _SECONDS[1] else 1000.0

    def first_of(self, *keys: str) -> str:
        """The first of these keys that has a value here; the first one if none has."""
        return next((key for key in keys if self.has(key)), keys[0])

    def has(self, key: str) -> bool:
        """Whether the key has a value. Some programs write null where there is none."""
        return self.fields.get(key) is not None

    def count(self, key: str, *, least: int) -> int:
        value = self.fields.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_TOKENS:
            raise self._must_be(key, f"a whole number from {least} to {_MOST_TOKENS:,}")
        return value

    def ids(self, key: str) -> list[int]:
        value = self.fields.get(key)
        if not isinstance(value, list):
            raise self._must_be(key, "a list of whole numbers from 0 on")
        for one in value:
            if not isinstance(one, int) or isinstance(one, bool) or one < 0:
                raise self.wrong(f"{key} must be a list of whole numbers from 0 on, and has {shown(one)}")
        return value

    def name(self, key: str) -> str:
        """A name, which may be a number; empty if there is none."""
        value = self.fields.get(key)
        return "" if value is None else str(value)

    def first_name(self, *keys: str) -> str:
        """The first of these names that is not empty."""
        return next(filter(None, map(self.name, keys)), "")

    def wrong(self, problem: str) -> BadRecordError:
        return BadRecordError(f"{self.place}: {problem}")

    def _must_be(self, key: str, what: str) -> BadRecordError:
        if key not in self.fields:
            return self.wrong(f"{key} is missing; it must be {what}")
        return self.wrong(f"{key} must be {what}, not {shown(self.fields[key])}")


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST


def read_records(path: Path, *, may_be_cut_off: Callable[[Mapping[str, Any]], bool]) -> Iterator[TraceRecord]:
    """All records of a file, or of a folder's files in the order of their names. `may_be_cut_off`, by the first one:
    whether the last line may end in the middle, as its disk was full. What the file has until there is whole."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    if files is None:
        yield from _readable_records_of(path, may_be_cut_off)
        return
    files = [file for file in files if file.name.endswith(_SUFFIXES)]
    if not files:
        raise InputError("is a folder without files that end in .json or .jsonl")
    for file in files:
        try:
            for record in _readable_records_of(file, may_be_cut_off):
                yield replace(record, place=f"{file.name}, {record.place}")
        except BadRecordError as error:
            raise BadRecordError(f"{file.name}, {error}") from None
        except InputError as error:
            raise InputError(f"has {file.name}, which {error}") from None


def _readable_records_of(path: Path, may_be_cut_off: Callable[[Mapping[str, Any]], bool]) -> Iterator[TraceRecord]:
    try:
        yield from _records_of(path, may_be_cut_off)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"is compressed, and damaged or cut off: {error}") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None


def _records_of(path: Path, may_be_cut_off: Callable[[Mapping[str, Any]], bool]) -> Iterator[TraceRecord]:
    first: TraceRecord | None = None
    with path.open("rb") as pressed, _unpacked(pressed) as file:
        for number, text in _texts(file):
            try:
                found = _parse(number, text)
            except BadRecordError:
                if first is None or text.endswith(b"\n") or not may_be_cut_off(first.fields):
                    raise
                _logger.warning("trace %r ends in the middle of a record, which is left out", str(path))
                return
            if isinstance(found, list) and first is None:
                yield from [record_of(f"record {index}", value) for index, value in enumerate(found, start=1)]
            else:
                record = record_of(f"line {number}", found)
                first = first or record
                yield record


def _unpacked(file: io.BufferedReader) -> BinaryIO:
    """The file, or what it is made of if it is compressed."""
    begin = file.peek(8)
    opener = next((opener for magic, opener in _OPENERS.items() if begin.startswith(magic)), None)
    return file if opener is None else opener(file)


def record_of(place: str, value: object) -> TraceRecord:
    if not isinstance(value, dict):
        raise BadRecordError(f"{place}: an object is wanted, not {shown(value)}")
    return TraceRecord(place, value)


def _parse(number: int, text: bytes) -> object:
    """Reads the text that begins in this line; JSON counts lines from there."""
    try:
        return json.loads(text.rstrip().decode())
    except json.JSONDecodeError as error:
        raise BadRecordError(
            f"line {number + error.lineno - 1}: it is no JSON: {error.msg} at column {error.colno}"
        ) from None
    except MALFORMED as error:
        raise BadRecordError(f"line {number}: it {why_not_read(error)}") from None


def _texts(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number, or all of the file if the first of them begins a list, or an
    object of several lines."""
    number = 0
    is_first = True
    while line := file.readline(_LONGEST_LINE_BYTES + 1):
        number += 1
        line = line.removeprefix(BOM_UTF8)
        if is_first:
            _refuse_others(line)
        if is_first and (line.lstrip().startswith(b"[") or line.strip() == b"{"):
            line += file.read()
        elif len(line) > _LONGEST_LINE_BYTES:
            raise InputError(f"has more than {_LONGEST_LINE_BYTES:,} bytes in one line")
        if line.strip():
            is_first = False
            yield number, line


def _refuse_others(line: bytes) -> None:
    """Refuses a file whose first bytes say that it is another one, and says how to get the trace."""
    for magic, program in _COMPRESSED.items():
        if line.startswith(magic):
            raise InputError(f"is compressed: give what {program} makes of it")
    if line.startswith(_UTF16):
        raise InputError("is UTF-16, as Windows writes what `>` redirects: save it as UTF-8")
    if line.startswith(_LFS_POINTER):
        raise InputError("is a pointer of Git LFS, not the trace itself: git lfs pull fetches that")
    if line.startswith(_PARQUET):
        raise InputError(
            "is Parquet: pandas.read_parquet(FILE).to_json(NEW_FILE, orient='records', lines=True) makes JSON of it"
        )
    if line[_TAR_AT:].startswith(b"ustar"):
        raise InputError("is an archive: give the file that tar takes out of it")
    if b"\0" not in line and _BETWEEN_CELLS.search(line) and not line.lstrip().startswith((b"{", b"[")):
        raise InputError(
            "looks like a table: a trace is JSON, and has hash_ids or texts, as times and lengths do not tell what "
            "requests share"
        )
