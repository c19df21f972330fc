"""Where log lines of a server go: to stderr, as text for people or as one JSON object each."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Protocol

_NAMES = ("octavo", "uvicorn.access", "uvicorn.error", "asyncio")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LogSettings(Protocol):
    """The log settings of a configuration."""

    @property
    def log_level(self) -> str: ...
    @property
    def log_json(self) -> bool: ...


class _Text(logging.Formatter):
    """`14:02:11 message`; what is worse than news is named. A line stays one, and moves no terminal's cursor, whatever
    an engine or a client has called itself."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        record.message = f"{level}{_CONTROL.sub(_escaped, record.getMessage())}"
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class _Json(logging.Formatter):
    """Time, level, logger and message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


class _Stderr(logging.Handler):
    """Writes to what stderr is now, not to what it was when the handler was made."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - the module decides what becomes of a line that cannot be written
            self.handleError(record)


def set_up_logs(config: LogSettings) -> None:
    """Sets up the logs of the whole process. A second call replaces the first."""
    handler = _Stderr()
    handler.setFormatter(_Json() if config.log_json else _Text())
    for name in _NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(config.log_level.upper())
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its news are told by Octavo
