"""`RequestRecorder`: a file with what a simulation needs to know of each request, and nothing of its text.

    {"octavo_recording": 1, "block_tokens": 16}
    {"arrival_s": 0.02, "prompt_tokens": 40, "output_tokens": 9, "blocks": [2811.., 977..], ...}

A block is named by 48 bits of its hash, which depends on its tokens and all before it. A thread writes, so that a slow
disk delays no request. Requests beyond its queue are dropped and counted; a disk that fails, or a file that has its
size, ends the recording: a prompt of 128k tokens takes about 130 KB, and nobody may remember that it runs.

A file that is there is kept: what comes after a restart is recorded beside it, in `NAME-2`, as its times and what is
cached begin anew.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread
from typing import NamedTuple, TextIO

from octavo.errors import InputError
from octavo.units import format_bytes

RECORDING_KEY = "octavo_recording"
RECORDING_VERSION = 1
RECORDING_BYTES = 1 << 30
"""The most that a recording takes, unless somebody says otherwise."""

_HASH_BYTES = 6
_MOST_WAITING = 4096
"""The most requests that wait to be written; more are dropped."""
_FLUSH_S = 1.0

_logger = logging.getLogger(__name__)


class _Ended(NamedTuple):
    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    hashes: Sequence[bytes]
    resumed: Mapping[str, int]


class RequestRecorder:
    """Writes one line for each request whose prompt was computed. `note` never blocks."""

    def __init__(self, path: Path, *, block_tokens: int, most_bytes: int = RECORDING_BYTES) -> None:
        """Creates a new file, with a number if one has its name; InputError if it cannot be made."""
        self._file, self._block_tokens = _create(path), block_tokens
        self._most_bytes, self._num_bytes = most_bytes, 0
        if self._file.name != str(path):
            _logger.warning("the recording %s is there already and is kept: requests go to %s", path, self._file.name)
        self.num_dropped = 0
        self._waiting: Queue[_Ended | None] = Queue(_MOST_WAITING)
        self._thread = Thread(target=self._write, name="octavo-recorder", daemon=True)
        self._thread.start()

    def note(
        self,
        arrival_s: float,
        hashes: Sequence[bytes],
        resumed: Mapping[str, int],
        *,
        num_prompt_tokens: int,
        num_output_tokens: int,
    ) -> None:
        """Notes a request that ended. `hashes`: of its full blocks, and final; `resumed`: tokens by medium. The last
        token of an answer is never computed, so a block that it fills is left out."""
        num_computed = num_prompt_tokens + max(0, num_output_tokens - 1)
        kept = hashes[: num_computed // self._block_tokens]
        try:
            self._waiting.put_nowait(_Ended(arrival_s, num_prompt_tokens, num_output_tokens, kept, resumed))
        except Full:
            self.num_dropped += 1

    def close(self, timeout_s: float = 10.0) -> None:
        """Writes what waits, as far as the time allows."""
        try:
            self._waiting.put(None, timeout=timeout_s)
        except Full:
            return
        self._thread.join(timeout_s)

    def _write(self) -> None:
        try:
            with self._file as file:
                self._write_line(file, {RECORDING_KEY: RECORDING_VERSION, "block_tokens": self._block_tokens})
                while self._write_next(file):
                    pass
        except OSError as error:
            _logger.warning("the recording of requests ends: %s", error)
            while self._waiting.get() is not None:
                self.num_dropped += 1

    def _write_next(self, file: TextIO) -> bool:
        """Writes the next request. False at the end."""
        try:
            ended = self._waiting.get(timeout=_FLUSH_S)
        except Empty:
            file.flush()
            return True
        if ended is None:
            return False
        line = {
            "arrival_s": round(ended.arrival_s, 6),
            "prompt_tokens": ended.num_prompt_tokens,
            "output_tokens": ended.num_output_tokens,
            "blocks": [int.from_bytes(name[:_HASH_BYTES], "big") for name in ended.hashes],
            "resumed": dict(ended.resumed),
        }
        self._write_line(file, line)
        return True

    def _write_line(self, file: TextIO, message: Mapping[str, object]) -> None:
        """Writes a line, or raises OSError if it does not fit any more."""
        line = json.dumps(message) + "\n"
        if self._num_bytes + len(line) > self._most_bytes:
            self.num_dropped += 1
            raise OSError(f"{file.name} has its {format_bytes(self._most_bytes)}")
        self._num_bytes += len(line)
        file.write(line)


def check_recording(path: Path) -> None:
    """Raises InputError if a recording cannot be made there. Leaves no file."""
    with _create(path) as file:
        Path(file.name).unlink()


def name_part(path: Path, part: str) -> Path:
    """The file of one of several processes that record to the same path. What is there and is no file keeps its name,
    and is refused by it."""
    with suppress(OSError):
        if path.exists() and not path.is_file():
            return path
    return path.with_stem(f"{path.stem}-{part}")


def _create(path: Path) -> TextIO:
    """A supervisor starts a server again with the same name, so a file that has it is no reason not to serve."""
    name, number = path, 1
    while True:
        try:
            return name.open("x", encoding="utf-8")
        except FileExistsError:
            if not path.is_file():
                raise InputError(f"the recording {str(path)!r} is there already, and is no file: name one") from None
        except OSError as error:
            raise InputError(
                f"the recording {str(path)!r} cannot be made ({error.strerror}): name a file in a folder that is there "
                "and can be written to"
            ) from None
        number += 1
        name = path.with_stem(f"{path.stem}-{number}")
