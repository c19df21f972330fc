"""A file that lists a fleet's engines, and is read again whenever it changes.

engines:
- http://10.0.0.5:8000,keys=KEYS
- http://10.0.0.7:8000,events=tcp://10.0.0.7:5557,replay=tcp://10.0.0.7:5558
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from octavo.errors import InputError
from octavo.http import run_apart
from octavo.settings import Settings, read_yaml_file

_logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_Mark: TypeAlias = tuple[int, int, int]
"""Changes whenever a file is written or replaced."""


class _EnginesFile(Settings, frozen=True, kw_only=True):
    """What is in the file."""

    engines: tuple[str, ...]


def read_engines_file(file: Path) -> tuple[str, ...]:
    """The engines as a person wrote them. InputError names the file, and what is wrong with it."""
    document = read_yaml_file(file, holds="engines")
    try:
        return _EnginesFile.from_mapping(document).engines
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


async def watch_engines_file(file: Path, take: Callable[[tuple[str, ...]], None]) -> None:
    """Tells the engines at once and whenever the file has changed. A file that cannot be read, or is refused
    by `take` with InputError, is logged, and the fleet stays as it was."""
    seen: _Mark | None = None
    while True:
        mark = await run_apart(partial(_mark, file), name="octavo-engines-file")  # the file system may hang
        if mark != seen:
            seen = mark
            try:
                take(await run_apart(partial(read_engines_file, file), name="octavo-engines-file"))
            except InputError as error:
                _logger.warning("the fleet stays as it is: %s", error)
        await asyncio.sleep(_INTERVAL_S)


def _mark(file: Path) -> _Mark | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
