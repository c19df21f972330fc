"""Recorded events: one JSON object on each line, in the order of their arrival."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from octavo.errors import MALFORMED, InputError, WireError
from octavo.events import DEFAULT_LIMITS, Delivered, decode_batch

_PRIVATE = 0o600
"""Events may hold the tokens of prompts, so a recording is for its owner alone."""
_LONGEST_LINE_BYTES = DEFAULT_LIMITS.max_payload_bytes * 4 // 3 + (1 << 16)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One message, as it came. As JSON, the payload is in base64."""

    topic: str
    """The topic; one that is not text is kept as far as it is."""
    sequence: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    received: float
    payload: bytes


class Recorder:
    """A new file that holds whole lines at any time, even if the disk or the writing process fails."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self.num_bytes = 0
        self._path = path
        self._max_bytes = max_bytes
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        except FileExistsError:
            raise InputError(f"{path}: the file is there already, and is kept: name a new one, or remove it") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error

    def add(self, item: Delivered, *, received: float) -> bool:
        """Appends a message. False if it does not fit any more: then nothing is written."""
        recorded = Recorded(
            topic=item.topic.encode(errors="replace").decode(),
            sequence=item.sequence,
            received=received,
            payload=item.payload,
        )
        line = msgspec.json.encode(recorded) + b"\n"
        if self.num_bytes + len(line) > self._max_bytes:
            return False
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BaseException as error:
            os.ftruncate(self._file, self.num_bytes)
            if isinstance(error, OSError):
                raise InputError(f"{self._path}: {error.strerror}") from error
            raise
        self.num_bytes += len(line)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def read_recorded(path: Path) -> Iterator[Recorded]:
    """The messages of a file. InputError names the first line that is not one."""
    try:
        _check_is_file(path)
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE_BYTES):
                number += 1
                try:
                    yield _parse(line)
                except InputError as error:
                    raise InputError(f"{path}, line {number}: {error}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _check_is_file(path: Path) -> None:
    """Refuses a pipe, which would wait for its writer and cannot be read twice. The null device is an empty file."""
    if path.exists() and not path.is_file() and not path.samefile(os.devnull):
        raise InputError(f"{path}: not a file; name one that `octavo events record` made")


def _parse(line: bytes) -> Recorded:
    if not line.endswith(b"\n"):
        raise InputError("the line is not whole")
    try:
        recorded = _DECODER.decode(line)
        decode_batch(recorded.payload)
    except (*MALFORMED, WireError) as error:
        raise InputError(str(error)) from None
    return recorded


_DECODER = msgspec.json.Decoder(Recorded)
